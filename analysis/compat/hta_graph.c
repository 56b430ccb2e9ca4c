/* hta_graph.c - builds HTA's call graph.
 *
 * The steps, in the order of HTA's source:
 * - the host rows of a thread are sorted by the times at which they open and close, and nested with a stack. A closing
 *   removes the innermost open row, whichever that is (_construct_call_stack_graph);
 * - a device row with a stream above 0 is below the host row with its correlation id (_link_cpu_and_gpu);
 * - if two threads have a step or an operator of autograd, the first rows of the one are moved below the rows
 *   "## backward ##", or else the steps, of the other (_link_main_and_bwd_stacks);
 * - depths and numbers of kernels are those that a walk from the roots finds.
 *
 * HTA's comparison of openings and closings is not transitive if a row without duration stands where another one ends
 * and a third begins. It raises an exception if it compares a row of negative duration with one without duration, which
 * can happen if both end at one moment. Such a moment ends the answer here.
 */
#include "compat/hta_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compat/hta_calls.h"
#include "model/ranges/step_ranges.h"

struct edge {
    int64_t time, duration;
    uint32_t node, thread, number;
    bool closes;
    uint8_t turn; /* within one moment: closings, openings and rows without duration, in this order or another */
};

/* ---- rows ---- */

/* True if HTA takes the thread for a stream. */
static bool is_skipped(const struct thread *thread)
{
    return thread->pid == 0 || thread->tid == 0;
}

static void add_node(struct hta_graph *graph, const struct hta_frame *frame, struct hta_node node)
{
    const struct process *p = frame->process;
    struct interval when = hta_times(p, node.start, node.end);
    if (node.thread == MAP_NONE || !hta_keeps(frame, when.start) || is_skipped(&p->thread[node.thread])) return;
    node.start = when.start;
    node.end = when.end;
    node.parent = NO_PLACE;
    graph->node = mem_grow(graph->node, &graph->capacity, graph->count + 1, sizeof *graph->node);
    graph->node[graph->count++] = node;
}

/* Returns the name of a range as it stands in the file. */
static uint32_t whole_name(const struct ranges *r, size_t range, struct names *names)
{
    char text[64];
    if (r->step[range] == NO_PLACE) return r->name[range];
    int length = snprintf(text, sizeof text, "ProfilerStep#%llu", (unsigned long long)r->id[range]);
    return names_add(names, text, (size_t)length);
}

static uint32_t thread_place(const struct process *p, uint32_t serial)
{
    return map_get(&p->thread_of, serial);
}

static void collect(struct hta_graph *graph, const struct hta_frame *frame, struct names *names)
{
    const struct process *p = frame->process;
    const struct ranges *r = &p->ranges;
    const struct spans *s = &p->spans;
    size_t streamed = 0;
    for (size_t i = 0; i < r->table.count; i++)
        add_node(graph, frame,
                 (struct hta_node){.start = r->start[i],
                                   .end = r->end[i],
                                   .thread = thread_place(p, r->thread[i]),
                                   .number = p->numbers.range ? p->numbers.range[i] : (uint32_t)(s->table.count + i),
                                   .name = whole_name(r, i, names)});
    for (size_t i = 0; i < s->table.count; i++) {
        bool has_stream = streamed < p->streamed_count && p->streamed[streamed] == i;
        streamed += has_stream;
        if (has_stream) continue;
        add_node(graph, frame,
                 (struct hta_node){.start = s->start[i],
                                   .end = s->end[i],
                                   .thread = thread_place(p, s->thread[i]),
                                   .number = p->numbers.span ? p->numbers.span[i] : (uint32_t)i,
                                   .name = s->name[i]});
    }
}

static const char *fault_of(const struct hta_frame *frame)
{
    if (frame->process->has_text_thread) return "the numbers of its threads are texts";
    for (size_t i = 0; i < frame->count; i++)
        if (frame->row[i].times > 1) return "several calls have the correlation id of one kernel";
    return NULL;
}

/* ---- nesting ---- */

static int edges_by_time(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    return x->thread != y->thread ? by_number(x->thread, y->thread) : by_number(x->time, y->time);
}

/* HTA's order of one moment: the longer row opens first and the shorter one closes first; between equal ones the order of
 * the file decides. */
