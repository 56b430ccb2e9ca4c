/* idle_gaps.h - divides the idle time of each stream by its cause. */
#ifndef TFA_IDLE_GAPS_H
#define TFA_IDLE_GAPS_H

#include "ask/reduction.h"

enum idle_cause { IDLE_HOST, IDLE_KERNEL, IDLE_OTHER, NR_IDLE_CAUSES };

struct idle_row {
    int64_t rank, device, stream; /* device -1: unknown, or all together */
    uint64_t works;
    bool unknown; /* some work of the stream is not in the trace */
    int64_t time[NR_IDLE_CAUSES];
};

struct idle_rows {
    struct idle_row *row;
    size_t count, capacity;
    uint64_t works; /* chosen works of all rows */
    bool unknown;   /* of some row */
};

/* Makes a struct idle_rows of the work of a process that the filters choose. */
extern const struct reduction idle_reduction;
/* Unites the rows of all processes by rank, device and stream, in this order. */
void idle_collect(struct idle_rows *rows, void *const *taken, size_t count);
void idle_free(struct idle_rows *rows);

#endif
