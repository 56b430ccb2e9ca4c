/* worker.h - declares a thread of the library's own: it blocks all signals, and a fork ends it. */
#ifndef TFI_WORKER_H
#define TFI_WORKER_H

#include <signal.h>

#include "base/bare_thread.h"
#include "base/sys.h"

struct tfi_worker {
    /* Set by the owner: runs in the thread until tfi_worker_must_stop(). */
    void (*loop)(struct tfi_worker *worker);
    bool calls_others;    /* set by the owner: the loop calls other libraries, so it needs a thread of libc */
    bool is_idle;         /* set by the owner: the loop just returns where all threads of the program have ended */
    pid_t asleep_in;      /* set by the owner: the process that may have the thread before it wakes; 0: none */
    struct tfi_lock lock; /* held while starting or stopping the thread */
    struct tfi_bare_thread bare;
    uint32_t ended; /* futex of a thread of libc */
    pid_t tid;      /* 0 until the thread has begun */
    bool running;   /* started, and not seen to have ended */
    uint32_t stop;
    uint32_t forking;
    uint32_t signal;    /* futex: counts calls of tfi_worker_signal() */
    uint64_t cpu_ns;    /* counted so far */
    uint64_t next_look; /* nanoseconds: when tfi_worker_is_left_alone() looks again */
    sigset_t mask;      /* of the thread that started a thread of libc */
};

/* Starts `run(data)` in a detached thread of libc, with the caller's signal mask; false if it can't be started. Set in the
 * constructor: what it calls takes locks and allocates. */
extern bool (*tfi_libc_thread_start)(void *(*run)(void *), void *data);

/* Starts the thread if it does not run; false if it can't be started now. A worker that calls others must not be started
 * where a lock of libc may be held. */
bool tfi_worker_start(struct tfi_worker *worker);

/* Wakes the thread. Takes no lock. */
void tfi_worker_signal(struct tfi_worker *worker);

/* Ends the thread; waits at most `ms` milliseconds. True if it has ended, or if it is the caller. */
bool tfi_worker_stop(struct tfi_worker *worker, unsigned ms);

/* The same at the end of a trace: once the time is over it goes on for up to ten seconds while the thread runs or only lacks
 * a processor. */
bool tfi_worker_end(struct tfi_worker *worker, unsigned ms);

/* Called before and after a fork; in between the thread is not started. The first one waits for the thread's end: up to
 * two seconds if the thread only lacks a processor, otherwise up to twice `ms` milliseconds; with 0 it never waits. True
 * if the thread has ended. */
bool tfi_worker_before_fork(struct tfi_worker *worker, unsigned ms);
void tfi_worker_after_fork(struct tfi_worker *worker);

/* Between these two calls this process starts no such thread: its interpreter counts threads at a fork. A hold ends by
 * itself after a second, because the second call may be missed. Take no lock. */
void tfi_workers_hold(void);
void tfi_workers_release(void);

/* Forgets the thread of a parent process. */
void tfi_worker_restart(struct tfi_worker *worker);

/* ---- for the loop ---- */

bool tfi_worker_must_stop(struct tfi_worker *worker);

/* Returns the count of signals so far, for tfi_worker_sleep(). */
uint32_t tfi_worker_signals(struct tfi_worker *worker);

/* Sleeps at most `ms` milliseconds, not at all if there was a signal after `seen` was read. Counts the thread's
 * processor time first. */
void tfi_worker_sleep(struct tfi_worker *worker, uint32_t seen, unsigned ms);
void tfi_worker_sleep_ns(struct tfi_worker *worker, uint32_t seen, uint64_t ns);

/* True if all threads of the program have ended, so that only such threads keep the process, and this one is to end it:
 * a worker that calls others comes first, because the last records of the device are its. `status` is that of the
 * process's first thread. Looks at most twice a second. */
bool tfi_worker_is_left_alone(struct tfi_worker *worker, int *status);
/* Ends the trace and then the process, as it would have ended without us. If it returns, the loop must return. */
void tfi_worker_end_process(struct tfi_worker *worker, int status);

/* Returns how many such threads this process has. */
uint32_t tfi_workers_alive(void);

/* Returns the processor time that all such threads have used for this trace. */
uint64_t tfi_workers_cpu_ns(void);
void tfi_workers_cpu_restart(void);

#endif