static int by_turn(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    if (x->turn != y->turn) return x->turn - y->turn;
    if (x->closes != y->closes) return x->closes - y->closes;
    if (x->duration != y->duration) return by_number(y->duration, x->duration) * (x->closes ? -1 : 1);
    return by_number(x->number, y->number) * (x->closes ? -1 : 1);
}

/* Returns false if HTA raises an exception. A row without duration lies inside a row that opens at its moment; if none opens
 * there, inside one that closes there. */
static bool sort_moment(struct edge *edge, size_t count)
{
    bool opens = false, empty = false, negative = false;
    for (size_t i = 0; i < count; i++) {
        opens |= edge[i].duration && !edge[i].closes;
        empty |= edge[i].duration == 0;
        negative |= edge[i].duration < 0;
    }
    for (size_t i = 0; i < count; i++)
        edge[i].turn = !edge[i].duration ? (opens ? 2 : 0) : edge[i].closes ? (opens ? 0 : 1) : 1;
    if (count > 1) qsort(edge, count, sizeof *edge, by_turn);
    return !(empty && negative);
}

static struct edge *edges_of(const struct hta_graph *graph, size_t *count, bool *has_order)
{
    struct edge *edge = mem_zero(2 * graph->count, sizeof *edge);
    *count = 2 * graph->count;
    for (size_t i = 0; i < *count; i++) {
        const struct hta_node *node = &graph->node[i / 2];
        edge[i] = (struct edge){.time = i % 2 ? node->end : node->start,
                                .duration = node->end - node->start,
                                .node = (uint32_t)(i / 2),
                                .thread = node->thread,
                                .number = node->number,
                                .closes = i % 2};
    }
    if (*count) qsort(edge, *count, sizeof *edge, edges_by_time);
    for (size_t first = 0, end; first < *count; first = end) {
        for (end = first + 1; end < *count && edges_by_time(&edge[first], &edge[end]) == 0;) end++;
        *has_order &= sort_moment(&edge[first], end - first);
    }
    return edge;
}

/* Returns false if HTA raises an exception. */
static bool nest(struct hta_graph *graph)
{
    size_t count, depth = 0;
    bool has_order = true;
    struct edge *edge = edges_of(graph, &count, &has_order);
    uint32_t *open = mem_zero(graph->count, sizeof *open);
    for (size_t i = 0; i < count; i++) {
        if (i && edge[i].thread != edge[i - 1].thread) depth = 0;
        if (edge[i].closes) {
            depth -= depth != 0;
            continue;
        }
        graph->node[edge[i].node].parent = depth ? open[depth - 1] : NO_PLACE;
        graph->node[edge[i].node].depth = (int32_t)MIN(depth, (size_t)INT32_MAX);
        open[depth++] = edge[i].node;
    }
    free(open);
    free(edge);
    return has_order;
}

/* ---- the backward thread ---- */

static bool begins_with(const struct names *names, uint32_t name, const char *text)
{
    return strncmp(names_get(names, name)->text, text, strlen(text)) == 0;
}

struct two_threads {
    uint32_t backward, main;
    size_t count;
};

static bool is_before(const struct thread *x, const struct thread *y)
{
    return x->pid != y->pid ? x->pid < y->pid : x->tid < y->tid;
}

/* Finds the threads with steps (main) and those with autograd's operators but no steps. Only two make a pair: HTA sorts
 * them by what they are, then by their numbers. */
static struct two_threads find_pair(const struct hta_graph *graph, const struct process *p, const struct names *names)
{
    enum { BACKWARD = 1, MAIN = 2 };
    uint8_t *what = mem_zero(p->threads, sizeof *what);
    struct two_threads pair = {NO_PLACE, NO_PLACE, 0};
    for (size_t i = 0; i < graph->count; i++) {
        const struct hta_node *node = &graph->node[i];
        if (begins_with(names, node->name, "ProfilerStep#")) what[node->thread] = MAIN;
        else if (what[node->thread] != MAIN && strstr(names_get(names, node->name)->text, "autograd::"))
            what[node->thread] = BACKWARD;
    }
    for (size_t i = 0; i < p->threads; i++) {
        if (!what[i]) continue;
        pair.count++;
        pair.main = (uint32_t)i;
        if (pair.backward == NO_PLACE) pair.backward = (uint32_t)i;
    }
    if (pair.count == 2) {
        uint32_t x = pair.backward, y = pair.main;
        bool swap = what[x] != what[y] ? what[x] > what[y] : is_before(&p->thread[y], &p->thread[x]);
        if (swap) pair = (struct two_threads){y, x, 2};
    }
    free(what);
    return pair;
}

