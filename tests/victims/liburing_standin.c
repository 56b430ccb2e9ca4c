/* liburing_standin.c - carries out io_uring operations without the kernel's io_uring, and fills the rings as liburing does.
 *
 * Each submission is carried out at once by a system call, which no hook sees; a read at the
 * current position never completes, as that of an empty pipe. The tests rename it to liburing.so.2.
 */
#include "victims/uring.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ENTRIES = 64, COMPLETIONS = 2 * ENTRIES };

struct rings {
    unsigned sq_head, sq_tail, sq_mask, cq_head, cq_tail, cq_mask;
    struct io_uring_sqe sqes[ENTRIES];
    struct io_uring_cqe cqes[COMPLETIONS];
    int files[4];
};

int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    struct rings *r = calloc(1, sizeof *r);
    if (!r || entries > ENTRIES) return -EINVAL;
    memset(ring, 0, sizeof *ring);
    r->sq_mask = ENTRIES - 1;
    r->cq_mask = COMPLETIONS - 1;
    ring->sq.khead = &r->sq_head;
    ring->sq.ktail = &r->sq_tail;
    ring->sq.kring_mask = &r->sq_mask;
    ring->sq.sqes = r->sqes;
    ring->sq.ring_ptr = r;
    ring->cq.khead = &r->cq_head;
    ring->cq.ktail = &r->cq_tail;
    ring->cq.kring_mask = &r->cq_mask;
    ring->cq.cqes = r->cqes;
    ring->flags = flags;
    ring->ring_fd = -1;
    return 0;
}

void io_uring_queue_exit(struct io_uring *ring)
{
    free(ring->sq.ring_ptr);
}

int io_uring_register_files(struct io_uring *ring, const int *files, unsigned n)
{
    struct rings *r = ring->sq.ring_ptr;
    memcpy(r->files, files, n * sizeof *files);
    return 0;
}

struct io_uring_sqe *io_uring_get_sqe(struct io_uring *ring)
{
    return &ring->sq.sqes[ring->sq.sqe_tail++ & *ring->sq.kring_mask];
}

static long carry_out(const struct rings *r, const struct io_uring_sqe *s)
{
    int fd = s->flags & IOSQE_FIXED_FILE ? r->files[s->fd] : s->fd;
    switch (s->opcode) {
    case IORING_OP_NOP: return 0;
    case IORING_OP_READ: return syscall(SYS_pread64, fd, s->addr, s->len, s->off);
    case IORING_OP_WRITE: return syscall(SYS_pwrite64, fd, s->addr, s->len, s->off);
    case IORING_OP_READV: return syscall(SYS_preadv, fd, s->addr, s->len, s->off, 0);
    case IORING_OP_FSYNC: return syscall(SYS_fsync, fd);
    case IORING_OP_OPENAT: return syscall(SYS_openat, fd, s->addr, s->open_flags, s->len);
    case IORING_OP_RENAMEAT: return syscall(SYS_renameat2, fd, s->addr, s->len, s->addr2, s->rename_flags);
    case IORING_OP_CLOSE: return syscall(SYS_close, fd);
    }
    errno = EINVAL;
    return -1;
}

int io_uring_submit(struct io_uring *ring)
{
    struct rings *r = ring->sq.ring_ptr;
    int n = 0, error = errno;
    for (; ring->sq.sqe_head != ring->sq.sqe_tail; ring->sq.sqe_head++, n++) {
        const struct io_uring_sqe *s = &r->sqes[ring->sq.sqe_head & r->sq_mask];
        if (s->opcode == IORING_OP_READ && s->off == UINT64_MAX) continue;
        long result = carry_out(r, s);
        struct io_uring_cqe *c = &r->cqes[r->cq_tail & r->cq_mask];
        c->user_data = s->user_data;
        c->res = result < 0 ? -errno : (int)result;
        c->flags = 0;
        __atomic_store_n(&r->cq_tail, r->cq_tail + 1, __ATOMIC_RELEASE);
    }
    errno = error;
    return n;
}

int io_uring_submit_and_wait(struct io_uring *ring, unsigned n)
{
    (void)n;
    return io_uring_submit(ring);
}

unsigned io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned n)
{
    struct rings *r = ring->sq.ring_ptr;
    unsigned i = 0;
    for (; i < n && r->cq_head + i != r->cq_tail; i++) cqes[i] = &r->cqes[(r->cq_head + i) & r->cq_mask];
    return i;
}

int __io_uring_get_cqe(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned submit, unsigned n, sigset_t *mask)
{
    (void)submit, (void)n, (void)mask;
    return io_uring_peek_batch_cqe(ring, cqe, 1) ? 0 : -EAGAIN;
}
