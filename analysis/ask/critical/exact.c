/* exact.c - builds the graph of a critical path by the exact rules.
 *
 * It is the graph of HTA 0.5.0's critical_path_analysis with these differences. Times stay as recorded. All launches
 * count, and the last step does. The time between two outermost events of a thread is the host's (exact_threads.c). Our
 * own calls tell what a call or a piece of work waits for (exact_follow.c); else the profiler's waits do, or the times
 * (exact_waits.c). A call that waits counts from the moment at which the device was ready.
 */
#include <stdlib.h>
#include <string.h>

#include "ask/critical/exact_parts.h"

/* ---- the window ---- */

static void widen(struct interval *window, int64_t start, int64_t end)
{
    window->start = MIN(window->start, start);
    window->end = MAX(window->end, end);
}

/* Finds the span of time that --stage, --step and --cycle choose: from the first start to the last end of what they name.
 * Returns false if they name nothing. */
static bool find_window(const struct scope *scope, struct interval *window)
{
    const struct ranges *r = &scope->process->ranges;
    const struct choice *choice = &scope->choice;
    struct interval named = {INT64_MAX, INT64_MIN};
    bool is_run = choice->outside == NAME_RUN && choice->outside_wanted; /* without stages `(run)` is all of it */
    bool by_stage = choice->by_stage && !is_run;
    for (size_t i = 0; i < r->table.count && by_stage; i++)
        if (selection_wants(scope->chosen, r->name[i]) && choice_stage(choice, i))
            widen(&named, r->start[i], r->end[i]);
    for (size_t i = 0; i < choice->steps.count && choice->by_step && !by_stage; i++)
        widen(&named, choice->steps.interval[i].start, choice->steps.interval[i].end);
    for (size_t i = 0; i < choice->cycles.count && choice->by_cycle && !by_stage && !choice->by_step; i++)
        widen(&named, choice->cycles.interval[i].start, choice->cycles.interval[i].end);
    bool by_name = by_stage || choice->by_step || choice->by_cycle;
    *window = by_name ? named : (struct interval){INT64_MIN, INT64_MAX};
    window->start = MAX(window->start, choice->window.from);
    window->end = MIN(window->end, choice->window.to - (choice->window.to != INT64_MAX)); /* --to is open */
    return window->start <= window->end;
}

/* ---- events ---- */

static bool starts_within(const struct exact *x, int64_t start)
{
    return start >= x->window.start && start <= x->window.end && choice_in_steps(x->choice, start);
}

static uint32_t add_host(struct exact *x, struct critical_event event, uint32_t thread)
{
    if (!starts_within(x, event.start)) return NO_PLACE;
    event.end = MAX(event.start, event.end);
    uint32_t number = critical_event(&x->path->events, event);
    host_row(&x->rows, (struct host_row){event.start, event.end, thread, number});
    return number;
}

static bool is_loader(const struct exact *x, uint32_t name)
{
    const struct name *text = names_get(x->names, name);
    static const char begins[] = "enumerate(DataLoader)#";
    return text->length >= sizeof begins - 1 && memcmp(text->text, begins, sizeof begins - 1) == 0;
}

static void take_hosts(struct exact *x)
{
    const struct process *p = x->process;
    const struct spans *s = &p->spans;
    const struct calls *c = &p->calls;
    for (size_t i = 0; i < p->ranges.table.count; i++) /* before the rest: they are outside of equally long ones */
        if (is_loader(x, p->ranges.name[i]))
            add_host(x,
                     (struct critical_event){p->ranges.start[i], p->ranges.end[i], (uint32_t)i, FROM_RANGE, true, false,
                                             false},
                     p->ranges.thread[i]);
    for (size_t i = 0; i < s->table.count; i++)
        if (s->event_class[i] == CLASS_OPERATOR || s->event_class[i] == CLASS_API)
            x->event_of_span[i] = add_host(x,
                                           (struct critical_event){s->start[i], s->end[i], (uint32_t)i, FROM_SPAN,
                                                                   is_loader(x, s->name[i]), false, false},
                                           s->thread[i]);
    for (size_t i = 0; i < c->table.count; i++)
        x->event_of_call[i] =
            c->span[i] != NO_PLACE
                ? x->event_of_span[c->span[i]]
                : add_host(x,
                           (struct critical_event){c->start[i], c->end[i], (uint32_t)i, FROM_CALL, false, false, false},
                           c->thread[i]);
}

static void take_works(struct exact *x)
{
    const struct works *w = &x->process->works;
    for (size_t i = 0; i < w->table.count; i++)
        if (IS_WORK(w->event_class[i]) && starts_within(x, exact_launched(x, (uint32_t)i)))
            x->event_of_work[i] =
                critical_event(&x->path->events, (struct critical_event){w->start[i], MAX(w->start[i], w->end[i]),
                                                                         (uint32_t)i, FROM_WORK, false, false, false});
}

/* ---- the path ---- */

/* Drops the edges between threads and devices that do not lead forward in time. */
static void drop_backward(struct critical_path *path)
{
    struct critical_graph *graph = &path->graph;
    size_t kept = 0;
    for (size_t i = 0; i < graph->count; i++) {
        const struct critical_edge *edge = &graph->edge[i];
        bool crosses = edge->type == EDGE_LAUNCH || edge->type == EDGE_SYNC || edge->type == EDGE_GAP;
        if (!crosses || critical_time(&path->events, edge->from) < critical_time(&path->events, edge->to))
            graph->edge[kept++] = *edge;
    }
    graph->count = kept;
}

void critical_path_of(struct critical_path *path, struct scope *scope)
{
    const struct process *process = scope->process;
    struct exact x = {.path = path, .process = process, .names = &scope->chosen->model->names};
    *path = (struct critical_path){0};
    if (!find_window(scope, &x.window)) return;
    x.choice = &scope->choice;
    x.attribution = scope_attribute(scope);
    if (left_out_during(scope_left_out(scope), x.window)) {
        path->failure =
            "records of device work in it were left out (ENABLE_PROFILER_NAMES, TFI_SCHEDULE or TFI_CAPTURE)";
        return;
    }
    x.event_of_span = no_places(process->spans.table.count);
    x.event_of_call = no_places(process->calls.table.count);
    x.event_of_work = no_places(process->works.table.count);
    take_hosts(&x);
    take_works(&x);
    x.known = mem_zero(path->events.count, sizeof *x.known);
    exact_follow(&x);
    exact_waits(&x);
    host_edges(&path->graph, &path->events, &x.rows, &x.tops);
    exact_threads(&x);
    exact_peers(&x);
    exact_works(&x);
    path->nodes = 2 * path->events.count;
    path->steps = critical_longest(&path->graph, path->nodes, &path->path);
    if (path->steps == SIZE_MAX) { /* two clocks differ, or the trace is damaged */
        drop_backward(path);
        path->steps = critical_longest(&path->graph, path->nodes, &path->path);
    }
    if (path->steps == SIZE_MAX) {
        path->failure = "the times of its events contradict each other";
        path->steps = 0;
    }
    free(x.event_of_span);
    free(x.event_of_call);
    free(x.event_of_work);
    free(x.known);
    free(x.rows.row);
    free(x.tops.top);
    free(x.works.one);
    free(x.hosts.one);
}

void critical_path_free(struct critical_path *path)
{
    free(path->events.event);
    intervals_free(&path->peers.times);
    free(path->peers.collective);
    critical_graph_free(&path->graph);
    free(path->path);
    *path = (struct critical_path){0};
}
