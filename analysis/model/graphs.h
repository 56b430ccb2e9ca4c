/* graphs.h - finds the call that a replayed node of a CUDA graph was captured from.
 *
 * A device record names its node by the executable graph and the node's number in it. Records of graph_source tell
 * which graph it was made from, and which one updated it before the launch; a node keeps its number on the way. A
 * graph may be part of an executable one (a child, the body of a condition). Then no record defines what its number
 * means there. The node is found only if exactly one part of the instantiated graph has such a node.
 */
#ifndef TFA_GRAPHS_H
#define TFA_GRAPHS_H

#include "model/model.h"

enum { NOT_REPLAYED = -1, NOT_MATCHED = -2 }; /* of graphs.matched */

struct graph_finder {
    const struct process *process;
    struct map node_of; /* by number: index in process->graphs.node */
    size_t *source;     /* indices in process->graphs.source, sorted by graph and time */
    size_t *part;       /* the same for parts, sorted by the enclosing graph */
    size_t sources, parts;
    struct map known; /* by number of a replayed node: index in `answer` */
    struct graph_answer {
        size_t source; /* source of its executable graph at that time */
        uint32_t node;
    } * answer;
    size_t answers, answer_capacity;
};

void graph_finder_init(struct graph_finder *finder, const struct process *process);
void graph_finder_free(struct graph_finder *finder);
/* Returns the number of the graph node that a work was, 0 if it was none. */
uint64_t graph_node_of(const struct process *process, size_t work);
/* Returns the captured node that a work launched at `time` replays: an index in process->graphs.node, or NO_PLACE. */
uint32_t graph_captured(struct graph_finder *finder, size_t work, int64_t time);
/* Calls `visit` for a graph that was launched at `time`, for its parts, and for all graphs that it and they have their
 * nodes from. */
void graph_visit(const struct graph_finder *finder, uint32_t graph, int64_t time,
                 void (*visit)(void *context, uint32_t graph), void *context);

#endif
