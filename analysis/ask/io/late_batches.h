/* late_batches.h - the batches of DataLoaders that were waited for, and what was read for them.
 *
 * A batch is late if it was not finished when its process began to wait for it. Idle device time waited for a late
 * batch if the process that made the batch was in a call on files meanwhile, between the begin of the wait and the end
 * of the batch. This is the idle time of that process's calls (ranks.h), by batch. Only the first MOST late batches in
 * their order are kept.
 */
#ifndef TFA_LATE_BATCHES_H
#define TFA_LATE_BATCHES_H

#include "ask/io/ranks.h"

struct io_late {
    int64_t rank, worker, pid; /* of the process that made it; worker is -1 if that is the loader's own */
    int64_t number;            /* in its epoch; -1: unknown */
    int64_t requested;         /* -1: unknown */
    int64_t begun, arrived;    /* when it was made */
    int64_t asked, wait;       /* when the wait for it began, and how long it lasted */
    int64_t idle;              /* -1: unknown, because the rank has no device work */
    const struct io_batches *batches;
    const struct io_kept *kept; /* its calls on files; NULL: not kept */
};

struct io_lates {
    struct io_late *late;
    size_t count, capacity;
    size_t most;           /* 0: they are not asked for */
    uint64_t waits, found; /* for batches, and for late ones */
    int64_t waited, idle;  /* of all late ones; idle is -1 if unknown */
};

/* Adds the late batches of a rank, whose summaries must stay until the last use of `lates`. */
void io_lates_add(struct io_lates *lates, const struct io_rank *rank);
/* Sorts what is kept: the most idle time first, then the longest wait. */
void io_lates_settle(struct io_lates *lates);
void io_lates_free(struct io_lates *lates);

#endif
