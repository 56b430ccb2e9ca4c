/* intervals.c - computes with sets of time intervals. */
#include "base/sets/intervals.h"

#include <stdlib.h>
#include <string.h>

#include "base/runs.h"
#include "base/util.h"

void intervals_add(struct intervals *set, int64_t start, int64_t end)
{
    if (end <= start) return;
    set->interval = mem_grow(set->interval, &set->capacity, set->count + 1, sizeof *set->interval);
    set->interval[set->count++] = (struct interval){start, end};
}

/* Merging at a full array costs N log N in total, because the array grows whenever merging leaves it half full. */
void intervals_add_merging(struct intervals *set, int64_t start, int64_t end)
{
    if (set->count && set->count == set->capacity) {
        intervals_merge(set);
        if (set->count > set->capacity / 2)
            set->interval = mem_grow(set->interval, &set->capacity, set->capacity + 1, sizeof *set->interval);
    }
    intervals_add(set, start, end);
}

static int intervals_by_start(const void *a, const void *b, void *unused)
{
    const struct interval *x = a, *y = b;
    (void)unused;
    return (x->start > y->start) - (x->start < y->start);
}

void intervals_merge(struct intervals *set)
{
    size_t kept = 0;
    sort_runs(set->interval, set->count, sizeof *set->interval, intervals_by_start, NULL);
    for (size_t i = 0; i < set->count; i++) {
        struct interval next = set->interval[i];
        if (kept && next.start <= set->interval[kept - 1].end)
            set->interval[kept - 1].end = MAX(set->interval[kept - 1].end, next.end);
        else set->interval[kept++] = next;
    }
    set->count = kept;
}

void intervals_fit(struct intervals *set)
{
    if (set->count == set->capacity) return;
    set->interval = mem_resize(set->interval, set->count, sizeof *set->interval);
    set->capacity = set->count;
}

int64_t intervals_total(const struct intervals *set)
{
    int64_t total = 0;
    for (size_t i = 0; i < set->count; i++) total += set->interval[i].end - set->interval[i].start;
    return total;
}

size_t intervals_after(const struct intervals *set, int64_t time)
{
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (set->interval[middle].end <= time) low = middle + 1;
        else high = middle;
    }
    return low;
}

bool intervals_hold(const struct intervals *set, int64_t start, int64_t end)
{
    size_t at = intervals_after(set, start);
    return at < set->count && set->interval[at].start <= start && set->interval[at].end >= end;
}

int64_t intervals_overlap(const struct intervals *a, const struct intervals *b)
{
    int64_t total = 0;
    for (size_t i = 0, k = 0; i < a->count && k < b->count;) {
        const struct interval *x = &a->interval[i], *y = &b->interval[k];
        int64_t start = MAX(x->start, y->start), end = MIN(x->end, y->end);
        total += MAX(end - start, 0);
        if (x->end < y->end) i++;
        else k++;
    }
    return total;
}

struct intervals intervals_union(const struct intervals *a, const struct intervals *b)
{
    struct intervals both = {.count = a->count + b->count, .capacity = a->count + b->count};
    both.interval = mem_zero(both.count, sizeof *both.interval);
    if (a->count) memcpy(both.interval, a->interval, a->count * sizeof *a->interval);
    if (b->count) memcpy(both.interval + a->count, b->interval, b->count * sizeof *b->interval);
    intervals_merge(&both);
    return both;
}

struct edge {
    int64_t time;
    int bit; /* negative at an end */
};

static int intervals_by_time(const void *a, const void *b, void *unused)
{
    const struct edge *x = a, *y = b;
    (void)unused;
    return (x->time > y->time) - (x->time < y->time);
}

void intervals_combine(const struct intervals *set, size_t sets, int64_t total[INTERVALS_COMBINATIONS])
{
    size_t count = 0, places = 0;
    int open = 0;
    for (size_t i = 0; i < sets; i++) places += 2 * set[i].count;
    struct edge *edge = mem_zero(places + 1, sizeof *edge);
    for (size_t i = 0; i < sets; i++) {
        for (size_t k = 0; k < set[i].count; k++) {
            edge[count++] = (struct edge){set[i].interval[k].start, 1 << i};
            edge[count++] = (struct edge){set[i].interval[k].end, -(1 << i)};
        }
    }
    sort_runs(edge, count, sizeof *edge, intervals_by_time, NULL);
    for (size_t i = 0; i + 1 < count; i++) {
        open += edge[i].bit;
        if (open > 0 && open < INTERVALS_COMBINATIONS) total[open] += edge[i + 1].time - edge[i].time;
    }
    free(edge);
}

void intervals_free(struct intervals *set)
{
    free(set->interval);
    *set = (struct intervals){0};
}
