/* slowest.h - the single calls of stages that took longest beyond the median of their stage. */
#ifndef TFA_STAGES_SLOWEST_H
#define TFA_STAGES_SLOWEST_H

#include "ask/scope.h"

struct slow_call {
    const struct process *process;
    size_t range;       /* in process->ranges */
    uint32_t name;      /* of its stage */
    int64_t start, end; /* cut to the window */
    int64_t median;     /* of all chosen calls of its stage, in all processes */
    int64_t worker;     /* number of the DataLoader's worker that made a batch; -1: none */
};

struct slow_calls {
    struct slow_call *call; /* by the time beyond the median, the largest first */
    size_t count, capacity;
};

/* Adds the chosen calls of a process, those of stages and the batches that a DataLoader's worker made. */
void slow_calls_add(struct slow_calls *calls, const struct scope *scope);
/* Finds the medians and sorts, once all processes are added. */
void slow_calls_sort(struct slow_calls *calls);

/* Returns the path on which a call's thread was longest in calls on files, a name, and that time; NAME_NONE: on none. A
 * process that makes a batch reads on several threads as a rule; those count too. */
uint32_t slow_call_file(const struct slow_call *call, int64_t *time);

#endif
