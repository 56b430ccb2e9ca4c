/* sum.c - what a critical path is bound by, and its nodes. */
#include <math.h>
#include <stdlib.h>

#include "ask/critical/critical.h"

static uint32_t name_of(const struct process *p, struct names *names, const struct critical_event *event)
{
    if (event->source == FROM_SPAN) return p->spans.name[event->place];
    if (event->source == FROM_WORK) return p->works.name[event->place];
    if (event->source == FROM_RANGE) return p->ranges.name[event->place];
    const char *name = p->func[p->calls.func[event->place]].name;
    return names_add(names, name, __builtin_strlen(name));
}

static uint32_t thread_of(const struct process *p, const struct critical_event *event)
{
    return event->source == FROM_SPAN    ? p->spans.thread[event->place]
           : event->source == FROM_RANGE ? p->ranges.thread[event->place]
                                         : p->calls.thread[event->place];
}

static uint32_t number_of(const struct process *p, const struct critical_event *event)
{
    if (event->source == FROM_SPAN) return p->numbers.span ? p->numbers.span[event->place] : NO_PLACE;
    if (event->source == FROM_WORK) return p->numbers.work ? p->numbers.work[event->place] : NO_PLACE;
    return NO_PLACE;
}

static struct critical_step step_of(const struct critical_path *path, const struct process *p, struct names *names,
                                    uint32_t node)
{
    const struct critical_event *event = &path->events.event[NODE_EVENT(node)];
    struct critical_step step = {.time = critical_time(&path->events, node),
                                 .device = -1,
                                 .stream = -1,
                                 .name = name_of(p, names, event),
                                 .number = number_of(p, event),
                                 .is_end = NODE_IS_END(node),
                                 .is_work = event->source == FROM_WORK,
                                 .is_first = true};
    if (step.is_work) {
        const struct lane *lane = &p->lane[p->works.lane[event->place]];
        step.device = lane->device;
        step.stream = lane->stream;
    } else {
        const struct thread *thread = find_thread(p, thread_of(p, event));
        step.tid = thread ? thread->tid : 0;
    }
    return step;
}

static void take_steps(struct critical_sum *sum, const struct critical_path *path, const struct process *p,
                       struct names *names)
{
    sum->step = mem_zero(path->steps + 1, sizeof *sum->step);
    sum->step[0] = step_of(path, p, names, path->graph.edge[path->path[0]].from);
    for (size_t i = 0; i < path->steps; i++) {
        const struct critical_edge *edge = &path->graph.edge[path->path[i]];
        struct critical_step *step = &sum->step[i + 1];
        *step = step_of(path, p, names, edge->to);
        step->is_first = false;
        step->weight = edge->weight;
        step->type = edge->type;
        step->bound = edge->bound;
    }
}

struct critical_sum *critical_sum_of(const struct critical_path *path, const struct process *process,
                                     struct names *names, bool with_steps)
{
    struct critical_sum *sum = mem_zero(1, sizeof *sum);
    *sum = (struct critical_sum){.rank = process->rank,
                                 .failure = path->failure,
                                 .events = path->events.count,
                                 .nodes = path->nodes,
                                 .edges = path->graph.count,
                                 .steps = path->steps};
    for (size_t i = 0; i < path->steps; i++) {
        const struct critical_edge *edge = &path->graph.edge[path->path[i]];
        sum->length = add_ns(sum->length, edge->weight);
        if (edge->bound != BOUND_NONE) sum->total[edge->bound] = add_ns(sum->total[edge->bound], edge->weight);
    }
    if (path->steps) {
        const struct critical_edge *edge = path->graph.edge;
        sum->span = add_ns(critical_time(&path->events, edge[path->path[path->steps - 1]].to),
                           -critical_time(&path->events, edge[path->path[0]].from));
        if (with_steps) take_steps(sum, path, process, names);
    }
    return sum;
}

void critical_sum_free(void *sum)
{
    struct critical_sum *of = sum;
    if (of) free(of->step);
    free(of);
}

/* ---- the reduction ---- */

/* --from and --to count from the first record of all inputs; a trace that is written again needs whole processes. */
static bool stands_alone(const struct options *options)
{
    return !options->overlay && isnan(options->from) && isnan(options->to);
}

static void *reduce_critical(struct scope *scope)
{
    const struct selection *chosen = scope->chosen;
    struct critical_path path;
    critical_path_of(&path, scope);
    struct critical_sum *sum = critical_sum_of(&path, scope->process, &chosen->model->names, chosen->options->nodes);
    critical_path_free(&path);
    return sum;
}

const struct needs critical_needs = {.device = true,
                                     .ranges = true,
                                     .launches = true,
                                     .operators = true,
                                     .calls = true,
                                     .details = true,
                                     .collectives = true,
                                     .waited = true,
                                     .event_numbers = true,
                                     .stream = STREAM_HELD};
const struct reduction critical_reduction = {stands_alone, reduce_critical, critical_sum_free};
