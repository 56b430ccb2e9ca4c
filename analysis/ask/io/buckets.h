/* buckets.h - counts calls on files by the time they begin, in a fixed number of stretches of equal length.
 *
 * The stretches are 1 ms long at first, and double whenever the calls last longer than all of them together. So the
 * memory is fixed, and the buckets of two processes are added up at the wider stretches.
 */
#ifndef TFA_IO_BUCKETS_H
#define TFA_IO_BUCKETS_H

#include "model/io_calls.h"

enum { IO_BUCKETS = 128 };

struct io_bucket {
    uint64_t calls, transfers; /* transfers: calls that moved at least a byte */
    uint64_t read_bytes, write_bytes;
    int64_t total, moving; /* summed durations; `moving` of the calls that read, write or copy */
};

struct io_buckets {
    int64_t width; /* nanoseconds */
    int64_t first; /* number of the first bucket: its start / width */
    size_t count;
    struct io_bucket *bucket; /* NULL: no call yet; else IO_BUCKETS, of which `count` are in use */
};

void io_buckets_call(struct io_buckets *buckets, const struct ios *ios, size_t call);
void io_buckets_add(struct io_buckets *buckets, const struct io_buckets *from);
void io_buckets_free(struct io_buckets *buckets);

#endif
