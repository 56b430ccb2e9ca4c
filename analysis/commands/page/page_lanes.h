/* page_lanes.h - the timeline of a page: stages of threads, work of streams, samples, memory and clocks, thinned to what a screen shows. */
#ifndef TFA_PAGE_LANES_H
#define TFA_PAGE_LANES_H

#include "ask/selection.h"
#include "write/out.h"

/* Writes a JSON object. Reads what `advise` needs. */
void lanes_write(struct out *out, const struct selection *chosen);

#endif
