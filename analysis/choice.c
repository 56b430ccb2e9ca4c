/* choice.c - which of a process's stages and device work an answer is about. */
#include "choice.h"

#include <math.h>
#include <stdlib.h>

/* When the steps were open that --step lists. */
static void find_steps(struct choice *choice, const struct session *session)
{
    const struct ranges *r = &choice->process->ranges;
    for (size_t i = 0; i < r->table.count; i++) {
        if (r->step[i] != NO_PLACE && list_has(&session->options.step, (int64_t)r->step[i])) {
            intervals_add(&choice->steps, r->start[i], r->end[i]);
        }
    }
    intervals_merge(&choice->steps);
}

void choice_init(struct choice *choice, const struct session *session, const struct process *process,
                 const struct attribution *attribution)
{
    const struct options *options = &session->options;
    *choice = (struct choice){.process = process, .attribution = attribution};
    session_window(session, &choice->window.from, &choice->window.to);
    choice->lane = mem_zero(process->lanes, sizeof *choice->lane);
    for (size_t i = 0; i < process->lanes; i++) {
        choice->lane[i] =
            list_has(&options->device, process->lane[i].device) && list_has(&options->stream, process->lane[i].stream);
    }
    choice->by_step = options->step.count != 0;
    if (choice->by_step) {
        find_steps(choice, session);
    }
}

void choice_free(struct choice *choice)
{
    free(choice->lane);
    intervals_free(&choice->steps);
    *choice = (struct choice){0};
}

static bool in_step(const struct choice *choice, int64_t time)
{
    size_t low = 0, high = choice->steps.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (choice->steps.interval[middle].start <= time) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low && choice->steps.interval[low - 1].end > time;
}

bool choice_work(const struct choice *choice, size_t work, struct interval *when)
{
    const struct works *w = &choice->process->works;
    if (!IS_WORK(w->class[work]) || !choice->lane[w->lane[work]]) {
        return false;
    }
    if (choice->by_step) {
        const struct attribution *a = choice->attribution;
        bool launched = a->launch[work] != NO_PLACE || a->operator[work] != NO_PLACE;
        if (!launched || !in_step(choice, a->work[work].time)) {
            return false;
        }
    }
    when->start = MAX(w->start[work], choice->window.from);
    when->end = MIN(w->end[work], choice->window.to);
    /* What took no time is at one moment. */
    return when->start < when->end || (when->start == when->end && w->start[work] == w->end[work]);
}

bool choice_stage(const struct choice *choice, size_t range)
{
    const struct ranges *r = &choice->process->ranges;
    if (r->start[range] >= choice->window.to || r->end[range] < choice->window.from ||
        (r->end[range] == choice->window.from && r->start[range] < choice->window.from)) {
        return false;
    }
    return !choice->by_step || in_step(choice, r->start[range]);
}

bool is_filtered(const struct session *session)
{
    const struct options *o = &session->options;
    return o->stage.count || o->step.count || o->device.count || o->stream.count || !isnan(o->from) || !isnan(o->to);
}
