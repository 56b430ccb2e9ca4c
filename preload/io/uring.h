/* uring.h - describes io_uring's operations on files, and keeps them until their completion is seen. */
#ifndef TFI_IO_URING_H
#define TFI_IO_URING_H

#include <linux/io_uring.h>

#include "io/io.h"

/* One operation: its description, and the second file of rename, link and splice. */
struct tfi_uring_op {
    struct tfi_io io; /* no `file`: not an operation on a file */
    const struct tfi_path *other;
    uint32_t row; /* in io/uring_ops.def */
};

/* Describes a submission; false if it is no operation on a file. Reads names and vectors of the program only where the
 * kernel says that they are readable. */
bool tfi_uring_describe(struct tfi_uring_op *op, const struct io_uring_sqe *sqe);

/* Number of the operation's name in the trace; the thread's guard is set. */
uint32_t tfi_uring_name(const struct tfi_thread *thread, uint32_t row);

/* Writes the record of an operation; the thread's guard is set. A `result` of TFI_IO_RESULT_UNKNOWN: no completion was
 * seen. */
void tfi_uring_write(struct tfi_thread *thread, const struct tfi_uring_op *op, int64_t result);

/* Writes operations without a seen completion at the end of a trace, when no thread is in the recorder any more. */
void tfi_uring_finish(void);

/* ---- uring_pending.c: the operations in flight; all functions need the lock of uring.c ---- */

enum { TFI_RINGS = 64 };

/* Adds an operation of a ring, with `recorded` false only so that its completion is not taken for another one's. If its
 * number stands for two operations at a time, or there is no room, it is written at once. */
void tfi_uring_add(struct tfi_thread *thread, uint32_t ring, uint64_t user_data, const struct tfi_uring_op *op,
                   bool recorded);

/* Writes and removes the operation that a completion is for, if it is known. */
void tfi_uring_complete(struct tfi_thread *thread, uint32_t ring, uint64_t user_data, int32_t result);

/* Writes and removes all operations of a ring, without results; of all rings if `ring` is TFI_RINGS. */
void tfi_uring_give_up(struct tfi_thread *thread, uint32_t ring);

/* Forgets all operations without writing them: they belong to another trace. */
void tfi_uring_reset(void);

#endif
