/* hta_build.c - builds the graph of HTA 0.5.0's critical_path_analysis, and fails where HTA fails.
 *
 * - The rows are those of the host that start in the window, and the device rows whose calls do. Rows of the host
 *   without length are left out.
 * - Nodes are the starts and ends of operators, of calls of CUDA's runtime and driver, and of device rows with a stream.
 * - Calls that may wait for the device have no weight. Outermost events of a thread are joined without weight.
 * - A piece of work waits for its launch if it found its stream's queue empty, else for the work before it, or for an
 *   event (Stream Wait Event). Waits of the host lead from the device row before them to the end of the call.
 * - Of a trace with two steps of the profiler or more, only the rows before the last step are there (hta_frame.h).
 */
#include <stdlib.h>
#include <string.h>

#include "ask/critical/critical.h"
#include "ask/critical/hta_parts.h"

/* A hostile trace can make HTA join each of many rows with each of many others. */
enum { MOST_JOINED = 1 << 24 };

enum sync_kind { SYNC_NONE, SYNC_CONTEXT, SYNC_STREAM, SYNC_EVENT, SYNC_WAIT, SYNC_UNKNOWN };

struct last_work {
    int64_t stream;
    uint32_t node;
};

struct builder {
    struct critical_path *path;
    struct hta_links links;
    const struct process *process;
    struct interval window;
    uint32_t *event_of_span, *event_of_work; /* NO_PLACE: none */
    bool *clipped;                           /* by work: a row of the window */
    struct host_rows host;
    struct hta_depths depths;
    struct hta_waits waits;
    bool has_ops, has_calls; /* the categories of these are those that HTA knows */
    struct map waits_for;    /* by work: the work that it waits for because of an event */
    struct map stream_of;    /* index in `last` by stream */
    struct last_work *last;  /* by first appearance */
    size_t lasts, last_capacity;
};

static bool is_kind(const struct process *p, const char *name)
{
    for (size_t i = 0; i < p->kind_count; i++)
        if (strcmp(p->kinds[i].name, name) == 0) return true;
    return !is_of_kineto(p);
}

/* ---- host rows ---- */

static bool is_blocking(const struct builder *b, uint32_t name)
{
    static const char *const names[] = {
        "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventQuery", "cudaEventSynchronize", "cudaMemcpy",
        "cudaMemcpyAsync"};
    bool found = false;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) found |= hta_is_named(&b->links, name, names[i]);
    return found;
}

static bool in_window(const struct builder *b, struct interval when)
{
    return hta_keeps(b->links.frame, when.start) && when.end > when.start && when.start >= b->window.start &&
           when.start <= b->window.end;
}

struct numbered_thread {
    int64_t pid;
    uint64_t tid;
    uint32_t serial;
};

static int by_pid(const void *a, const void *b)
{
    const struct numbered_thread *x = a, *y = b;
    if (x->pid != y->pid) return by_number(x->pid, y->pid);
    return x->tid != y->tid ? (x->tid > y->tid ? 1 : -1) : by_number(x->serial, y->serial);
}

/* Returns a map from serials to the order of threads by pid and tid. */
static struct map order_threads(const struct process *p)
{
    struct map order = {0};
    struct numbered_thread *thread = mem_zero(p->threads, sizeof *thread);
    for (size_t i = 0; i < p->threads; i++)
        thread[i] = (struct numbered_thread){p->thread[i].pid, p->thread[i].tid, p->thread[i].serial};
    if (p->threads) qsort(thread, p->threads, sizeof *thread, by_pid);
    for (size_t i = 0; i < p->threads; i++) map_put(&order, thread[i].serial, (uint32_t)i);
    free(thread);
    return order;
}

static uint32_t span_event(struct builder *b, size_t span, struct interval when)
{
    const struct spans *s = &b->process->spans;
    bool is_op = s->event_class[span] == CLASS_OPERATOR && b->has_ops;
    bool is_call = s->event_class[span] == CLASS_API && b->has_calls;
    if (!is_op && !is_call) return NO_PLACE;
    return critical_event(&b->path->events, (struct critical_event){.start = when.start,
                                                                    .end = when.end,
                                                                    .place = (uint32_t)span,
                                                                    .source = FROM_SPAN,
                                                                    .waits = is_blocking(b, s->name[span])});
}

