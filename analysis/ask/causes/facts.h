/* facts.h - what one process tells of its own speed: how long its kernels and copies took, and what its device did
 * before collectives.
 *
 * All times are differences on the process's own clock, so that facts of ranks with different clocks can be compared.
 */
#ifndef TFA_CAUSE_FACTS_H
#define TFA_CAUSE_FACTS_H

#include "ask/comm/summary.h"
#include "ask/scope.h"

enum { LEAST_CALLS = 16 }; /* of a kernel or a copy on a rank, to be compared */

/* Computation, or copies between host and device, of one name and size. */
struct work_fact {
    uint32_t name;
    bool is_copy;
    uint64_t size;     /* bytes of a copy; of a kernel a number that follows from its blocks and threads */
    uint64_t calls;    /* at least LEAST_CALLS */
    int64_t median[2]; /* time of the first half of the calls, and of the second one */
};

/* A collective that all ranks leave together, by its place in the step or the run. */
struct gap_fact {
    int64_t step;  /* of the profiler; UNKNOWN_NUMBER: the trace has no steps */
    int64_t place; /* how many are before it, in the step or in the run */
    uint8_t op;
    uint64_t bytes;
    int64_t size; /* ranks of the communicator */
    int64_t idle; /* time in which the device did nothing, between the end of the one before and this one's start */
    int64_t time; /* from the start of the one before to this one's */
};

struct rank_facts {
    struct work_fact *work;
    size_t works, work_capacity;
    struct gap_fact *gap;
    size_t gaps, gap_capacity;
    size_t devices; /* that computed; with several of them there are no facts of work */
    bool has_steps;
};

/* Takes the facts of the chosen work and collectives. `parts` are the collectives of the process, with their steps. */
struct rank_facts *facts_take(struct scope *scope, const struct comm_summary *parts);
void facts_free(struct rank_facts *facts);

#endif
