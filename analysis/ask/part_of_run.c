/* part_of_run.c - loads the operators and blocks that a question about a part of a run needs, and leaves the others in the file.
 *
 * A part is more than what the filters choose, never less: all times of a chosen stage on any thread, as an operator
 * may belong to a stage of another thread. At the edges of ranges in the part the operators are loaded too, since a
 * range is drawn in another way if it crosses one.
 */
#include "ask/part_of_run.h"

#include <math.h>

#include "ask/choice.h"
#include "base/sets/measure.h"
#include "model/sweep/load_windows.h"

/* True if an option asks for some times only: a window, stages, steps or cycles. */
static bool part_is_asked(const struct options *options)
{
    return options->stage.count || options->step.count || options->cycle.count || !isnan(options->from) ||
           !isnan(options->to);
}

struct needs part_needs(const struct options *options, struct needs needs)
{
    if (needs.stream == STREAM_PART && !part_is_asked(options)) needs.stream = STREAM_HELD;
    return needs;
}

/* Keeps only what another merged set has too. */
static void restrict_to(struct intervals *when, const struct intervals *other)
{
    struct intervals common = intervals_common(when, other);
    intervals_free(when);
    *when = common;
}

static void restrict_to_stages(struct intervals *when, const struct selection *chosen, const struct ranges *r)
{
    struct intervals stages = {0};
    for (size_t i = 0; i < r->table.count; i++)
        if (selection_wants(chosen, r->name[i])) intervals_add_merging(&stages, r->start[i], add_ns(r->end[i], 1));
    intervals_merge(&stages);
    restrict_to(when, &stages);
    intervals_free(&stages);
}

static void add_edges(struct intervals *when, const struct ranges *r)
{
    struct intervals edges = {0};
    for (size_t i = 0; i < r->table.count; i++) {
        size_t at = intervals_after(when, r->start[i]);
        if (at == when->count || when->interval[at].start > r->end[i]) continue;
        intervals_add_merging(&edges, r->start[i], add_ns(r->start[i], 1));
        intervals_add_merging(&edges, r->end[i], add_ns(r->end[i], 1));
    }
    intervals_merge(&edges);
    struct intervals both = intervals_union(when, &edges);
    intervals_free(when);
    intervals_free(&edges);
    *when = both;
}

struct intervals part_times(const struct selection *chosen, const struct process *process)
{
    struct intervals when = {0};
    struct choice choice;
    choice_init(&choice, chosen, process);
    intervals_add(&when, choice.window.from, choice.window.to);
    if (choice.by_step) restrict_to(&when, &choice.steps);
    if (choice.by_cycle) restrict_to(&when, &choice.cycles);
    if (choice.by_stage && !choice.outside_wanted) restrict_to_stages(&when, chosen, &process->ranges);
    choice_free(&choice);
    return when;
}

void part_load(const struct selection *chosen, struct inputs *inputs)
{
    struct model *model = chosen->model;
    for (size_t i = 0; i < chosen->processes; i++) {
        struct process *process = &model->process[chosen->process[i] - model->process];
        if (!process->in_file.trace) continue;
        struct intervals when = part_times(chosen, process);
        add_edges(&when, &process->ranges);
        load_windows(process, &model->names, &when, chosen->options->stage.count != 0,
                     &inputs->input[process->input].notes);
        intervals_free(&when);
    }
}
