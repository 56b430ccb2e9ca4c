/* lanes.h - spreads intervals over lanes so that no two intervals of a lane overlap.
 *
 * Intervals come in the order of their starts. Each gets the lowest lane that is free at its start, so the number of
 * lanes is the largest number of intervals that overlap. The cost is N log N for N intervals.
 */
#ifndef TFA_LANES_H
#define TFA_LANES_H

#include "base/util.h"

struct lane_end {
    int64_t end;
    uint32_t lane;
};

struct lanes {
    struct lane_end *busy; /* a heap: the lane that ends first is at the top */
    uint32_t *idle;        /* a heap: the lowest idle lane is at the top */
    size_t busy_count, busy_capacity, idle_count, idle_capacity;
    uint32_t count; /* lanes so far */
};

/* Returns the interval's lane; lanes count from 0. Intervals that only touch do not overlap. */
uint32_t lanes_place(struct lanes *lanes, int64_t start, int64_t end);
void lanes_free(struct lanes *lanes);

#endif
