/* graph.h - a graph of moments whose longest path tells what a run had to wait for.
 *
 * A node is the start or the end of an event: twice the event's number, plus 1 for its end. Two nodes have at most one
 * edge; adding it again replaces it, as in networkx, whose order decides between paths of equal length.
 */
#ifndef TFA_CRITICAL_GRAPH_H
#define TFA_CRITICAL_GRAPH_H

#include "base/util.h"

/* HTA's types of edges. */
enum critical_type { EDGE_OPERATOR, EDGE_DEPENDENCY, EDGE_LAUNCH, EDGE_GAP, EDGE_SYNC, NR_EDGE_TYPES };
extern const char *const critical_type_names[NR_EDGE_TYPES]; /* as HTA writes them */

/* The resource or cause that an edge spends its time on. */
enum critical_bound {
    BOUND_HOST,
    BOUND_LOADING, /* waiting for a batch of a DataLoader; not among HTA's */
    BOUND_PEERS,   /* in a collective of the host, as gloo's are, and nothing computes; not among HTA's */
    BOUND_COMPUTE,
    BOUND_COMMUNICATION,
    BOUND_COPY, /* not among HTA's, which counts copies as computing */
    BOUND_GAP,
    BOUND_LAUNCH,
    NR_BOUNDS,
    BOUND_NONE = NR_BOUNDS
};
extern const char *const critical_bound_names[NR_BOUNDS];

struct critical_edge {
    uint32_t from, to;
    int64_t weight; /* nanoseconds; a negative one counts as 0 in the path */
    uint8_t type, bound;
};

struct critical_graph {
    struct critical_edge *edge;
    size_t count, capacity;
    struct map known; /* index in `edge` by both nodes */
};

#define NODE_START(event) (2 * (uint32_t)(event))
#define NODE_END(event) (2 * (uint32_t)(event) + 1)
#define NODE_EVENT(node) ((node) / 2)
#define NODE_IS_END(node) ((node) % 2)
enum { MOST_CRITICAL_EVENTS = 1 << 30 };

void critical_edge(struct critical_graph *graph, struct critical_edge edge);
/* Finds the longest path over `nodes` nodes. `*path` receives the indices of its edges, in order; the caller frees it.
 * Returns their number, or SIZE_MAX if the graph has a cycle. */
size_t critical_longest(const struct critical_graph *graph, size_t nodes, uint32_t **path);
void critical_graph_free(struct critical_graph *graph);

#endif
