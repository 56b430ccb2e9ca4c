/* io_reduction.h - the calls on files of one process, added up by the rows of an answer.
 *
 * A summary also keeps what relates these calls to the device and to other processes of the rank: the device's work, the
 * times the process waited for a batch of torch's DataLoader, and the times in which it made one. A summary holds sums,
 * counts of distinct sizes, 16 bytes for each stretch of time and at most 56 for each batch; the calls themselves are
 * freed.
 *
 * A worker has no stages of its own. With a filter by stage or step its calls count while such a stage or step is open in
 * another process of its rank.
 */
#ifndef TFA_IO_REDUCTION_H
#define TFA_IO_REDUCTION_H

#include "ask/io/batches.h"
#include "ask/io/buckets.h"
#include "ask/io/files.h"
#include "ask/io/sizes.h"
#include "ask/reduction.h"
#include "base/sets/intervals.h"

/* The calls of one row. */
struct io_row {
    uint32_t function, path; /* NAME_NONE: the row has calls of several */
    uint64_t calls, errors;
    uint64_t bytes;            /* moved bytes */
    int64_t total, moving;     /* summed durations; `moving` of the calls that read, write or copy */
    struct sizes sizes;        /* of calls that moved at least a byte */
    bool has_sums;             /* some calls are known as sums only, so quartiles are not known */
    int64_t smallest, largest; /* of those sums; -1: none */
    struct intervals when;     /* merged */
    struct intervals waited;   /* merged: calls of the threads that wait for batches or launch device work */
    struct io_file *file;      /* NULL: not asked for */
};

struct io_taken {
    int64_t rank, pid, worker; /* worker: its number in the DataLoader, -1: not a worker */
    int64_t first, last;       /* bounds of all events; first is above last: none */
    struct map place;          /* index in `row` by function or path */
    struct io_row *row;
    size_t rows, capacity;
    uint64_t calls;
    bool lacks_calls;         /* stages were selected: calls outside them are not in the trace */
    struct map paths;         /* of files, by name */
    struct intervals device;  /* merged: work of devices */
    struct intervals compute; /* merged: the process's own computation, where the rank has no device work */
    struct intervals asked;   /* merged: batches of a DataLoader, and readers of a .pfw trace */
    struct io_batches batches;
    struct io_buckets timeline;
};

/* Makes a struct io_taken of the calls of a process that the filters choose. */
struct needs io_needs(const struct options *options);
extern const struct reduction io_reduction;
void io_row_add(struct io_row *row, const struct io_row *from); /* all but function and path; leaves `from` unchanged */
void io_row_free(struct io_row *row);

#endif
