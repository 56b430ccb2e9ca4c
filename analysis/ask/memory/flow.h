/* flow.h - which operators use which blocks of torch's allocators: the data flow that memory categories come from.
 *
 * These are the terms of torch's _memory_profiler.py. A key is a storage: one life of a block at an address. A node is an
 * outermost operator, with all inside it, or an allocation or a free outside of operators. A version of a key begins where
 * a node writes into it. Inputs and outputs of nodes are versions.
 */
#ifndef TFA_MEMORY_FLOW_H
#define TFA_MEMORY_FLOW_H

#include "model/model.h"

struct flow_key {
    uint32_t first, last;      /* its versions: the one it began with and the newest one */
    uint32_t allocated, freed; /* indices in process->blocks; NO_PLACE: not recorded */
    bool is_tensor;            /* an operator or the framework named it */
    bool is_parameter, is_gradient, is_state, is_temporary;
};

struct flow_version {
    uint32_t key;
    uint32_t prior; /* the version before; NO_PLACE: it is the first */
};

struct flow_node {
    int64_t start;
    bool is_backward;
    uint32_t first, inputs, outputs; /* its inputs in `version_of`, then its outputs */
};

/* A node wrote into a key. */
struct flow_write {
    int64_t time;
    uint32_t version; /* the one that began */
};

struct flow {
    struct flow_key *key;
    size_t keys, key_capacity;
    struct flow_version *version;
    size_t versions, version_capacity;
    struct flow_node *node; /* by start */
    size_t nodes, node_capacity;
    uint32_t *version_of;
    size_t uses, use_capacity;
    struct flow_write *write; /* by time */
    size_t writes, write_capacity;
};

void flow_init(struct flow *flow, const struct process *process, const struct names *names);
void flow_free(struct flow *flow);

#endif
