/* graphs.h - CUDA graphs: the call that a replayed node was captured from.
 *
 * A device record names its node by the executable graph and the node's number in it. Which graph that one was made from,
 * and with which one it was updated before the launch, say records of graph_source; a node keeps its number on the way.
 * Where a graph is part of an executable one (a child, the body of a condition), no record says what its number there
 * means: it is found if the graph that was instantiated has only one part with such a node.
 */
#ifndef TFA_GRAPHS_H
#define TFA_GRAPHS_H

#include "model.h"

struct graph_finder {
    const struct process *process;
    struct map node_of; /* by number: a place in process->graphs.node */
    size_t *source;     /* places in process->graphs.source, by graph and time */
    size_t *part;       /* of parts, by the graph they are in */
    size_t sources, parts;
    struct map known; /* by number of a replayed node: a place in `answer` */
    struct graph_answer {
        size_t source; /* of its executable graph at that time */
        uint32_t node;
    } * answer;
    size_t answers, answer_capacity;
};

void graph_finder_init(struct graph_finder *finder, const struct process *process);
void graph_finder_free(struct graph_finder *finder);
/* The number of the node that a work was, 0 if it was none. */
uint64_t graph_node_of(const struct process *process, size_t work);
/* The capture of the node that a work launched at `time` replays: a place in process->graphs.node, or NO_PLACE. */
uint32_t graph_captured(struct graph_finder *finder, size_t work, int64_t time);

#endif