static void take_host(struct builder *b)
{
    const struct process *p = b->process;
    const struct spans *s = &p->spans;
    struct map order = order_threads(p);
    bool *streamed = mem_zero(s->table.count, sizeof *streamed);
    for (size_t i = 0; i < p->streamed_count; i++) streamed[p->streamed[i]] = true;
    for (size_t i = 0; i < s->table.count; i++) {
        struct interval when = hta_times(p, s->start[i], s->end[i]);
        if (streamed[i] || !in_window(b, when)) continue;
        b->event_of_span[i] = span_event(b, i, when);
        uint32_t tie = p->numbers.span ? p->numbers.span[i] : (uint32_t)i;
        host_row(&b->host,
                 (struct host_row){when.start, when.end, map_get(&order, s->thread[i]), b->event_of_span[i], tie});
    }
    for (size_t i = 0; i < p->ranges.table.count; i++) {
        struct interval when = hta_times(p, p->ranges.start[i], p->ranges.end[i]);
        if (in_window(b, when))
            host_row(&b->host,
                     (struct host_row){when.start, when.end, map_get(&order, p->ranges.thread[i]), NO_PLACE, 0});
    }
    map_free(&order);
    free(streamed);
}

/* ---- device rows ---- */

static enum sync_kind sync_kind_of(const struct builder *b, uint32_t work)
{
    static const char *const names[] = {[SYNC_CONTEXT] = "Context Sync",
                                        [SYNC_STREAM] = "Stream Sync",
                                        [SYNC_EVENT] = "Event Sync",
                                        [SYNC_WAIT] = "Stream Wait Event"};
    uint32_t name = b->process->works.name[work];
    if (b->process->works.event_class[work] != CLASS_SYNC) return SYNC_NONE;
    for (int i = SYNC_CONTEXT; i <= SYNC_WAIT; i++)
        if (hta_is_named(&b->links, name, names[i])) return (enum sync_kind)i;
    return SYNC_UNKNOWN;
}

/* Marks the device rows of the window. A call is linked to one device row, so of several with its correlation id only
 * the last one is marked. */
static void clip_works(struct builder *b)
{
    const struct process *p = b->process;
    const struct works *w = &p->works;
    bool first = false;
    for (size_t i = 0; i < b->links.calls.count; i++) {
        const struct hta_call *call = &b->links.calls.call[i];
        if (!call->kept || !in_window(b, (struct interval){call->start, call->end})) continue;
        uint32_t work = hta_work_of(&b->links, (uint32_t)i);
        if (work == NO_PLACE) first = true;
        else if (hta_stream(p, work) != -1) b->clipped[work] = true;
    }
    for (size_t i = 0; i < w->table.count; i++) {
        bool has_stream = hta_stream(p, i) != -1;
        b->clipped[i] |= has_stream && first && p->numbers.work && p->numbers.work[i] == 0;
        b->clipped[i] |= has_stream && hta_is_named(&b->links, w->name[i], "Stream Wait Event");
        b->clipped[i] |= !has_stream && in_window(b, hta_times(p, w->start[i], w->end[i]));
        b->clipped[i] &= b->links.kept[i];
    }
}

static void take_works(struct builder *b)
{
    const struct works *w = &b->process->works;
    clip_works(b);
    for (size_t i = 0; i < w->table.count; i++) {
        if (!b->clipped[i] || w->correlation[i] == NO_ID || hta_stream(b->process, i) == -1) continue;
        struct interval when = hta_times(b->process, w->start[i], w->end[i]);
        b->event_of_work[i] = critical_event(
            &b->path->events,
            (struct critical_event){.start = when.start, .end = when.end, .place = (uint32_t)i, .source = FROM_WORK});
    }
}

/* A row of HTA's loop over the device. */
struct device_row {
    int64_t sort_by;
    uint32_t work, place;
    int32_t depth, launch_depth; /* NO_DEPTH: none */
};

struct device_rows {
    struct device_row *row;
    size_t count, capacity;
};

