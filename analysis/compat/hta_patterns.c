/* hta_patterns.c - collects sequences of kernels as get_frequent_cuda_kernel_sequences of HTA 0.5.0.
 *
 * HTA takes the rows with the least depth among all rows whose names match, of any thread, and of these the ones with at
 * least three kernels. A row outside of the call graph, such as an annotation on the device, has the depth -1, so no
 * operator counts then. Kernels are in the order of their starts.
 */
#include <stdlib.h>

#include "commands/device/answers.h"
#include "compat/hta_answer.h"
#include "compat/hta_graph.h"

enum { LEAST_KERNELS = 3 }; /* min_pattern_len */

struct below {
    uint32_t root, row;
};

/* Returns the least depth of the rows that match; INT32_MAX: none matches. */
static int32_t least_depth(const struct hta_graph *graph, const struct hta_frame *frame, struct name_matches *matches)
{
    const struct process *p = frame->process;
    int32_t *depth = mem_zero(frame->count, sizeof *depth), least = INT32_MAX;
    for (size_t i = 0; i < frame->count; i++) depth[i] = -1;
    for (size_t i = 0; i < graph->links; i++) depth[graph->link[i].row] = graph->node[graph->link[i].node].depth + 1;
    for (size_t i = 0; i < frame->count; i++)
        if (name_matches(matches, frame->row[i].name)) least = MIN(least, depth[i]);
    for (size_t i = 0; i < graph->count; i++)
        if (name_matches(matches, graph->node[i].name)) least = MIN(least, graph->node[i].depth);
    for (size_t i = 0; i < p->works.table.count; i++) {
        bool is_kept =
            hta_stream(p, i) == -1 && hta_keeps(frame, hta_times(p, p->works.start[i], p->works.end[i]).start);
        if (is_kept && name_matches(matches, p->works.name[i])) least = -1;
    }
    free(depth);
    return least;
}

/* Returns, by node, the node of depth `least` that it is below or is. */
static uint32_t *roots_of(const struct hta_graph *graph, int32_t least)
{
    uint32_t *root = no_places(graph->count);
    for (size_t i = 0; i < graph->count; i++) {
        uint32_t at = graph->order[i];
        const struct hta_node *node = &graph->node[at];
        if (!node->reached || node->depth < least) continue;
        root[at] = node->depth == least ? at : root[node->parent];
    }
    return root;
}

static int by_root(const void *a, const void *b, void *context)
{
    const struct hta_frame *frame = context;
    const struct below *x = a, *y = b;
    const struct hta_row *row_x = &frame->row[x->row], *row_y = &frame->row[y->row];
    return x->root != y->root             ? by_number(x->root, y->root)
           : row_x->start != row_y->start ? by_number(row_x->start, row_y->start)
                                          : by_number(x->row, y->row);
}

static void add_all(struct patterns *patterns, const struct hta_graph *graph, const struct hta_frame *frame,
                    const struct below *list, size_t count)
{
    uint32_t *name = mem_zero(count + 1, sizeof *name);
    for (size_t first = 0, end; first < count; first = end) {
        const struct hta_node *root = &graph->node[list[first].root];
        name[0] = root->name;
        for (end = first; end < count && list[end].root == list[first].root; end++)
            name[end - first + 1] = frame->row[list[end].row].name;
        patterns_add(patterns, frame->rank, name, end - first + 1, root->device, root->end - root->start);
    }
    free(name);
}

/* Takes the sequences of one rank. Returns NULL, or why HTA has no answer. */
static const char *take_frame(struct patterns *patterns, const struct hta_frame *frame, struct names *names,
                              const char *operator)
{
    struct hta_graph graph;
    struct name_matches matches;
    const char *fault = hta_graph(&graph, frame, names);
    name_matches_init(&matches, names, operator);
    int32_t least = fault ? INT32_MAX : least_depth(&graph, frame, &matches);
    uint32_t *root = least >= 0 && least < INT32_MAX ? roots_of(&graph, least) : no_places(graph.count);
    struct below *list = mem_zero(graph.links, sizeof *list);
    size_t count = 0;
    for (size_t i = 0; i < graph.links; i++) {
        uint32_t at = root[graph.link[i].node];
        if (at == NO_PLACE || graph.node[at].kernels < LEAST_KERNELS || !name_matches(&matches, graph.node[at].name))
            continue;
        list[count++] = (struct below){at, graph.link[i].row};
    }
    if (count) qsort_r(list, count, sizeof *list, by_root, (void *)frame);
    add_all(patterns, &graph, frame, list, count);
    free(list);
    free(root);
    free(matches.known);
    hta_graph_free(&graph);
    return fault;
}

struct needs hta_patterns_needs(const struct options *options)
{
    return needs_union(hta_needs(options), (struct needs){.all_spans = true});
}

void hta_patterns(struct session *session)
{
    struct pattern_sums sums = {0};
    const char *name = session->options.operator_name;
    bool failed = false;
    if (!patterns_have_name(session) || !hta_begin(session)) return;
    const struct hta_frames *frames = hta_frames(&session->chosen);
    for (size_t i = 0; i < frames->count; i++) {
        struct patterns patterns = {0};
        const char *fault = take_frame(&patterns, &frames->frame[i], &session->model.names, name);
        failed |= fault != NULL;
        if (fault) complain(frames->frame[i].path, "HTA has no answer: %s; --rules exact has one", fault);
        patterns_sort(&patterns);
        patterns_print(session, &patterns, &sums);
        patterns_free(&patterns);
    }
    if (!sums.count && !failed && !is_filtered(&session->options))
        complain(NULL,
                 "HTA finds no operator `%s` with three or more kernels; --rules exact counts shorter sequences too",
                 name);
    patterns_end(session, &sums);
}
