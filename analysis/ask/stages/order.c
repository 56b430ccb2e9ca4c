/* order.c - sorts the stages of a process, and finds ranges by their ids. */
#include "ask/stages/order.h"

#include <stdlib.h>

#include "base/runs.h"

static int opened_before(const void *a, const void *b, void *context)
{
    const struct ranges *r = context;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    if (r->thread[x] != r->thread[y]) return r->thread[x] < r->thread[y] ? -1 : 1;
    if (r->start[x] != r->start[y]) return r->start[x] < r->start[y] ? -1 : 1;
    if (r->end[x] != r->end[y]) return r->end[x] > r->end[y] ? -1 : 1;
    if (r->depth[x] != r->depth[y]) return r->depth[x] < r->depth[y] ? -1 : 1;
    return (r->id[x] > r->id[y]) - (r->id[x] < r->id[y]);
}

size_t *stages_sorted(const struct process *process, size_t *count)
{
    const struct ranges *r = &process->ranges;
    size_t *order = mem_zero(r->table.count, sizeof *order);
    *count = 0;
    for (size_t i = 0; i < r->table.count; i++)
        if (is_stage(r, i)) order[(*count)++] = i;
    sort_runs(order, *count, sizeof *order, opened_before, (void *)r);
    return order;
}

bool has_stages(const struct process *process)
{
    const struct ranges *r = &process->ranges;
    for (size_t i = 0; i < r->table.count; i++)
        if (is_stage(r, i)) return true;
    return false;
}

bool is_one_stage(const struct process *process, bool alone)
{
    return alone || is_of_kineto(process) || process->works.table.count;
}

void ranges_by_id(struct map *ranges, const struct process *process)
{
    const struct ranges *r = &process->ranges;
    for (size_t i = 0; i < r->table.count; i++)
        if (!(r->flags[i] & RANGE_CONTINUED)) map_put(ranges, r->id[i], (uint32_t)i);
}

void wholes_by_id(struct map *map, const struct process *process)
{
    const struct wholes *w = &process->wholes;
    for (size_t i = 0; i < w->table.count; i++) map_put(map, process->ranges.id[w->range[i]], (uint32_t)i);
}

struct interval call_time(const struct process *process, size_t range, uint32_t whole)
{
    const struct ranges *r = &process->ranges;
    const struct wholes *w = &process->wholes;
    return whole == MAP_NONE ? (struct interval){r->start[range], r->end[range]}
                             : (struct interval){w->start[whole], w->end[whole]};
}
