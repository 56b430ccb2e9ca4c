/* batches.h - the batches of DataLoaders in one process: those it made, waited for and handed over, and their reads.
 *
 * A worker makes batches, and so does a process whose DataLoader has no workers. Which batch is late is known only beside
 * the other processes of the rank. Therefore the calls on files of each batch are added up while its process is read,
 * and kept for the BATCHES_KEPT (with a larger --top: N) batches whose calls took longest; each keeps the FILES_KEPT
 * files whose reads took longest. A batch without calls on files in this list costs 24 bytes.
 */
#ifndef TFA_IO_BATCHES_H
#define TFA_IO_BATCHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct io_scope;

enum { BATCHES_KEPT = 1024, FILES_KEPT = 16 };

/* A stretch of time in which one batch was waited for or made. */
struct io_batch {
    int64_t start, end;
    int64_t number; /* in its epoch; -1: unknown, or a wait */
};

/* A batch of a worker that the process of the loader handed over. */
struct io_hand {
    int64_t start, end;  /* when it was requested, and handed over */
    int64_t number, pid; /* of the worker */
};

/* The reads of one file for one batch. */
struct io_read {
    uint32_t batch; /* index in `made` */
    uint32_t path, order;
    uint64_t calls, bytes;
    int64_t total;
};

/* All calls on files for one batch. */
struct io_kept {
    uint32_t batch; /* index in `made` */
    uint64_t calls, bytes;
    int64_t total;      /* summed durations */
    size_t files;       /* that it read */
    size_t read, reads; /* the first of its reads in `read`, and their number */
};

struct io_batches {
    bool by_worker; /* `made` has the batches of a worker, otherwise those that the loader's own process made */
    struct io_batch *made, *wait; /* sorted by end */
    struct io_hand *hand;         /* sorted by end */
    size_t mades, made_capacity, waits, wait_capacity, hands, hand_capacity;
    struct io_kept *kept; /* sorted by batch */
    size_t kepts;
    struct io_read *read;
    size_t reads, read_capacity;
};

void io_batches_made(struct io_batches *batches, struct io_batch batch);
void io_batches_wait(struct io_batches *batches, int64_t start, int64_t end);
void io_batches_hand(struct io_batches *batches, struct io_hand hand);
/* Sorts all of them, then adds up the calls that the filters choose. All calls of a worker count. In a process that
 * makes its own batches, only calls of threads that wait for batches count. */
void io_batches_settle(struct io_batches *batches, const struct io_scope *scope);
/* Returns the calls of a batch; NULL: they were not kept. */
const struct io_kept *io_batches_kept(const struct io_batches *batches, size_t batch);
void io_batches_free(struct io_batches *batches);

#endif
