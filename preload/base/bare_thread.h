/* bare_thread.h - starts a thread of the kernel that the C library does not know, without a lock and without malloc. */
#ifndef TFI_BARE_THREAD_H
#define TFI_BARE_THREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct tfi_bare_thread {
    char *memory;   /* stack and thread-local variables; kept for the next thread */
    pid_t tid;      /* of the last thread */
    pid_t alive;    /* futex: 0 once the thread has ended */
    uint32_t begun; /* futex: 1 once it has its own table of descriptors */
    bool leaves;    /* it begins in the program's table, and leaves that itself */
    void (*run)(void *);
    void *data;
};

/* Where the thread-local variables lie of the objects that were loaded with the program; thread_variables.c finds out. */
struct tfi_thread_variables {
    size_t below; /* bytes below the thread register; 0: none can be made */
    uint32_t count;
    struct {
        size_t below; /* where the variables of the object begin, below the thread register */
        const void *image;
        size_t bytes;
    } module[64];
};
extern struct tfi_thread_variables tfi_thread_variables;

/* Notes them. Called in the constructor. */
void tfi_thread_variables_constructor(void);

/* Starts `run(data)`, with all signals blocked and an empty table of descriptors; false if it can't be started. May be
 * called anywhere: in a signal handler, in the child of a fork, in an allocator. */
bool tfi_bare_thread_start(struct tfi_bare_thread *thread, void (*run)(void *), void *data);

/* Says which descriptor of the program's the next bare threads take over into their tables; -1: none. */
void tfi_bare_thread_takes_over(int fd);

/* True in a bare thread. */
bool tfi_bare_thread_here(void);

/* Waits at most `ms` milliseconds until the thread has ended; true if it has. */
bool tfi_bare_thread_wait(struct tfi_bare_thread *thread, unsigned ms);

#endif
