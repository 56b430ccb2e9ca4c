/* choice.c - applies the filters by time, step, cycle, device, stream and stage to a process's items. */
#include "ask/choice.h"

#include <math.h>
#include <stdlib.h>

#include "ask/stages/order.h"

/* Collects the intervals of the steps that --step lists. */
static void find_steps(struct choice *choice, const struct list *step)
{
    const struct ranges *r = &choice->process->ranges;
    for (size_t i = 0; i < r->table.count; i++)
        if (r->step[i] != NO_PLACE && list_has(step, (int64_t)r->step[i]))
            intervals_add(&choice->steps, r->start[i], r->end[i]);
    intervals_merge(&choice->steps);
}

/* Collects the intervals of each recording state. Recording is assumed to be on before the first switch. */
static void find_states(struct choice *choice, const struct list *cycle)
{
    const struct process *p = choice->process;
    for (size_t i = 0; i < p->switchings; i++) {
        const struct switching *from = &p->switching[i];
        int64_t until = i + 1 < p->switchings ? from[1].time : INT64_MAX;
        struct intervals *of_state = from->state == RECORDING_WARMUP ? &choice->warmup
                                     : from->state == RECORDING_OFF  ? &choice->off
                                     : list_has(cycle, from->cycle)  ? &choice->cycles
                                                                     : NULL;
        if (of_state) intervals_add(of_state, from->time, until);
    }
    intervals_merge(&choice->warmup);
    intervals_merge(&choice->off);
    intervals_merge(&choice->cycles);
}

bool choice_needs_launches(const struct options *options, const struct process *process)
{
    bool needs = options->step.count || options->cycle.count || options->stage.count;
    for (size_t i = 0; i < process->switchings; i++) needs |= process->switching[i].state == RECORDING_WARMUP;
    return needs;
}

/* Marks the calls that launched work on the chosen lanes. */
static void find_calls(struct choice *choice)
{
    const struct process *p = choice->process;
    const struct works *w = &p->works;
    choice->launches = mem_zero(p->spans.table.count, sizeof *choice->launches);
    for (size_t i = 0; i < w->table.count; i++) {
        uint32_t launch = choice->attribution->launch[i];
        if (launch != NO_PLACE && IS_WORK(w->event_class[i]) && choice->lane[w->lane[i]])
            choice->launches[launch] = true;
    }
}

void choice_init(struct choice *choice, const struct selection *chosen, const struct process *process)
{
    const struct options *options = chosen->options;
    *choice = (struct choice){.process = process, .options = options};
    selection_window(chosen, &choice->window.from, &choice->window.to);
    if (isnan(options->from) && process->ring.chunks) choice->window.from = (int64_t)process->ring.since;
    choice->lane = mem_zero(process->lanes, sizeof *choice->lane);
    for (size_t i = 0; i < process->lanes; i++)
        choice->lane[i] = choice_lane(choice, process->lane[i].device, process->lane[i].stream);
    choice->by_step = options->step.count != 0;
    if (choice->by_step) find_steps(choice, &options->step);
    choice->by_cycle = options->cycle.count != 0;
    find_states(choice, &options->cycle);
    choice->by_lane = options->device.count || options->stream.count;
    choice->by_stage = options->stage.count != 0;
    choice->outside = has_stages(process) ? NAME_OUTSIDE : NAME_RUN;
    choice->outside_wanted = selection_wants(chosen, choice->outside);
}

void choice_attribute(struct choice *choice, const struct selection *chosen, const struct attribution *attribution)
{
    choice->attribution = attribution;
    if (choice->by_lane) find_calls(choice);
    if (choice->by_stage) choice->paths = chosen_paths(attribution, chosen->stages, 0);
}

void choice_free(struct choice *choice)
{
    free(choice->lane);
    free(choice->launches);
    stage_paths_free(&choice->paths);
    intervals_free(&choice->steps);
    intervals_free(&choice->cycles);
    intervals_free(&choice->warmup);
    intervals_free(&choice->off);
    *choice = (struct choice){0};
}

static bool is_in(const struct intervals *set, int64_t time)
{
    return set->count && intervals_hold(set, time, time);
}

/* True if `time` lies in the chosen steps and cycles; without --step and --cycle, if it does not lie in warm-up. */
static bool is_asked_for(const struct choice *choice, int64_t time)
{
    return choice_in_steps(choice, time) && (choice->by_step || choice->by_cycle || !is_in(&choice->warmup, time));
}

