/* parts.h - makes the summary of collectives of all chosen ranks. */
#ifndef TFA_COMM_PARTS_H
#define TFA_COMM_PARTS_H

#include "ask/comm/comm_reduction.h"

struct comm_job {
    struct comm_summary summary; /* of all ranks */
    size_t ranks;                /* with collectives */
    size_t runs;                 /* groups of traces: separate times, and worlds of different size, are several */
    size_t clocks;               /* clocks in use */
    size_t without_axis;         /* traces with collectives whose times are not of the axis that ranks share */
    struct comm_replays replays;
    uint64_t restarts; /* sequence numbers that restarted */
};

/* Summarises the ranks with up to --jobs threads, and unites their summaries. `taken` has a struct comm_taken for each
 * chosen process, which is empty afterwards. */
void comm_collect(struct comm_job *job, const struct selection *chosen, void *const *taken);
void comm_job_free(struct comm_job *job);

#endif
