/* counters.h - CUPTI's counter ranges, each with the operators around its launch.
 *
 * A profiler of counters runs one kernel at a time, and its ranges have no correlation ids. So the n-th range of a process
 * belongs to its n-th launch of a kernel, provided there are as many launches as ranges; otherwise the launches are
 * unknown. Other links do not exist in such a trace.
 */
#ifndef TFA_COUNTERS_H
#define TFA_COUNTERS_H

#include "ask/hta_frame.h"

enum { COUNTERS_WANT = WANT_COUNTERS | WANT_RANGES | WANT_LAUNCHES | WANT_LAUNCHERS };

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

/* Collects all ranges of a process that is loaded with COUNTERS_WANT. With `frame`, those of HTA 0.5.0
 * (get_cupti_counter_data_with_operators): its rows, its rounding, and only cudaLaunchKernel as a launch. */
void counters_of(struct counter_rows *rows, const struct process *process, const struct hta_frame *frame,
                 const struct names *names);
void counters_free(struct counter_rows *rows);

#endif
