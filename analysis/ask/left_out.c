/* left_out.c - tells where records of device work were left out of a trace. */
#include "ask/left_out.h"

#include <stdlib.h>
#include <string.h>

#include "ask/stages/order.h"

static void add_stage(struct left_out *left, uint32_t name)
{
    if (map_get(&left->stages, name) != MAP_NONE) return;
    left->stage = mem_grow(left->stage, &left->stage_capacity, left->stage_count + 1, sizeof *left->stage);
    left->stage[left->stage_count++] = name;
    map_put(&left->stages, name, 1);
}

static void add_sums(struct left_out *left, const struct choice *choice)
{
    const struct process *p = choice->process;
    const struct stage_times *t = &p->stage_times;
    struct map ranges = {0};
    ranges_by_id(&ranges, p);
    for (size_t i = 0; i < t->table.count; i++) {
        uint32_t range = map_get(&ranges, t->range[i]);
        bool outside = range == MAP_NONE;
        struct belonging at = {outside ? t->start[i] : p->ranges.start[range], outside ? NO_PLACE : range, 0};
        bool in_window = t->start[i] < choice->window.to && t->end[i] > choice->window.from;
        if (t->busy[i] < 0 || !choice->lane[t->lane[i]] || !in_window) continue;
        intervals_add(&left->lane[t->lane[i]], t->start[i], t->end[i]);
        if (!choice_belonging(choice, &at)) continue;
        intervals_add(&left->work, t->start[i], t->end[i]);
        intervals_add(&left->held, MIN(at.time, t->start[i]), t->end[i]);
        add_stage(left, outside ? choice->outside : p->ranges.name[range]);
        left->count++;
    }
    map_free(&ranges);
}

void left_out_init(struct left_out *left, const struct choice *choice)
{
    const struct process *p = choice->process;
    *left = (struct left_out){.by_stage = selects_stages(p)};
    if (!p->stage_times.table.count) return;
    left->lanes = p->lanes;
    left->lane = mem_zero(p->lanes, sizeof *left->lane);
    add_sums(left, choice);
    intervals_merge(&left->work);
    intervals_merge(&left->held);
    for (size_t i = 0; i < left->lanes; i++) intervals_merge(&left->lane[i]);
    left->pauses = intervals_union(&choice->off, &choice->warmup);
}

void left_out_free(struct left_out *left)
{
    for (size_t i = 0; i < left->lanes; i++) intervals_free(&left->lane[i]);
    free(left->lane);
    free(left->stage);
    map_free(&left->stages);
    intervals_free(&left->work);
    intervals_free(&left->held);
    intervals_free(&left->pauses);
    *left = (struct left_out){0};
}

static bool meets(const struct intervals *set, struct interval when)
{
    size_t at = intervals_after(set, when.start);
    return at < set->count && set->interval[at].start < when.end;
}

bool left_out_of(const struct left_out *left, struct interval work, uint32_t lane)
{
    if (work.start > work.end) return left->count > 0;
    if (left->by_stage) return left->lanes && meets(lane == NO_PLACE ? &left->work : &left->lane[lane], work);
    for (size_t i = intervals_after(&left->pauses, work.start); left->count && i < left->pauses.count; i++) {
        const struct interval *pause = &left->pauses.interval[i];
        if (pause->start > work.start) return pause->end < work.end;
    }
    return false;
}

bool left_out_during(const struct left_out *left, struct interval when)
{
    return left->count && meets(left->by_stage ? &left->held : &left->pauses, when);
}

void left_out_describe(struct text *text, const struct process *process)
{
    const char *names = process->names_asked;
    uint64_t records = 0;
    bool paused = false;
    for (size_t i = 0; i < process->loss_count; i++) {
        const struct loss *loss = &process->losses[i];
        if (strcmp(loss->cause, "device_summed") == 0 || strcmp(loss->cause, "device_outside") == 0)
            records += loss->count;
    }
    for (size_t i = 0; i < process->switchings; i++) paused |= process->switching[i].state != RECORDING_ON;
    if (selects_stages(process) && *names) text_format(text, "detail of stages %s only", names);
    else if (selects_stages(process)) text_puts(text, "detail of no stage");
    if (paused) text_format(text, "%sdetail of a part of the time only", text->length ? ", " : "");
    if (records)
        text_format(text, "%s%llu device records left out", text->length ? ", " : "", (unsigned long long)records);
}

/* ---- rows of several processes ---- */

void left_rows_add(struct left_rows *rows, const struct process *process, const struct left_out *left,
                   struct interval work)
{
    if (!left_out_of(left, work, NO_PLACE)) return;
    rows->any = true;
    map_put(&rows->rank, (uint64_t)process->rank, 1);
    for (size_t i = 0; i < left->stage_count && left->by_stage; i++)
        map_put(&rows->stage, (uint64_t)process->rank << 32 | left->stage[i], 1);
}

bool left_rows_rank(const struct left_rows *rows, int64_t rank)
{
    return map_get(&rows->rank, (uint64_t)rank) != MAP_NONE;
}

bool left_rows_stage(const struct left_rows *rows, int64_t rank, uint32_t stage)
{
    return map_get(&rows->stage, (uint64_t)rank << 32 | stage) != MAP_NONE;
}

void left_rows_free(struct left_rows *rows)
{
    map_free(&rows->rank);
    map_free(&rows->stage);
}
