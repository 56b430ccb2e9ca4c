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

/* Adds a node, and the edge that leads to it, to the sums. */
static void add_step(struct critical_sum *sum, const struct critical_step *step)
{
    if (sum->with_steps) {
        sum->step = mem_grow(sum->step, &sum->step_capacity, sum->listed + 1, sizeof *sum->step);
        sum->step[sum->listed++] = *step;
    }
    if (step->is_first) return;
    sum->steps++;
    sum->length = add_ns(sum->length, step->weight);
    if (step->bound != BOUND_NONE) sum->total[step->bound] = add_ns(sum->total[step->bound], step->weight);
}

/* ---- times with peers ---- */

/* Returns what an edge of the host and a time with peers share. Waits for the device may have shortened the edge. */
static struct interval shared_with(const struct critical_path *path, const struct critical_edge *edge, size_t peer)
{
    const struct interval *p = &path->peers.times.interval[peer];
    int64_t start = critical_time(&path->events, edge->from);
    return (struct interval){MAX(start, p->start), MIN(add_ns(start, edge->weight), p->end)};
}

static struct critical_step peer_step(const struct critical_path *path, const struct process *p, size_t peer)
{
    const struct collective *c = &p->collectives.collective[path->peers.collective[peer]];
    const struct thread *thread = find_thread(p, c->thread);
    return (struct critical_step){.device = -1,
                                  .stream = -1,
                                  .name = c->name,
                                  .number = NO_PLACE,
                                  .tid = thread ? thread->tid : 0,
                                  .type = EDGE_OPERATOR,
                                  .bound = BOUND_HOST};
}

/* Adds an edge to the sums. With steps, each time with peers has two steps on it. */
static void take_edge(struct critical_sum *sum, const struct critical_path *path, const struct process *p,
                      const struct critical_edge *edge, struct critical_step *last)
{
    const struct intervals *times = &path->peers.times;
    bool may_meet = edge->bound == BOUND_HOST && times->count;
    int64_t at = may_meet ? critical_time(&path->events, edge->from) : 0, end = add_ns(at, edge->weight);
    last->weight = edge->weight;
    for (size_t i = may_meet ? intervals_after(times, at) : times->count; i < times->count; i++) {
        struct interval both = shared_with(path, edge, i);
        if (both.start >= both.end) break;
        struct critical_step begin = peer_step(path, p, i), done = begin;
        begin.time = both.start;
        begin.weight = both.start - at;
        done.time = both.end;
        done.weight = both.end - both.start;
        done.bound = BOUND_PEERS;
        done.is_end = true;
        add_step(sum, &begin);
        add_step(sum, &done);
        at = both.end;
        last->weight = end - at;
    }
    add_step(sum, last);
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
                                 .works = process->works.table.count,
                                 .with_steps = with_steps};
    struct critical_step step = {.is_first = true}; /* without steps only what the sums need of it */
    for (size_t i = 0; i < path->steps; i++) {
        const struct critical_edge *edge = &path->graph.edge[path->path[i]];
        if (with_steps) {
            if (!i) step = step_of(path, process, names, edge->from);
            if (!i) add_step(sum, &step);
            step = step_of(path, process, names, edge->to);
        }
        step.is_first = false;
        step.type = edge->type;
        step.bound = edge->bound;
        take_edge(sum, path, process, edge, &step);
    }
    if (path->steps) {
        const struct critical_edge *edge = path->graph.edge;
        sum->span = add_ns(critical_time(&path->events, edge[path->path[path->steps - 1]].to),
                           -critical_time(&path->events, edge[path->path[0]].from));
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
const struct reduction critical_reduction = {stands_alone, reduce_critical, critical_sum_free, NULL};