static int by_sort(const void *a, const void *b)
{
    const struct device_row *x = a, *y = b;
    return x->sort_by != y->sort_by ? by_number(x->sort_by, y->sort_by) : by_number(x->place, y->place);
}

/* HTA has a row of a piece of work once for each depth of its launch. */
static void add_rows(struct device_rows *rows, const struct builder *b, uint32_t work, int64_t sort_by)
{
    uint32_t call = hta_call_of(&b->links, work);
    size_t at = call == NO_PLACE ? b->depths.count : hta_depth_of_call(&b->depths, call);
    bool found = at < b->depths.count;
    do {
        rows->row = mem_grow(rows->row, &rows->capacity, rows->count + 1, sizeof *rows->row);
        rows->row[rows->count] = (struct device_row){sort_by, work, (uint32_t)rows->count, b->depths.of_work[work],
                                                     found ? b->depths.one[at].depth : NO_DEPTH};
        rows->count++;
    } while (found && ++at < b->depths.count && b->depths.one[at].call == call && rows->count < MOST_JOINED);
}

static struct device_rows list_device(const struct builder *b)
{
    const struct works *w = &b->process->works;
    struct device_rows rows = {0};
    for (size_t i = 0; i < w->table.count; i++) {
        if (!b->clipped[i] || w->correlation[i] == NO_ID) continue;
        struct interval when = hta_times(b->process, w->start[i], w->end[i]);
        enum sync_kind kind = sync_kind_of(b, (uint32_t)i);
        bool named =
            hta_is_named(&b->links, w->name[i], "Event Sync") || hta_is_named(&b->links, w->name[i], "Context Sync");
        if (hta_stream(b->process, i) != -1 || named)
            add_rows(&rows, b, (uint32_t)i, kind == SYNC_NONE ? when.start : when.end);
    }
    if (rows.count) qsort(rows.row, rows.count, sizeof *rows.row, by_sort);
    return rows;
}

/* ---- edges of device rows ---- */

static void edge(struct builder *b, uint32_t from, uint32_t to, enum critical_type type, enum critical_bound bound)
{
    bool weighs = type != EDGE_SYNC;
    int64_t weight = critical_time(&b->path->events, to) - critical_time(&b->path->events, from);
    critical_edge(&b->path->graph,
                  (struct critical_edge){from, to, weighs ? weight : 0, (uint8_t)type, (uint8_t)bound});
}

/* shorten_name of HTA, as far as is_comm_kernel (^nccl.*Kernel) asks for it. */
static bool is_communicating(const char *name)
{
    struct text kept = {0};
    bool shorten =
        strpbrk(name, "<(") && strncmp(name, "Memcpy", 6) && strncmp(name, "Memset", 6) && strncmp(name, "dma", 3);
    for (const char *c = name; *c; c++) {
        char opening = *c == '>' ? '<' : *c == ')' ? '(' : 0;
        if (shorten && c[0] == '-' && c[1] == '>') {
            c++;
        } else if (shorten && opening) {
            while (kept.length && kept.data[kept.length - 1] != opening) kept.length--;
            kept.length -= kept.length > 0;
        } else {
            text_add(&kept, c, 1);
        }
    }
    text_add(&kept, "", 1);
    const char *word = shorten ? strrchr(kept.data, ' ') : NULL, *line_end;
    word = word ? word + 1 : kept.data;
    line_end = strchr(word, '\n');
    const char *found = strstr(word, "Kernel");
    bool communicates = strncmp(word, "nccl", 4) == 0 && found && (!line_end || found < line_end);
    text_free(&kept);
    return communicates;
}

static void sync_host(struct builder *b, uint32_t from, uint32_t work)
{
    uint32_t call = hta_call_of(&b->links, work);
    uint32_t span = call == NO_PLACE ? NO_PLACE : b->links.calls.call[call].span;
    uint32_t event = span == NO_PLACE ? NO_PLACE : b->event_of_span[span];
    if (event == NO_PLACE) b->path->failure = "a wait for the device has no call in the window";
    else edge(b, from, NODE_END(event), EDGE_SYNC, BOUND_NONE);
}

