/* open_stages.h - finds the stages whose device work is summed up, at most MOST_OPEN of a thread at a time. */
#ifndef TFA_OPEN_STAGES_H
#define TFA_OPEN_STAGES_H

#include "ask/stages/order.h"

/* A piece of work counts for each stage around it. A stage that opens while so many others are open has no sums. */
enum { MOST_OPEN = 64 };

enum stage_sums {
    STAGE_COUNTS,
    STAGE_UNASKED,  /* its name has no row */
    STAGE_REPEATED, /* it is too deep, and inside a counting stage of its name, which has its work */
    STAGE_DEEP,     /* it is too deep */
};

/* Returns what each range is, by index; NULL if all stages count. `order` comes from stages_sorted, `row` is the row of
 * each range's name, or NO_PLACE. The caller frees the result. */
uint8_t *stages_deep(const struct ranges *ranges, const size_t *order, size_t count, const uint32_t *row);

#endif
