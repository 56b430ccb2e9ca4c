/* critical.h - the critical path of a process: the longest chain of host and device time in which nothing could have
 * begun earlier. */
#ifndef TFA_CRITICAL_H
#define TFA_CRITICAL_H

#include "ask/critical/events.h"
#include "ask/reduction.h"

/* A time in which the host is in a collective and computes nothing. */
struct critical_peers {
    struct intervals times; /* by time, without overlaps */
    uint32_t *collective;   /* of each, an index in process->collectives */
    size_t capacity;
};

struct critical_path {
    const char *failure; /* why there is none; NULL: the path is known */
    struct critical_events events;
    struct critical_graph graph;
    uint32_t *path; /* indices of edges, in order */
    size_t steps;
    size_t nodes; /* of the graph */
    struct critical_peers peers;
};

extern const struct needs critical_needs;

/* Finds the path of a process that is loaded with critical_needs. */
void critical_path_of(struct critical_path *path, struct scope *scope);
void critical_path_free(struct critical_path *path);

/* ---- the answer ---- */

/* A node of the path, or the start or end of a time with peers on one of its edges. */
struct critical_step {
    int64_t time, weight;   /* weight: of the edge that leads here; 0 for the first one */
    int64_t device, stream; /* of work; -1: unknown */
    uint64_t tid;           /* of the host's thread */
    uint32_t name, number;  /* number: of the event in a Kineto trace, NO_PLACE: unknown */
    uint8_t type, bound;    /* of that edge */
    bool is_end, is_work, is_first;
};

/* The summary of a process. */
struct critical_sum {
    int64_t rank;
    const char *failure;
    uint64_t events, nodes, edges, steps, works;
    int64_t total[NR_BOUNDS];
    int64_t length, span;       /* span: from the path's first moment to its last one */
    bool with_steps;            /* with --nodes */
    struct critical_step *step; /* the nodes then, one more than `steps` */
    size_t listed, step_capacity;
};

/* Makes a struct critical_sum of a process. */
extern const struct reduction critical_reduction;
struct critical_sum *critical_sum_of(const struct critical_path *path, const struct process *process,
                                     struct names *names, bool with_steps);
void critical_sum_free(void *sum);

#endif
