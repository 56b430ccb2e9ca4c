/* same_name.c - sorts stages by thread and name, and links each to the stages of its own name around it. */
#include "ask/stages/same_name.h"

#include <stdlib.h>

struct stage {
    uint32_t thread, name, place;
    size_t position; /* position in attribution->order */
};

static int by_thread_and_name(const void *a, const void *b)
{
    const struct stage *x = a, *y = b;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    if (x->name != y->name) return x->name < y->name ? -1 : 1;
    return (x->position > y->position) - (x->position < y->position);
}

static void sort(struct stage_named *named, const size_t *order)
{
    const struct ranges *r = named->ranges;
    struct stage *stage = mem_zero(named->count, sizeof *stage);
    named->order = mem_zero(named->count, sizeof *named->order);
    for (size_t i = 0; i < named->count; i++)
        stage[i] = (struct stage){r->thread[order[i]], r->name[order[i]], (uint32_t)order[i], i};
    if (named->count) qsort(stage, named->count, sizeof *stage, by_thread_and_name);
    for (size_t i = 0; i < named->count; i++) named->order[i] = stage[i].place;
    free(stage);
}

static uint32_t *outer_of_name(const struct stage_named *named)
{
    const struct ranges *r = named->ranges;
    uint32_t *outer = mem_zero(r->table.count, sizeof *outer), *open = mem_zero(named->count, sizeof *open);
    size_t depth = 0;
    for (size_t i = 0; i < named->count; i++) {
        size_t at = named->order[i], before = i ? named->order[i - 1] : at;
        if (r->thread[at] != r->thread[before] || r->name[at] != r->name[before]) depth = 0;
        while (depth && r->end[open[depth - 1]] <= r->start[at]) depth--;
        outer[at] = depth ? open[depth - 1] : NO_PLACE;
        open[depth++] = (uint32_t)at;
    }
    free(open);
    return outer;
}

void stage_named_init(struct stage_named *named, const struct attribution *attribution)
{
    *named = (struct stage_named){.ranges = &attribution->process->ranges, .count = attribution->stages};
    sort(named, attribution->order);
    uint32_t *outer = outer_of_name(named);
    stage_paths_init(&named->paths, attribution->process, named->order, named->count, outer, NULL);
    free(outer);
}

void stage_named_free(struct stage_named *named)
{
    free(named->order);
    stage_paths_free(&named->paths);
    *named = (struct stage_named){0};
}

static bool is_before(const struct ranges *r, size_t stage, uint32_t thread, uint32_t name, int64_t time)
{
    if (r->thread[stage] != thread) return r->thread[stage] < thread;
    return r->name[stage] != name ? r->name[stage] < name : r->start[stage] <= time;
}

uint32_t stage_named_at(const struct stage_named *named, uint32_t thread, uint32_t name, int64_t time)
{
    const struct ranges *r = named->ranges;
    size_t low = 0, high = named->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (is_before(r, named->order[middle], thread, name, time)) low = middle + 1;
        else high = middle;
    }
    uint32_t last = low ? (uint32_t)named->order[low - 1] : NO_PLACE;
    if (last == NO_PLACE || r->thread[last] != thread || r->name[last] != name) return NO_PLACE;
    return r->end[last] > time ? last : stages_around(&named->paths, last, time);
}
