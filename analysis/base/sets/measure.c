/* measure.c - implements the measure of a set by the sums of its intervals up to each one. */
#include "base/sets/measure.h"

#include <stdlib.h>

#include "base/util.h"

void measure_init(struct measure *measure, const struct intervals *set)
{
    int64_t before = 0;
    *measure = (struct measure){set, mem_zero(set->count, sizeof *measure->before)};
    for (size_t i = 0; i < set->count; i++) {
        measure->before[i] = before;
        before = add_ns(before, set->interval[i].end - set->interval[i].start);
    }
}

void measure_free(struct measure *measure)
{
    free(measure->before);
    *measure = (struct measure){0};
}

/* Returns how much the set covers before `time`. */
static int64_t covered_before(const struct measure *measure, int64_t time)
{
    size_t low = 0, high = measure->set->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (measure->set->interval[middle].start < time) low = middle + 1;
        else high = middle;
    }
    if (!low) return 0;
    const struct interval *last = &measure->set->interval[low - 1];
    return measure->before[low - 1] + MIN(time, last->end) - last->start;
}

int64_t measure_between(const struct measure *measure, int64_t start, int64_t end)
{
    return start < end ? covered_before(measure, end) - covered_before(measure, start) : 0;
}

int64_t measure_overlap(const struct measure *measure, const struct intervals *other)
{
    int64_t total = 0;
    for (size_t i = 0; i < other->count; i++)
        total += measure_between(measure, other->interval[i].start, other->interval[i].end);
    return total;
}

struct intervals intervals_common(const struct intervals *a, const struct intervals *b)
{
    struct intervals common = {0};
    if (a->count > b->count) return intervals_common(b, a);
    for (size_t i = 0; i < a->count; i++) {
        struct interval x = a->interval[i];
        for (size_t k = intervals_after(b, x.start); k < b->count && b->interval[k].start < x.end; k++)
            intervals_add(&common, MAX(x.start, b->interval[k].start), MIN(x.end, b->interval[k].end));
    }
    return common;
}

struct intervals intervals_without(const struct intervals *a, const struct intervals *b)
{
    struct intervals rest = {0};
    for (size_t i = 0; i < a->count; i++) {
        int64_t start = a->interval[i].start, end = a->interval[i].end;
        for (size_t k = intervals_after(b, start); k < b->count && b->interval[k].start < end; k++) {
            intervals_add(&rest, start, MAX(start, b->interval[k].start));
            start = MIN(b->interval[k].end, end);
        }
        intervals_add(&rest, start, end);
    }
    return rest;
}