static int by_number_in_file(const void *a, const void *b, void *context)
{
    const struct hta_node *node = context;
    return by_number(node[*(const uint32_t *)a].number, node[*(const uint32_t *)b].number);
}

/* Returns the rows of a thread whose names begin with `text`, in file order. */
static uint32_t *rows_named(const struct hta_graph *graph, uint32_t thread, const char *text, const struct names *names,
                            size_t *count)
{
    uint32_t *list = NULL;
    size_t capacity = 0;
    *count = 0;
    for (size_t i = 0; i < graph->count; i++) {
        if (graph->node[i].thread != thread || !begins_with(names, graph->node[i].name, text)) continue;
        list = mem_grow(list, &capacity, *count + 1, sizeof *list);
        list[(*count)++] = (uint32_t)i;
    }
    if (*count) qsort_r(list, *count, sizeof *list, by_number_in_file, graph->node);
    return list;
}

static int rows_by_start(const void *a, const void *b, void *context)
{
    const struct hta_node *node = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return node[x].start != node[y].start ? by_number(node[x].start, node[y].start) : by_number(x, y);
}

/* Returns the outermost rows of a thread, by start. */
static uint32_t *outermost(const struct hta_graph *graph, uint32_t thread, size_t *count)
{
    uint32_t *list = NULL;
    size_t capacity = 0;
    *count = 0;
    for (size_t i = 0; i < graph->count; i++) {
        if (graph->node[i].thread != thread || graph->node[i].parent != NO_PLACE) continue;
        list = mem_grow(list, &capacity, *count + 1, sizeof *list);
        list[(*count)++] = (uint32_t)i;
    }
    if (*count) qsort_r(list, *count, sizeof *list, rows_by_start, graph->node);
    return list;
}

/* Moves the rows of the list that lie inside `to` below it. Returns how many remain in the list. */
static size_t move_below(struct hta_graph *graph, uint32_t to, uint32_t *list, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        struct hta_node *node = &graph->node[list[i]];
        bool inside = node->start >= graph->node[to].start && node->end <= graph->node[to].end;
        if (inside && node->parent != to) node->parent = to;
        else list[kept++] = list[i];
    }
    return kept;
}

/* Links the backward thread to the main one. Once no row of it is left, HTA goes on with the first rows of the main thread,
 * and loses those that it moves below themselves. */
static const char *link_backward(struct hta_graph *graph, const struct process *p, const struct names *names)
{
    enum { MOST_STEPS = 1 << 28 };
    struct two_threads pair = find_pair(graph, p, names);
    size_t targets, rows, steps = 0;
    const char *fault = NULL;
    bool in_main = false;
    if (pair.count != 2) return NULL;
    uint32_t *target = rows_named(graph, pair.main, "## backward ##", names, &targets);
    if (!targets) {
        free(target);
        target = rows_named(graph, pair.main, "ProfilerStep#", names, &targets);
    }
    uint32_t *row = outermost(graph, pair.backward, &rows);
    for (size_t i = 0; i < targets && !fault; i++) {
        steps += rows;
        rows = move_below(graph, target[i], row, rows);
        if (steps > MOST_STEPS) fault = "it compares each annotation with each operator, and there are too many";
        if (rows || i + 1 == targets) continue;
        if (in_main) fault = "it does not end";
        free(row);
        row = outermost(graph, pair.main, &rows);
        in_main = true;
    }
    free(row);
    free(target);
    return fault;
}

/* ---- depths and kernels ---- */

