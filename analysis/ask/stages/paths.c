/* paths.c - links each stage to the stages around it, so that few steps find the one open at a moment. */
#include "ask/stages/paths.h"

#include <stdlib.h>

/* Returns the first stage from `stage` outwards that ends after `time`. */
static uint32_t open_from(const struct stage_paths *p, uint32_t stage, int64_t time)
{
    const int64_t *end = p->ranges->end;
    while (stage != NO_PLACE && end[stage] <= time) {
        uint32_t far = p->jump[stage];
        stage = far != NO_PLACE && end[far] <= time ? far : p->up[stage];
    }
    return stage;
}

static uint32_t height_of(const struct stage_paths *p, uint32_t stage)
{
    return stage == NO_PLACE ? 0 : p->height[stage];
}

/* A stage's jump is one step. If the next two jumps outwards are equally long, it is one step and both of them. */
static void link_up(struct stage_paths *p, uint32_t stage, uint32_t up)
{
    uint32_t first = up == NO_PLACE ? NO_PLACE : p->jump[up];
    uint32_t second = first == NO_PLACE ? NO_PLACE : p->jump[first];
    bool equal = up != NO_PLACE && height_of(p, up) - height_of(p, first) == height_of(p, first) - height_of(p, second);
    p->up[stage] = up;
    p->jump[stage] = equal ? second : up;
    p->height[stage] = height_of(p, up) + 1;
}

static bool counts(const struct stage_paths *p, uint32_t stage)
{
    return !p->left_out || !p->left_out[stage];
}

/* Finds the stage in which each stage was opened. */
static void find_outer(struct stage_paths *p, const size_t *order, size_t count)
{
    const struct ranges *r = p->ranges;
    uint32_t *open = mem_zero(count, sizeof *open);
    size_t depth = 0;
    for (size_t i = 0; i < count; i++) {
        size_t at = order[i];
        if (i && r->thread[at] != r->thread[order[i - 1]]) depth = 0;
        while (depth && r->end[open[depth - 1]] <= r->start[at]) depth--;
        p->outer[at] = depth ? open[depth - 1] : NO_PLACE;
        open[depth++] = (uint32_t)at;
    }
    free(open);
}

void stage_paths_init(struct stage_paths *p, const struct process *process, const size_t *order, size_t count,
                      const uint32_t *outer, bool *left_out)
{
    size_t ranges = process->ranges.table.count;
    *p = (struct stage_paths){.ranges = &process->ranges, .left_out = left_out};
    p->outer = no_places(ranges);
    p->up = no_places(ranges);
    p->jump = no_places(ranges);
    p->height = mem_zero(ranges, sizeof *p->height);
    if (!outer) find_outer(p, order, count);
    for (size_t i = 0; i < count; i++) { /* `order` has outer stages first */
        uint32_t at = (uint32_t)order[i], around = outer ? outer[at] : p->outer[at];
        if (around != NO_PLACE && !counts(p, around)) around = p->outer[around];
        p->outer[at] = around;
        if (counts(p, at)) link_up(p, at, open_from(p, around, p->ranges->end[at]));
    }
}

void stage_paths_free(struct stage_paths *p)
{
    free(p->left_out);
    free(p->outer);
    free(p->up);
    free(p->jump);
    free(p->height);
    *p = (struct stage_paths){0};
}

uint32_t stages_around(const struct stage_paths *p, uint32_t stage, int64_t time)
{
    return stage == NO_PLACE ? NO_PLACE : open_from(p, p->outer[stage], time);
}

uint32_t stage_or_around(const struct stage_paths *p, uint32_t stage, int64_t time)
{
    return stage == NO_PLACE || counts(p, stage) ? stage : open_from(p, p->outer[stage], time);
}
