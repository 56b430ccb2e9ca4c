/* replays.h - the calls that were captured in CUDA graphs, and what is unknown of them. */
#ifndef TFA_COMM_REPLAYS_H
#define TFA_COMM_REPLAYS_H

#include "model/model.h"

struct comm_replays {
    struct replays sum;
    uint64_t unknown; /* kernels of communication in graphs, whose captured calls are not in the traces */
};

struct comm_replays comm_replays(const struct process *process, const struct names *names);
void comm_replays_add(struct comm_replays *all, const struct comm_replays *one);

#endif
