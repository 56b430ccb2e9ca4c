/* io_uring.c - submits operations on files through liburing, in a directory; prints each one and what must be recorded.
 *
 *   io_uring DIRECTORY          a line for each operation: name, result, requested bytes, offset, descriptor, path
 *   io_uring DIRECTORY leave    ends with a read of an empty pipe in flight, and prints nothing
 *
 * It ends with 77 if no ring can be made. It takes completions from the ring itself, as the functions of liburing's
 * header do.
 */
#include "victims/uring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static struct io_uring ring;
static char dir[512], buf[4096];

#define A(pointer) ((uint64_t)(uintptr_t)(pointer)) /* as a submission has it */

static struct io_uring_sqe *sqe(int opcode, int fd, uint64_t addr, unsigned len, uint64_t off, uint64_t user_data)
{
    struct io_uring_sqe *s = io_uring_get_sqe(&ring);
    memset(s, 0, sizeof *s);
    s->opcode = (uint8_t)opcode;
    s->fd = fd;
    s->addr = addr;
    s->len = len;
    s->off = off;
    s->user_data = user_data;
    return s;
}

/* Takes one completion by the ring's memory; waits in a function of the library if there is none. */
static int take(uint64_t *user_data)
{
    unsigned head = *ring.cq.khead;
    struct io_uring_cqe *cqe = NULL;
    if (head == __atomic_load_n(ring.cq.ktail, __ATOMIC_ACQUIRE)) {
        errno = EXDEV;
        if (__io_uring_get_cqe(&ring, &cqe, 0, 1, NULL) != 0 || errno != EXDEV) exit(3);
    }
    cqe = &ring.cq.cqes[head & *ring.cq.kring_mask];
    *user_data = cqe->user_data;
    int result = cqe->res;
    __atomic_store_n(ring.cq.khead, head + 1, __ATOMIC_RELEASE);
    return result;
}

/* Takes the completion of the only operation in flight. */
static int one(void)
{
    uint64_t user_data;
    return take(&user_data);
}

static void say(const char *name, long result, long bytes, long offset, int fd, const char *path)
{
    printf("%s %ld %ld %ld %d %s\n", name, result, bytes, offset, fd, path ? path : "-");
}

static const char *at(const char *name)
{
    static char paths[4][600];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, 600, "%s/%s", dir, name);
    return path;
}

/* Opens, writes twice, syncs, reads with a vector, and fails once; each is alone in flight. */
static int single(void)
{
    const char *path = at("a");
    struct iovec parts[20];
    for (int i = 0; i < 20; i++) parts[i] = (struct iovec){buf + i, 1};
    sqe(IORING_OP_OPENAT, AT_FDCWD, A(path), 0600, 0, 1)->open_flags = O_RDWR | O_CREAT;
    if (io_uring_submit(&ring) != 1) exit(4);
    int fd = one();
    say("io_uring_openat", fd, 0, -1, -1, path);
    sqe(IORING_OP_WRITE, fd, A(buf), 100, 0, 2);
    io_uring_submit_and_wait(&ring, 1);
    say("io_uring_write", one(), 100, 0, fd, path);
    sqe(IORING_OP_FSYNC, fd, 0, 0, 0, 4);
    io_uring_submit(&ring);
    say("io_uring_fsync", one(), 0, -1, fd, path);
    sqe(IORING_OP_READV, fd, A(parts), 20, 90, 5);
    io_uring_submit(&ring);
    say("io_uring_readv", one(), 20, 90, fd, path);
    sqe(IORING_OP_READV, fd, 16, 20, 0, 6); /* no such memory */
    io_uring_submit(&ring);
    say("io_uring_readv", one(), 0, 0, fd, path);
    sqe(IORING_OP_OPENAT, AT_FDCWD, 16, 0, 0, 7);
    io_uring_submit(&ring);
    say("io_uring_openat", one(), 0, -1, -1, NULL);
    return fd;
}

/* Several in flight, among them one that is no operation on a file, a pipe, a registered file, and a common number. */
static void several(int fd)
{
    struct io_uring_cqe *cqes[16];
    int pair[2];
    if (syscall(SYS_pipe2, pair, 0) != 0 || io_uring_register_files(&ring, &fd, 1) < 0) exit(5);
    sqe(IORING_OP_NOP, -1, 0, 0, 0, 20);
    sqe(IORING_OP_WRITE, pair[1], A(buf), 7, 0, 21);
    for (unsigned i = 0; i < 3; i++) sqe(IORING_OP_READ, fd, A(buf), 10 + i, 96, 22 + i);
    sqe(IORING_OP_READ, 0, A(buf), 30, 50, 25)->flags = IOSQE_FIXED_FILE;
    sqe(IORING_OP_READ, fd, A(buf), 40, 1, 26);
    sqe(IORING_OP_READ, fd, A(buf), 41, 2, 26);
    sqe(IORING_OP_RENAMEAT, AT_FDCWD, A(at("a")), (unsigned)AT_FDCWD, A(at("b")), 27);
    io_uring_submit_and_wait(&ring, 9);
    if (io_uring_peek_batch_cqe(&ring, cqes, 16) != 9) exit(6);
    for (int i = 0; i < 9; i++) one();
    for (int i = 0; i < 3; i++) say("io_uring_read", 4, 10 + i, 96, fd, at("a"));
    say("io_uring_read", 30, 30, 50, -1, NULL);
    for (int i = 0; i < 2; i++) printf("io_uring_read unknown %d %d %d %s\n", 40 + i, 1 + i, fd, at("a"));
    say("io_uring_renameat", 0, 0, -1, -1, at("a"));
}

/* Gives many operations the same number, one after the other. */
static void repeated(int fd)
{
    for (int i = 0; i < 200; i++) {
        sqe(IORING_OP_READ, fd, A(buf), 1, (unsigned)i % 100, 9);
        io_uring_submit(&ring);
        say("io_uring_read", one(), 1, i % 100, fd, at("a"));
    }
}

/* Ends the process while a read is in flight. */
static int leave(void)
{
    int pair[2];
    if (syscall(SYS_pipe2, pair, 0) != 0) return 5;
    sqe(IORING_OP_READ, pair[0], A(buf), 6, UINT64_MAX, 40);
    return io_uring_submit(&ring) == 1 ? 0 : 4;
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    snprintf(dir, sizeof dir, "%s", argv[1]);
    int error = io_uring_queue_init(16, &ring, 0);
    if (error) return fprintf(stderr, "io_uring_queue_init: %s\n", strerror(-error)), 77;
    if (argc > 2) return leave();
    int fd = single();
    several(fd);
    repeated(fd);
    sqe(IORING_OP_CLOSE, fd, 0, 0, 0, 30);
    io_uring_submit(&ring);
    say("io_uring_close", one(), 0, -1, fd, at("a"));
    sqe(IORING_OP_READ, 99, A(buf), 5, 0, 31);
    io_uring_submit(&ring);
    say("io_uring_read", one(), 5, 0, 99, NULL);
    io_uring_queue_exit(&ring);
    return 0;
}
