/* findings_of_two.h - `diff --by finding`: the findings of `advise` in two runs. */
#ifndef TFA_FINDINGS_OF_TWO_H
#define TFA_FINDINGS_OF_TWO_H

#include "commands/session.h"

/* Reads both runs and prints which findings are gone, new and still there, with predicted and measured gains. */
void findings_of_two(struct session *session);

#endif
