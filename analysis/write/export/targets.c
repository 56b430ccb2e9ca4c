/* targets.c - chooses the events of an export by time and stage, and gives them to the outputs they belong to. */
#include "write/export/targets.h"

#include <stdlib.h>

#include "ask/stages/order.h"

/* Returns the bit of the target of this stage's name; 0 if it has none. */
static uint64_t bit_of(const struct targets *targets, uint32_t stage)
{
    uint32_t target = targets->of_name[targets->process->ranges.name[stage]];
    return target == NO_PLACE ? 0 : UINT64_C(1) << target;
}

static void find_targets(struct targets *targets)
{
    const struct attribution *a = targets->attribution;
    const struct ranges *r = &targets->process->ranges;
    targets->of_stage = mem_zero(r->table.count, sizeof *targets->of_stage);
    targets->all_until = mem_zero(r->table.count, sizeof *targets->all_until);
    for (size_t i = 0; i < r->table.count; i++) {
        targets->of_stage[i] = bit_of(targets, (uint32_t)i);
        targets->all_until[i] = INT64_MAX;
    }
    for (size_t i = 0; i < a->stages; i++) { /* the order has outer stages first */
        size_t at = a->order[i];
        uint32_t outer = a->paths.outer[at];
        if (outer == NO_PLACE) continue;
        targets->of_stage[at] |= targets->of_stage[outer];
        targets->all_until[at] = MIN(targets->all_until[outer], r->end[outer]);
    }
    targets->paths = mem_zero(targets->count, sizeof *targets->paths);
}

void targets_begin(struct targets *targets, const struct process *process, const struct attribution *attribution)
{
    targets->process = process;
    targets->attribution = attribution;
    for (size_t i = 0; i < targets->count; i++) {
        const struct event_taker *taker = &targets->target[i].taker;
        targets->by_stage |= !targets->target[i].whole;
        if (taker->begin) taker->begin(taker->context, process, process->pid);
    }
    if (targets->by_stage) find_targets(targets);
}

static void give_event_to_target(struct targets *targets, struct target *target, const struct event *event)
{
    if (target->seen == targets->number) return;
    target->seen = targets->number;
    target->events += event->phase != 'M';
    target->taker.event(target->taker.context, event);
}

static bool in_window(const struct targets *targets, const struct event *event)
{
    if (event->phase == 'M' || (targets->from == INT64_MIN && targets->to == INT64_MAX)) return true;
    int64_t end = event->has & HAS_DUR ? add_ns(event->ts, event->dur) : event->ts;
    return event->has & HAS_TS && event->ts < targets->to && end >= targets->from;
}

/* True if a stage of the target was open at `time`. A stage around this one may end earlier, as ranges may cross. */
static bool is_open(struct targets *targets, uint32_t target, uint32_t stage, int64_t time)
{
    struct stage_paths *paths = &targets->paths[target];
    if (!paths->ranges) *paths = chosen_paths(targets->attribution, targets->of_name, target);
    return stage_or_around(paths, stage, time) != NO_PLACE;
}

void targets_event(struct targets *targets, const struct event *event, bool is_kept, const struct belonging *at)
{
    targets->number++;
    if (!in_window(targets, event)) return;
    for (size_t i = 0; i < targets->count; i++) {
        struct target *target = &targets->target[i];
        if (target->taker.only_kept && !is_kept) continue;
        if (target->whole || event->phase == 'M') give_event_to_target(targets, target, event);
    }
    uint64_t of_stage = at && at->stage != NO_PLACE ? targets->of_stage[at->stage] : 0;
    for (; of_stage; of_stage &= of_stage - 1) {
        uint32_t target = (uint32_t)__builtin_ctzll(of_stage);
        if (targets->all_until[at->stage] > at->time || is_open(targets, target, at->stage, at->time))
            give_event_to_target(targets, &targets->target[target], event);
    }
}

void targets_member(struct targets *targets, struct slice key, struct slice value)
{
    for (size_t i = 0; i < targets->count; i++) {
        const struct event_taker *taker = &targets->target[i].taker;
        if (taker->member) taker->member(taker->context, key, value);
    }
}

void targets_end(struct targets *targets)
{
    for (size_t i = 0; i < targets->count; i++) {
        const struct event_taker *taker = &targets->target[i].taker;
        if (taker->end) taker->end(taker->context);
        if (targets->paths) stage_paths_free(&targets->paths[i]);
    }
    free(targets->paths);
    free(targets->of_stage);
    free(targets->all_until);
}
