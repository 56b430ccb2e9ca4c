/* tracelens.h - collectives by TraceLens's rules (NcclAnalyser): which kernels count, and what is said of them. */
#ifndef TFA_COMM_TRACELENS_H
#define TFA_COMM_TRACELENS_H

#include "ask/comm/summary.h"
#include "model/model.h"

/* Iterates over the kernels of a process that TraceLens takes for collectives; set `process` and `names`, the rest
 * zero. */
struct tracelens_kernels {
    const struct process *process;
    const struct names *names;
    struct map communicates; /* by name */
    size_t next;
    uint32_t work; /* the current kernel */
};
bool tracelens_next(struct tracelens_kernels *kernels, const struct collective **collective);

/* Changes a part of the current kernel to what TraceLens knows of it. */
void tracelens_change(struct comm_part *part, const struct tracelens_kernels *kernels,
                      const struct collective *collective);

/* True if no kernel has a communicator and each rank's kernels are on one stream: unknown collectives count too. */
bool tracelens_is_simple(const struct comm_summary *summary);

/* Computes a row as TraceLens does. Returns false if the collective is in none of its tables. */
struct comm_row;
bool tracelens_row(struct comm_row *row, const struct names *names, bool simple);
int64_t tracelens_wait(const struct comm_row *row, const struct comm_part *part);

#endif
