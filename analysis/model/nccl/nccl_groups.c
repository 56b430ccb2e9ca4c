/* nccl_groups.c - finds the call, or the group of calls, in which a thread launched something. */
#include <stdlib.h>

#include "model/nccl/nccl.h"

/* Returns the index of the first collective that a thread called after `time`. */
static size_t first_after(const struct collectives *c, uint32_t thread, int64_t time)
{
    size_t low = 0, high = c->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct collective *at = &c->collective[middle];
        if (at->thread < thread || (at->thread == thread && at->call_start <= time)) low = middle + 1;
        else high = middle;
    }
    return low;
}

static size_t group_after(const struct nccl_calls *j, uint32_t thread, int64_t time)
{
    size_t low = 0, high = j->groups;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct group_span *at = &j->group[middle];
        if (at->thread < thread || (at->thread == thread && at->to <= time)) low = middle + 1;
        else high = middle;
    }
    return low;
}

size_t nccl_call_at(const struct nccl_calls *calls, struct group_launches *launches, uint32_t thread, int64_t time,
                    uint32_t id)
{
    const struct collectives *c = &calls->process->collectives;
    size_t after = first_after(c, thread, time), group = group_after(calls, thread, time);
    const struct collective *call = after ? &c->collective[after - 1] : NULL;
    if (call && call->thread == thread && time <= call->call_end) return after - 1;
    if (group && calls->group[group - 1].thread == thread && time <= calls->group[group - 1].until) {
        launches->launch =
            mem_grow(launches->launch, &launches->capacity, launches->count + 1, sizeof *launches->launch);
        launches->launch[launches->count++] = (struct group_launch){group - 1, time, id};
    }
    return NO_CALL;
}

void nccl_members(const struct nccl_calls *calls, size_t group, size_t *first, size_t *last)
{
    const struct group_span *g = &calls->group[group];
    *first = first_after(&calls->process->collectives, g->thread, g->from);
    *last = first_after(&calls->process->collectives, g->thread, g->to);
}

uint64_t nccl_rank_key(const struct collective *c)
{
    return (uint64_t)c->communicator << 32 | (uint32_t)c->rank;
}

static int by_group_and_time(const void *a, const void *b)
{
    const struct group_launch *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return by_number(x->id, y->id);
}

void group_launches_sort(struct group_launches *l)
{
    if (l->count) qsort(l->launch, l->count, sizeof *l->launch, by_group_and_time);
}

size_t group_launches_end(const struct group_launches *l, size_t first)
{
    size_t end = first + 1;
    while (end < l->count && l->launch[end].group == l->launch[first].group) end++;
    return end;
}
