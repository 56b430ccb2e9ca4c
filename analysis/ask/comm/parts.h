/* parts.h - makes the summary of collectives of all chosen ranks. */
#ifndef TFA_COMM_PARTS_H
#define TFA_COMM_PARTS_H

#include "ask/comm/summary.h"
#include "ask/selection.h"

struct comm_job {
    struct comm_summary summary; /* of all ranks */
    size_t ranks;                /* with collectives */
    size_t runs;                 /* traces of separate times, or of worlds of different size */
    size_t clocks;               /* clocks in use */
    size_t without_axis;         /* traces with collectives whose times are not of the axis that ranks share */
    uint64_t restarts;           /* sequence numbers that restarted */
};

/* Returns the parts of the model to load. */
unsigned comm_wants(const struct options *options);
/* Summarises the ranks with up to --jobs threads, and unites their summaries. `stages`: also finds the stage of each
 * part, for which the model needs what comm_wants loads with --stage. */
void comm_collect(struct comm_job *job, const struct selection *chosen, bool stages);
void comm_job_free(struct comm_job *job);

#endif
