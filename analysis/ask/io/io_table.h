/* io_table.h - the rows of `io`: calls on files of all chosen processes, by function, file, process or worker.
 *
 * unoverlapped is measured in each rank and summed: the time in which some call of the row ran and the rank computed
 * nothing. Processes of one rank share its computation, because a worker reads for the process that computes.
 */
#ifndef TFA_IO_TABLE_H
#define TFA_IO_TABLE_H

#include "ask/io/late_batches.h"

struct io_line {
    struct io_row row;
    int64_t rank, pid, worker; /* -1: the line has calls of several, or unknown */
    int64_t unoverlapped;
    int64_t idle; /* -1: unknown, because no rank of the line has device work */
};

/* Sums of one rank, or of one process of it. */
struct io_sums {
    int64_t rank, pid, worker;
    uint64_t processes, files, calls, bytes;
    int64_t total, moving;
    int64_t span;                                 /* last end less first start of all events; -1: none */
    int64_t io, asked, compute;                   /* unions */
    int64_t alone_io, alone_asked, alone_compute; /* less compute; less compute; less io and asked */
    int64_t idle;                                 /* as in struct io_line */
};

struct io_table {
    struct io_line *line;
    size_t lines, capacity;
    struct map place; /* index in `line` by key */
    struct io_sums *sums;
    size_t sum_count, sum_capacity;
    struct io_sums all;
    struct io_buckets timeline;
    struct io_lates lates; /* with --layout batches */
    bool lacks_calls;      /* of a process, and --stage is not given */
};

/* Unites the summaries of the chosen processes. `taken` has a struct io_taken for each. */
void io_table_collect(struct io_table *table, const struct selection *chosen, void *const *taken);
/* Sorts the lines: the most idle time first, then the longest total. */
void io_table_sort(struct io_table *table, const struct names *names);
void io_table_free(struct io_table *table);

#endif
