/* dfanalyzer.h - the approximation of dftracer-analyzer 0.0.9: sums by second instead of intervals.
 *
 * Its summary of the layer POSIX (categories POSIX and STDIO) adds the calls up twice. First it adds the durations of
 * each function and thread by the second of the clock in which the middle of a call lies. Each of these sums then counts
 * in the second of its earliest call, counted from the first event of all traces. The time of the layer is the sum over
 * these seconds of the longest sum of one thread. Its size is the sum of the bytes that read and write functions
 * returned; failed calls count in the number of calls only.
 */
#ifndef TFA_IO_DFANALYZER_H
#define TFA_IO_DFANALYZER_H

#include "model/io.h"

struct io_slice {
    int64_t second;
    uint32_t process, thread, function;
    int64_t earliest; /* start of the earliest call */
    int64_t total;    /* summed durations */
};

struct io_slices {
    struct io_slice *slice;
    size_t count, capacity;
    size_t settled; /* the first ones are sorted and distinct */
    uint64_t calls, bytes;
};

void io_slices_call(struct io_slices *slices, const struct ios *ios, size_t call);
/* Adds the slices of the process with that number. A process is added once. */
void io_slices_add(struct io_slices *slices, const struct io_slices *from, uint32_t process);
/* Returns the time of the layer and empties the slices; `first` is the time of the first event of all traces. */
int64_t io_slices_time(struct io_slices *slices, int64_t first);
void io_slices_free(struct io_slices *slices);

#endif