static void take_event_wait(struct builder *b, uint32_t work, enum sync_kind kind)
{
    uint32_t before = hta_launch_before(&b->waits, &b->links, work);
    if (before == NO_PLACE) return;
    uint32_t source = hta_work_of(&b->links, before);
    if (kind == SYNC_EVENT) {
        if (b->event_of_work[source] != NO_PLACE) sync_host(b, NODE_END(b->event_of_work[source]), work);
        return;
    }
    uint32_t call = hta_call_of(&b->links, work);
    bool is_wait = call != NO_PLACE && b->links.calls.call[call].span != NO_PLACE &&
                   hta_is_named(&b->links, b->links.calls.call[call].name, "cudaStreamWaitEvent");
    uint32_t linked = is_wait ? hta_work_of(&b->links, call) : NO_PLACE;
    if (linked == NO_PLACE || hta_stream(b->process, linked) == -1) {
        b->path->failure = "a wait for an event has no call of cudaStreamWaitEvent";
        return;
    }
    uint32_t after = hta_launch_after(&b->waits, &b->links, call);
    if (after != NO_PLACE) map_put(&b->waits_for, hta_work_of(&b->links, after), source);
}

static void take_sync(struct builder *b, uint32_t work, enum sync_kind kind)
{
    if (kind == SYNC_UNKNOWN) {
        b->path->failure = "a wait is of a kind that it does not know";
    } else if (kind == SYNC_EVENT || kind == SYNC_WAIT) {
        take_event_wait(b, work, kind);
    } else if (kind == SYNC_STREAM) {
        uint32_t at = map_get(&b->stream_of, (uint64_t)hta_stream(b->process, work));
        if (at != MAP_NONE) sync_host(b, b->last[at].node, work);
    } else {
        for (size_t i = 0; i < b->lasts && !b->path->failure; i++) sync_host(b, b->last[i].node, work);
        if (b->path->graph.count > MOST_JOINED + 8 * b->path->events.count)
            b->path->failure = "its waits for all streams make too many edges";
    }
}

static struct last_work *last_of(struct builder *b, int64_t stream)
{
    uint32_t at = map_get(&b->stream_of, (uint64_t)stream);
    if (at == MAP_NONE) {
        at = (uint32_t)b->lasts;
        map_put(&b->stream_of, (uint64_t)stream, at);
        b->last = mem_grow(b->last, &b->last_capacity, b->lasts + 1, sizeof *b->last);
        b->last[b->lasts++] = (struct last_work){stream, NO_PLACE};
    }
    return &b->last[at];
}

/* Returns the end of the work that this one waits for because of an event, after adding the edge; NO_PLACE: none. */
static uint32_t take_waited(struct builder *b, uint32_t work, uint32_t start)
{
    uint32_t source = map_get(&b->waits_for, work);
    if (source == MAP_NONE) return NO_PLACE;
    map_remove(&b->waits_for, work);
    if (b->event_of_work[source] == NO_PLACE) return NO_PLACE;
    edge(b, NODE_END(b->event_of_work[source]), start, EDGE_SYNC, BOUND_NONE);
    return NODE_END(b->event_of_work[source]);
}

static void take_launch(struct builder *b, uint32_t call, uint32_t start)
{
    uint32_t span = b->links.calls.call[call].span;
    uint32_t event = span == NO_PLACE ? NO_PLACE : b->event_of_span[span];
    if (event == NO_PLACE) b->path->failure = "the launch of a piece of work is no call that it knows";
    else edge(b, NODE_START(event), start, EDGE_LAUNCH, BOUND_LAUNCH);
}

