/* absent_ranks.h - the ranks of a job of which no trace is among the inputs. */
#ifndef TFA_ABSENT_RANKS_H
#define TFA_ABSENT_RANKS_H

#include "ask/selection.h"

/* Returns the beginning of a sentence, such as "ranks 2, 3 of 4 ranks have no trace", which the caller frees; NULL: none
 * is known to be missing. With --rank only the chosen ranks are looked for, and with --pid none. `without_empty`: a trace
 * without any stage, operator, call and device work counts as none; the command has loaded these. */
char *absent_ranks(const struct selection *chosen, bool without_empty);

#endif