/* Sets the depth of a node from its parent's; the path to the nearest known one goes to `path`. */
static void set_depth(struct hta_graph *graph, const struct process *p, uint32_t at, bool *known, uint32_t *path)
{
    size_t length = 0;
    for (; !known[at]; at = graph->node[at].parent) {
        struct hta_node *node = &graph->node[at];
        known[at] = true;
        path[length++] = at;
        if (node->parent != NO_PLACE && node->parent != at) continue;
        if (node->parent == NO_PLACE) node->depth = 0;
        node->reached = node->parent == NO_PLACE && p->thread[node->thread].tid != 2; /* NON_EXISTENT_NODE_INDEX */
        length--;
        break;
    }
    while (length) {
        struct hta_node *node = &graph->node[path[--length]];
        node->depth = graph->node[node->parent].depth + 1;
        node->reached = graph->node[node->parent].reached;
    }
}

static int by_depth(const void *a, const void *b, void *context)
{
    const struct hta_node *node = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return node[x].depth != node[y].depth ? by_number(node[x].depth, node[y].depth) : by_number(x, y);
}

static void set_depths(struct hta_graph *graph, const struct process *p)
{
    bool *known = mem_zero(graph->count, sizeof *known);
    uint32_t *path = mem_zero(graph->count, sizeof *path);
    graph->order = mem_zero(graph->count, sizeof *graph->order);
    for (size_t i = 0; i < graph->count; i++) {
        set_depth(graph, p, (uint32_t)i, known, path);
        graph->order[i] = (uint32_t)i;
    }
    if (graph->count) qsort_r(graph->order, graph->count, sizeof *graph->order, by_depth, graph->node);
    free(path);
    free(known);
}

static void count_kernels(struct hta_graph *graph, const struct hta_frame *frame)
{
    for (size_t i = 0; i < graph->links; i++) {
        struct hta_node *node = &graph->node[graph->link[i].node];
        const struct hta_row *row = &frame->row[graph->link[i].row];
        if (!node->reached) continue;
        node->kernels++;
        node->device = add_ns(node->device, row->end - row->start);
    }
    for (size_t i = graph->count; i-- > 0;) {
        const struct hta_node *node = &graph->node[graph->order[i]];
        if (!node->reached || node->parent == NO_PLACE) continue;
        graph->node[node->parent].kernels += node->kernels;
        graph->node[node->parent].device = add_ns(graph->node[node->parent].device, node->device);
    }
}

/* ---- device rows ---- */

static void link_kernels(struct hta_graph *graph, const struct hta_frame *frame, const struct names *names)
{
    const struct process *p = frame->process;
    struct map node_of = {0};
    struct hta_calls calls;
    hta_calls(&calls, frame, names);
    for (size_t i = 0; i < graph->count; i++) map_put(&node_of, graph->node[i].number, (uint32_t)i);
    for (size_t i = 0; i < frame->count; i++) {
        uint32_t work = frame->row[i].work;
        if (work == NO_PLACE || hta_stream(p, work) <= 0 || !hta_is_device(p, work, names) ||
            p->works.correlation[work] == NO_ID)
            continue;
        uint32_t call = map_get(&calls.last, p->works.correlation[work]);
        uint32_t node = call == MAP_NONE ? MAP_NONE : map_get(&node_of, calls.call[call].number);
        if (node == MAP_NONE || (p->numbers.span && calls.call[call].number == 0))
            continue; /* HTA takes the first event for none */
        graph->link = mem_grow(graph->link, &graph->link_capacity, graph->links + 1, sizeof *graph->link);
        graph->link[graph->links++] = (struct hta_kernel_link){node, (uint32_t)i};
    }
    hta_calls_free(&calls);
    map_free(&node_of);
}

const char *hta_graph(struct hta_graph *graph, const struct hta_frame *frame, struct names *names)
{
    *graph = (struct hta_graph){0};
    collect(graph, frame, names);
    const char *fault = fault_of(frame);
    if (fault) return fault;
    if (!nest(graph)) return "its rounding makes the duration of an event negative";
    fault = link_backward(graph, frame->process, names);
    if (fault) return fault;
    set_depths(graph, frame->process);
    link_kernels(graph, frame, names);
    count_kernels(graph, frame);
    return NULL;
}

void hta_graph_free(struct hta_graph *graph)
{
    free(graph->node);
    free(graph->link);
    free(graph->order);
    *graph = (struct hta_graph){0};
}