static void take_work(struct builder *b, const struct device_row *row)
{
    const struct works *w = &b->process->works;
    uint32_t event = b->event_of_work[row->work], call = hta_call_of(&b->links, row->work);
    uint32_t start = NODE_START(event);
    struct last_work *last = last_of(b, hta_stream(b->process, row->work));
    int64_t last_time = last->node == NO_PLACE ? INT64_MIN : critical_time(&b->path->events, last->node);
    edge(b, start, NODE_END(event), EDGE_OPERATOR,
         is_communicating(names_get(b->links.names, w->name[row->work])->text) ? BOUND_COMMUNICATION : BOUND_COMPUTE);
    uint32_t waited = take_waited(b, row->work, start);
    int64_t waited_time = waited == NO_PLACE ? INT64_MIN : critical_time(&b->path->events, waited);
    int64_t launched = call == NO_PLACE ? INT64_MIN : b->links.calls.call[call].start;
    if (row->launch_depth == 1 && row->depth == 0 && (last->node == NO_PLACE || last_time < launched) &&
        (waited == NO_PLACE || waited_time < launched))
        take_launch(b, call, start);
    else if (last->node != NO_PLACE && (waited == NO_PLACE || waited_time < last_time) && last->node != start)
        edge(b, last->node, start, EDGE_GAP, BOUND_GAP);
    last->node = NODE_END(event);
}

static void take_device(struct builder *b)
{
    struct device_rows rows = list_device(b);
    for (size_t i = 0; i < rows.count && !b->path->failure; i++) {
        enum sync_kind kind = sync_kind_of(b, rows.row[i].work);
        if (kind == SYNC_NONE) take_work(b, &rows.row[i]);
        else take_sync(b, rows.row[i].work, kind);
    }
    free(rows.row);
}

/* ---- the path ---- */

/* Waits between two rows of one stream are a contradiction for HTA. */
static bool has_wait_on_itself(const struct builder *b)
{
    const struct critical_graph *graph = &b->path->graph;
    for (size_t i = 0; i < graph->count; i++) {
        const struct critical_event *from = &b->path->events.event[NODE_EVENT(graph->edge[i].from)];
        const struct critical_event *to = &b->path->events.event[NODE_EVENT(graph->edge[i].to)];
        if (graph->edge[i].type == EDGE_SYNC && from->source == FROM_WORK && to->source == FROM_WORK &&
            hta_stream(b->process, from->place) == hta_stream(b->process, to->place))
            return true;
    }
    return false;
}

static void find_path(struct builder *b)
{
    struct critical_path *path = b->path;
    path->nodes = 2 * path->events.count;
    if (has_wait_on_itself(b)) {
        path->failure = "a wait is for work of the same stream";
        return;
    }
    path->steps = critical_longest(&path->graph, path->nodes, &path->path);
    if (path->steps == SIZE_MAX) path->failure = "the times contradict each other: its graph has a cycle";
    else if (!path->steps) path->failure = "no event takes time";
    path->steps = path->failure ? 0 : path->steps;
}

void critical_path_of_hta(struct critical_path *path, const struct selection *chosen, const struct hta_frame *frame)
{
    const struct process *p = frame->process;
    struct builder b = {.path = path, .process = p};
    struct interval span;
    *path = (struct critical_path){0};
    if (!critical_window(chosen, p, &span)) return;
    b.window = span.start == INT64_MIN ? span : hta_times(p, span.start, span.end); /* all or a part of the trace */
    b.has_ops = is_kind(p, "cpu_op");
    b.has_calls = is_kind(p, "cuda_runtime") || is_kind(p, "cuda_driver");
    hta_links(&b.links, frame, &chosen->model->names);
    b.event_of_span = no_places(p->spans.table.count);
    b.event_of_work = no_places(p->works.table.count);
    b.clipped = mem_zero(p->works.table.count, sizeof *b.clipped);
    if (b.links.is_repeated) path->failure = "several calls share the correlation id of a device row";
    else path->failure = hta_depths(&b.depths, &b.links);
    if (!path->failure && !hta_waits(&b.waits, &b.links)) path->failure = "it takes an event for one of two streams";
    if (!path->failure) {
        take_host(&b);
        take_works(&b);
        host_edges(&path->graph, &path->events, &b.host, NULL);
        take_device(&b);
    }
    if (!path->failure) find_path(&b);
    hta_links_free(&b.links);
    hta_depths_free(&b.depths);
    hta_waits_free(&b.waits);
    map_free(&b.waits_for);
    map_free(&b.stream_of);
    free(b.last);
    free(b.host.row);
    free(b.event_of_span);
    free(b.event_of_work);
    free(b.clipped);
}
