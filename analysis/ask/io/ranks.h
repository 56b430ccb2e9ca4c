/* ranks.h - relates the calls on files of a rank's processes to its computation and to the idle time of its devices.
 *
 * A rank's devices are idle between their first and their last work whenever none of them works. Idle time waits for a
 * call on a file in two cases:
 * (1) a thread that launches device work, or that waits for the DataLoader, is in the call itself;
 * (2) a process waits for a batch, and the worker that makes the late batch is in the call. The late batch of a wait is
 *     the one that the loader hands over in it. A trace without records of this gives the last one that a worker
 *     finished before the wait ended, since its arrival ends the wait. Without records of batches, each process of the
 *     rank that neither waits nor launches device work counts as that worker.
 * (2) alone decides for a process that makes batches.
 */
#ifndef TFA_IO_RANKS_H
#define TFA_IO_RANKS_H

#include "ask/io/io_reduction.h"
#include "base/sets/measure.h"

enum io_role { IO_OWN, IO_WORKER, IO_HELPER }; /* case (1), case (2), case (2) without records of batches */

/* A wait for a batch that was not finished when the wait began. */
struct io_late_wait {
    struct io_batch wait;
    size_t process;    /* that made the batch */
    size_t batch;      /* index in its batches.made */
    int64_t requested; /* -1: unknown */
};

struct io_rank {
    int64_t rank;
    struct io_taken **taken;
    size_t processes;
    bool has_device;
    struct intervals device;
    struct intervals compute; /* `device`; in a rank without device work, that of its host threads */
    int64_t computed;         /* the time in `compute` */
    struct intervals idle;
    struct io_late_wait *late; /* by waiting process, then by the end of the wait */
    size_t lates, late_capacity;
    struct intervals asked;   /* waits for batches */
    enum io_role *role;       /* by process */
    struct intervals *window; /* by process, of workers: the part of `idle` that waits for their batches */
    struct intervals
        shared; /* the part of `idle` in which a process waits for a batch; only without records of batches */
    struct measure computing, idling, *waiting, sharing; /* of compute, idle, window and shared */
};

/* `taken` are the processes of one rank. */
void io_rank_init(struct io_rank *rank, struct io_taken **taken, size_t processes);
void io_rank_free(struct io_rank *rank);
/* Returns the idle time that waited for the calls of a row of one of the processes. */
int64_t io_rank_idle(const struct io_rank *rank, size_t process, const struct io_row *row);
/* Returns the idle time that waited for any call of `count` processes from the process `from` on: of one, or of all. */
int64_t io_rank_idle_time(const struct io_rank *rank, size_t from, size_t count);

#endif
