/* counter_rows.h - CUPTI's counter ranges, each with the operators around its launch.
 *
 * A profiler of counters runs one kernel at a time, and its ranges have no correlation ids. So the n-th range of a process
 * belongs to its n-th launch of a kernel, provided there are as many launches as ranges; otherwise the launches are
 * unknown. Other links do not exist in such a trace.
 */
#ifndef TFA_COUNTER_ROWS_H
#define TFA_COUNTER_ROWS_H

#include "ask/selection.h"
#include "base/sets/intervals.h"

struct counter_row {
    uint32_t range;       /* index in process->counters.range */
    uint64_t number;      /* its place by time, from 0 */
    uint32_t launch;      /* the call, an index in process->spans; NO_PLACE: unknown */
    uint32_t top, bottom; /* the outermost and the innermost operator around it; NO_PLACE: none */
    bool has_flops;
    double flops; /* floating-point operations by the SASS counters; a fused multiply-add is two */
};

struct counter_rows {
    const struct process *process;
    struct counter_row *row; /* by start */
    size_t count;
    size_t launches; /* launches of kernels in the process, also if they do not fit */
    uint32_t *outer; /* by span: the operator around an operator, or NO_PLACE */
};

/* Which rows count by other rules than ours, when they ran, and which calls launch. */
struct counter_rules {
    struct interval (*times)(const struct process *process, int64_t start, int64_t end);
    bool (*keeps)(const void *context, int64_t start);
    const char *launch;  /* with which the name of a call that launches begins */
    const char *without; /* what it means that ranges and launches differ in number: there are no rows then */
};

/* Collects all ranges of a process that is loaded with the command's needs. `rules` NULL: by ours. */
void counters_of(struct counter_rows *rows, const struct process *process, const struct counter_rules *rules,
                 const void *context, const struct names *names);
void counters_free(struct counter_rows *rows);

#endif
