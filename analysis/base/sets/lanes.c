/* lanes.c - spreads intervals over lanes, with one heap of busy lanes and one of idle lanes. */
#include "base/sets/lanes.h"

#include <stdlib.h>

/* ---- busy lanes ---- */

static void add_busy(struct lanes *l, struct lane_end item)
{
    l->busy = mem_grow(l->busy, &l->busy_capacity, l->busy_count + 1, sizeof *l->busy);
    size_t at = l->busy_count++;
    for (; at && l->busy[(at - 1) / 2].end > item.end; at = (at - 1) / 2) l->busy[at] = l->busy[(at - 1) / 2];
    l->busy[at] = item;
}

static uint32_t take_busy(struct lanes *l)
{
    uint32_t lane = l->busy[0].lane;
    struct lane_end item = l->busy[--l->busy_count];
    size_t at = 0, below;
    for (; (below = 2 * at + 1) < l->busy_count; at = below) {
        below += below + 1 < l->busy_count && l->busy[below + 1].end < l->busy[below].end;
        if (l->busy[below].end >= item.end) break;
        l->busy[at] = l->busy[below];
    }
    l->busy[at] = item;
    return lane;
}

/* ---- idle lanes ---- */

static void add_idle(struct lanes *l, uint32_t lane)
{
    l->idle = mem_grow(l->idle, &l->idle_capacity, l->idle_count + 1, sizeof *l->idle);
    size_t at = l->idle_count++;
    for (; at && l->idle[(at - 1) / 2] > lane; at = (at - 1) / 2) l->idle[at] = l->idle[(at - 1) / 2];
    l->idle[at] = lane;
}

static uint32_t take_idle(struct lanes *l)
{
    uint32_t lowest = l->idle[0], item = l->idle[--l->idle_count];
    size_t at = 0, below;
    for (; (below = 2 * at + 1) < l->idle_count; at = below) {
        below += below + 1 < l->idle_count && l->idle[below + 1] < l->idle[below];
        if (l->idle[below] >= item) break;
        l->idle[at] = l->idle[below];
    }
    l->idle[at] = item;
    return lowest;
}

uint32_t lanes_place(struct lanes *lanes, int64_t start, int64_t end)
{
    while (lanes->busy_count && lanes->busy[0].end <= start) add_idle(lanes, take_busy(lanes));
    uint32_t lane = lanes->idle_count ? take_idle(lanes) : lanes->count++;
    add_busy(lanes, (struct lane_end){end, lane});
    return lane;
}

void lanes_free(struct lanes *lanes)
{
    free(lanes->busy);
    free(lanes->idle);
    *lanes = (struct lanes){0};
}
