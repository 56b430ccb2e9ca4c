/* uring.h - declares the part of liburing that io_uring.c uses, so that the tests build without liburing's header.
 *
 * The stand-in (liburing_standin.c) has the same functions and fills the same structures.
 */
#ifndef URING_H
#define URING_H

#include <linux/io_uring.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct io_uring {
    struct {
        unsigned *khead, *ktail, *kring_mask, *kring_entries, *kflags, *kdropped, *array;
        struct io_uring_sqe *sqes;
        unsigned sqe_head, sqe_tail;
        size_t ring_sz;
        void *ring_ptr;
        unsigned pad[4];
    } sq;
    struct {
        unsigned *khead, *ktail, *kring_mask, *kring_entries, *kflags, *koverflow;
        struct io_uring_cqe *cqes;
        size_t ring_sz;
        void *ring_ptr;
        unsigned pad[4];
    } cq;
    unsigned flags;
    int ring_fd;
    unsigned room[16];
};

int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
void io_uring_queue_exit(struct io_uring *ring);
int io_uring_register_files(struct io_uring *ring, const int *files, unsigned n);
struct io_uring_sqe *io_uring_get_sqe(struct io_uring *ring);
int io_uring_submit(struct io_uring *ring);
int io_uring_submit_and_wait(struct io_uring *ring, unsigned n);
int __io_uring_get_cqe(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned submit, unsigned n, sigset_t *mask);
unsigned io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned n);

#endif
