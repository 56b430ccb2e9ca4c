/* page_flames.h - the flame graph of a page: sampled time by stage and by call stack, as far as a screen shows it. */
#ifndef TFA_PAGE_FLAMES_H
#define TFA_PAGE_FLAMES_H

#include "ask/selection.h"
#include "write/out.h"

/* Writes a JSON object. Reads what `hotspots` needs. */
void page_flames_write(struct out *out, const struct selection *chosen);

#endif
