/* hta_graph.h - the call graph of a rank as HTA 0.5.0 builds it (CallGraph): host rows nested by time, device rows below
 * their launches. */
#ifndef TFA_HTA_GRAPH_H
#define TFA_HTA_GRAPH_H

#include "compat/hta_frame.h"

struct hta_node {
    int64_t start, end;
    uint32_t thread;  /* index in process->thread */
    uint32_t number;  /* of its event in the file */
    uint32_t name;    /* whole: with the number of a step */
    uint32_t parent;  /* index of a node; NO_PLACE: outermost; itself: HTA has lost it */
    int32_t depth;    /* 0: outermost */
    bool reached;     /* from a thread's root */
    uint64_t kernels; /* device rows below it */
    int64_t device;   /* their durations */
};

/* A device row below its launch. */
struct hta_kernel_link {
    uint32_t node, row; /* row: index in frame->row */
};

struct hta_graph {
    struct hta_node *node;
    size_t count, capacity;
    uint32_t *order; /* the nodes by depth */
    struct hta_kernel_link *link;
    size_t links, link_capacity;
};

/* Builds the graph of a frame loaded with `all_spans` and `event_numbers`. Returns NULL, or why HTA raises an
 * exception. */
const char *hta_graph(struct hta_graph *graph, const struct hta_frame *frame, struct names *names);
void hta_graph_free(struct hta_graph *graph);

#endif
