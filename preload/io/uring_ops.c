/* uring_ops.c - describes io_uring's operations on files from their submissions, and writes their records. */
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>

#include "base/fmt.h"
#include "base/process.h"
#include "base/sys.h"
#include "io/uring.h"
#include "record/clock.h"
#include "record/strings.h"
#include "record/thread.h"

#define OP(class, opcode, name, ...) ROW_##name,
enum {
    FIRST_ROW = -1,
#include "io/uring_ops.def"
    NR_ROWS
};
#undef OP

#define OP(class, opcode, name, ...) "uring\x1f" #class "\x1f" #name "\x1f",
static const char names[NR_ROWS][64] = {
#include "io/uring_ops.def"
};
#undef OP

/* Numbers of the names in the trace `gen`; under the lock of uring.c. */
static struct {
    uint32_t string, gen;
} strings[NR_ROWS];

uint32_t tfi_uring_name(const struct tfi_thread *t, uint32_t row)
{
    if (strings[row].gen == t->gen) return strings[row].string;
    strings[row].string = tfi_string(names[row], strlen(names[row]));
    strings[row].gen = t->gen;
    return strings[row].string;
}

/* Fills in the values of the operation's row. */
static bool values_of(struct tfi_uring_op *op, const struct io_uring_sqe *s)
{
    switch (s->opcode) {
#define OP(class, opcode, name, ...)                                                                                   \
    case opcode:                                                                                                       \
        op->row = ROW_##name;                                                                                          \
        op->io = (struct tfi_io){__VA_ARGS__};                                                                         \
        return true;
#include "io/uring_ops.def"
#undef OP
    }
    return false;
}

/* Takes the descriptor away from operations on registered files, and the effect from those that open or close one. */
static void without_registered(struct tfi_io *io, const struct io_uring_sqe *s)
{
    bool moves = io->has_other_fd, fixed = s->flags & IOSQE_FIXED_FILE;
    bool fixed_in = moves && s->splice_flags & SPLICE_F_FD_IN_FIXED;
    bool in_table = io->effect && s->file_index;
    if (moves && fixed) io->has_other_fd = false;
    if (in_table) io->effect = 0;
    if (io->target != TFI_IO_FD || !(moves ? fixed_in : fixed || in_table)) return;
    io->target = TFI_IO_NONE;
    io->fd = -1;
}

enum { MAX_PARTS = 1024 }; /* the kernel takes no more */

/* Sums up the buffers of a vector that may be anywhere: the kernel copies it. */
static uint64_t bytes_of(const struct iovec *parts, uint64_t count)
{
    struct iovec part[16] = {0};
    uint64_t bytes = 0;
    int error = errno;
    for (uint64_t i = 0; i < count && count <= MAX_PARTS; i += TFI_COUNT(part)) {
        size_t n = count - i < TFI_COUNT(part) ? count - i : TFI_COUNT(part);
        struct iovec to = {part, n * sizeof *part}, from = {(void *)&parts[i], n * sizeof *part};
        if (process_vm_readv(tfi_getpid(), &to, 1, &from, 1, 0) != (ssize_t)to.iov_len) break;
        for (size_t k = 0; k < n; k++) bytes += part[k].iov_len;
    }
    errno = error;
    return bytes;
}

bool tfi_uring_describe(struct tfi_uring_op *op, const struct io_uring_sqe *sqe)
{
    struct tfi_io *io = &op->io;
    op->other = NULL;
    if (!values_of(op, sqe)) return false;
    without_registered(io, sqe);
    if (io->parts) io->bytes = bytes_of(io->parts, io->count);
    io->parts = NULL;
    if (io->target == TFI_IO_FD && io->fd >= 0) io->file = tfi_fd_file(io->fd, &io->looked_up);
    else io->file = io->target == TFI_IO_PATH ? tfi_io_file_named(io->dir, io->path) : tfi_path_unknown;
    if (io->other) op->other = tfi_io_file_named(io->other_dir, io->other);
    else if (io->has_other_fd && io->other_fd >= 0) op->other = tfi_fd_file(io->other_fd, &(bool){false});
    io->path = io->other = NULL;
    return true;
}

void tfi_uring_write(struct tfi_thread *t, const struct tfi_uring_op *op, int64_t result)
{
    const struct tfi_io *io = &op->io;
    bool unknown = result == TFI_IO_RESULT_UNKNOWN;
    uint64_t duration = unknown ? 0 : tfi_ticks() - io->call.start;
    int error = !unknown && result < 0 ? (int)-result : 0;
    if (io->effect == TFI_IO_OPENS && result >= 0) tfi_fd_set((int)result, io->file, TFI_POSITION_SHARED);
    tfi_io_write(t, io, op->other, error ? -1 : result, error, duration);
}