bool choice_in_stage(const struct choice *choice, const struct belonging *at)
{
    if (!choice->by_stage || at->stage == NO_PLACE) return choice->outside_wanted;
    return stage_or_around(&choice->paths, at->stage, at->time) != NO_PLACE;
}

bool choice_stage_name(const struct choice *choice, const struct belonging *at, uint32_t *name)
{
    *name = choice->outside;
    if (at->stage == NO_PLACE) return choice->outside_wanted;
    uint32_t stage = stage_or_around(&choice->paths, at->stage, at->time);
    if (stage != NO_PLACE) *name = choice->process->ranges.name[stage];
    return stage != NO_PLACE;
}

bool choice_in_steps(const struct choice *choice, int64_t launched)
{
    return (!choice->by_step || is_in(&choice->steps, launched)) &&
           (!choice->by_cycle || is_in(&choice->cycles, launched));
}

bool choice_belonging(const struct choice *choice, const struct belonging *at)
{
    return choice_in_steps(choice, at->time) && choice_in_stage(choice, at);
}

bool choice_lane(const struct choice *choice, int64_t device, int64_t stream)
{
    return list_has(&choice->options->device, device) && list_has(&choice->options->stream, stream);
}

bool choice_launched(const struct choice *choice, uint32_t span)
{
    return !choice->by_lane || (span != NO_PLACE && choice->launches[span]);
}

bool choice_call(const struct choice *choice, int64_t start, uint32_t span)
{
    return start >= choice->window.from && start < choice->window.to && is_asked_for(choice, start) &&
           choice_launched(choice, span);
}

bool choice_moment(const struct choice *choice, int64_t start, int64_t launched)
{
    bool in_window = start < choice->window.to && start >= choice->window.from;
    return in_window && is_asked_for(choice, launched) && !is_in(&choice->off, launched);
}

bool choice_stage_work_at_any_time(const struct choice *choice, size_t work)
{
    const struct works *w = &choice->process->works;
    const struct attribution *a = choice->attribution;
    if (!IS_WORK(w->event_class[work]) || !choice->lane[w->lane[work]]) return false;
    if (!choice->by_step && !choice->by_cycle) return true;
    bool launched = a->launch[work] != NO_PLACE || a->op[work] != NO_PLACE;
    return launched && choice_in_steps(choice, a->work[work].time);
}

bool choice_work_at_any_time(const struct choice *choice, size_t work)
{
    if (!choice_stage_work_at_any_time(choice, work)) return false;
    if (choice->by_step || choice->by_cycle || !choice->warmup.count) return true;
    const struct attribution *a = choice->attribution;
    bool launched = a->launch[work] != NO_PLACE || a->op[work] != NO_PLACE;
    return !is_in(&choice->warmup, launched ? a->work[work].time : choice->process->works.start[work]);
}

static bool cut_to_window(const struct choice *choice, size_t work, struct interval *when)
{
    const struct works *w = &choice->process->works;
    when->start = MAX(w->start[work], choice->window.from);
    when->end = MIN(w->end[work], choice->window.to);
    /* Work of zero length is a single moment and stays chosen. */
    return when->start < when->end || (when->start == when->end && w->start[work] == w->end[work]);
}

bool choice_work(const struct choice *choice, size_t work, struct interval *when)
{
    return choice_work_at_any_time(choice, work) && cut_to_window(choice, work, when);
}

bool choice_stage_work(const struct choice *choice, size_t work, struct interval *when)
{
    return choice_stage_work_at_any_time(choice, work) && cut_to_window(choice, work, when);
}

bool choice_has_steps(const struct choice *choice)
{
    return (!choice->by_step || choice->steps.count) && (!choice->by_cycle || choice->cycles.count);
}

bool choice_stage(const struct choice *choice, size_t range)
{
    const struct ranges *r = &choice->process->ranges;
    if (r->start[range] >= choice->window.to || r->end[range] < choice->window.from ||
        (r->end[range] == choice->window.from && r->start[range] < choice->window.from))
        return false;
    return (!choice->by_step || is_in(&choice->steps, r->start[range])) &&
           (!choice->by_cycle || is_in(&choice->cycles, r->start[range]));
}
