/* graph.c - finds the longest path of a graph of moments, in time linear in its nodes and edges.
 *
 * It visits nodes in the order of networkx's topological_sort. Of paths of equal length it takes the one that
 * networkx's dag_longest_path takes: the predecessor whose edge was added first, and the end that was visited first.
 * Nodes count in the order in which edges name them.
 */
#include "ask/critical/graph.h"

#include <stdlib.h>
#include <string.h>

const char *const critical_type_names[NR_EDGE_TYPES] = {[EDGE_OPERATOR] = "critical_path_operator",
                                                        [EDGE_DEPENDENCY] = "critical_path_dependency",
                                                        [EDGE_LAUNCH] = "critical_path_kernel_launch_delay",
                                                        [EDGE_GAP] = "critical_path_kernel_kernel_delay",
                                                        [EDGE_SYNC] = "critical_path_sync_dependency"};

const char *const critical_bound_names[NR_BOUNDS] = {[BOUND_HOST] = "cpu_bound",
                                                     [BOUND_LOADING] = "data_loading",
                                                     [BOUND_PEERS] = "cpu_communication_bound",
                                                     [BOUND_COMPUTE] = "gpu_compute_bound",
                                                     [BOUND_COMMUNICATION] = "gpu_communication_bound",
                                                     [BOUND_COPY] = "gpu_copy_bound",
                                                     [BOUND_GAP] = "gpu_kernel_kernel_overhead",
                                                     [BOUND_LAUNCH] = "gpu_kernel_launch_overhead"};

void critical_edge(struct critical_graph *graph, struct critical_edge edge)
{
    uint64_t key = (uint64_t)edge.from << 32 | edge.to;
    uint32_t at = map_get(&graph->known, key);
    if (at != MAP_NONE) {
        graph->edge[at] = edge;
        return;
    }
    if (graph->count >= MAP_NONE - 1) mem_lack();
    map_put(&graph->known, key, (uint32_t)graph->count);
    graph->edge = mem_grow(graph->edge, &graph->capacity, graph->count + 1, sizeof *graph->edge);
    graph->edge[graph->count++] = edge;
}

/* The edges that leave or enter each node, in the order of adding. */
struct lists {
    uint32_t *first; /* by node; one more at the end */
    uint32_t *edge;
};

static struct lists lists_of(const struct critical_graph *graph, size_t nodes, bool leaving)
{
    struct lists lists = {mem_zero(nodes + 2, sizeof *lists.first), mem_zero(graph->count, sizeof *lists.edge)};
    for (size_t i = 0; i < graph->count; i++) lists.first[2 + (leaving ? graph->edge[i].from : graph->edge[i].to)]++;
    for (size_t i = 0; i <= nodes; i++) lists.first[i + 1] += lists.first[i];
    for (size_t i = 0; i < graph->count; i++)
        lists.edge[lists.first[1 + (leaving ? graph->edge[i].from : graph->edge[i].to)]++] = (uint32_t)i;
    return lists;
}

static void lists_free(struct lists *lists)
{
    free(lists->first);
    free(lists->edge);
}

/* A search for the longest path. */
struct search {
    const struct critical_graph *graph;
    struct lists in, out;
    uint32_t *waits; /* by node: predecessors that are not visited yet */
    uint32_t *order; /* visited nodes, then those that are ready */
    size_t ready;
    int64_t *length; /* by node: of the longest path that ends there */
    uint32_t *by;    /* by node: its last edge; MAP_NONE: the path begins there */
};

static void add_source(struct search *s, bool *seen, uint32_t node)
{
    if (seen[node]) return;
    seen[node] = true;
    s->waits[node] = s->in.first[node + 1] - s->in.first[node];
    if (!s->waits[node]) s->order[s->ready++] = node;
}

/* Makes the nodes without predecessors ready, in the order in which edges name them. Returns the number of nodes. */
static size_t begin_search(struct search *s, size_t nodes)
{
    bool *seen = mem_zero(nodes, sizeof *seen);
    size_t count = 0;
    for (size_t i = 0; i < s->graph->count; i++) {
        count += (size_t)!seen[s->graph->edge[i].from];
        add_source(s, seen, s->graph->edge[i].from);
        count += (size_t)!seen[s->graph->edge[i].to];
        add_source(s, seen, s->graph->edge[i].to);
    }
    free(seen);
    return count;
}

static void visit(struct search *s, uint32_t node)
{
    const struct critical_edge *edge = s->graph->edge;
    s->by[node] = MAP_NONE;
    for (uint32_t i = s->in.first[node]; i < s->in.first[node + 1]; i++) {
        const struct critical_edge *e = &edge[s->in.edge[i]];
        int64_t length = add_ns(s->length[e->from], MAX(e->weight, 0));
        if (s->by[node] != MAP_NONE && length <= s->length[node]) continue;
        s->length[node] = length;
        s->by[node] = s->in.edge[i];
    }
    for (uint32_t i = s->out.first[node]; i < s->out.first[node + 1]; i++) {
        uint32_t to = edge[s->out.edge[i]].to;
        if (--s->waits[to] == 0) s->order[s->ready++] = to;
    }
}

/* Lists the edges of the path that ends at `last`. */
static size_t trace_back(const struct search *s, uint32_t last, uint32_t **path)
{
    size_t count = 0;
    for (uint32_t at = last; s->by[at] != MAP_NONE; at = s->graph->edge[s->by[at]].from) count++;
    *path = mem_zero(count, sizeof **path);
    size_t left = count;
    for (uint32_t at = last; s->by[at] != MAP_NONE; at = s->graph->edge[s->by[at]].from) (*path)[--left] = s->by[at];
    return count;
}

size_t critical_longest(const struct critical_graph *graph, size_t nodes, uint32_t **path)
{
    struct search s = {.graph = graph};
    size_t count = 0, done = 0;
    *path = NULL;
    if (!graph->count) return 0;
    s.in = lists_of(graph, nodes, false);
    s.out = lists_of(graph, nodes, true);
    s.waits = mem_zero(nodes, sizeof *s.waits);
    s.order = mem_zero(nodes, sizeof *s.order);
    s.length = mem_zero(nodes, sizeof *s.length);
    s.by = mem_zero(nodes, sizeof *s.by);
    size_t all = begin_search(&s, nodes);
    for (; done < s.ready; done++) visit(&s, s.order[done]);
    if (done < all) {
        count = SIZE_MAX;
    } else {
        uint32_t last = s.order[0];
        for (size_t i = 1; i < done; i++)
            if (s.length[s.order[i]] > s.length[last]) last = s.order[i];
        count = trace_back(&s, last, path);
    }
    lists_free(&s.in);
    lists_free(&s.out);
    free(s.waits);
    free(s.order);
    free(s.length);
    free(s.by);
    return count;
}

void critical_graph_free(struct critical_graph *graph)
{
    free(graph->edge);
    map_free(&graph->known);
    *graph = (struct critical_graph){0};
}
