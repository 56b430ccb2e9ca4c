/* sys.h - the few system services the recorder uses, none of which allocates or is a cancellation point. */
#ifndef TFI_SYS_H
#define TFI_SYS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tfi.h"

/* A lock of three states on a futex: free, held, held and waited for. The upper bits say in which process: what a thread
 * of the parent held when it forked is free in the child. Its holder takes no signals, so that no handler jumps away
 * with it. */
struct tfi_lock {
    uint32_t word;
    uint32_t
        given_up; /* somebody has waited for nothing: the holder hangs, or was killed alone. Nobody waits meanwhile */
    tfi_frame frame; /* of the function that took it by tfi_lock_quick(); 0 else */
    bool masked;     /* that one keeps signals away all the same */
};

/* Waits a second at most; false, and counted, if it was not to be had: the caller gives up what it was about to do. */
__attribute__((warn_unused_result)) bool tfi_lock(struct tfi_lock *lock);
/* Waits at most `ms` milliseconds; false if it was not to be had. */
bool tfi_lock_within(struct tfi_lock *lock, unsigned ms);
void tfi_unlock(struct tfi_lock *lock);

/* The same for what is held for some ten nanoseconds, many times a second, where two changes of the signal mask would
 * cost more than all the rest. Signals are kept away only once a jump out of the recorder was seen in this program. The
 * first one may leave the lock held: then whoever comes next takes it over, so what it protects has to be usable, if not
 * right, at every point. The function that takes it gives it back by tfi_unlock_quick(). */
#define tfi_lock_quick(lock) tfi_lock_quick_from(lock, TFI_FRAME)
__attribute__((warn_unused_result)) bool tfi_lock_quick_from(struct tfi_lock *lock, tfi_frame frame);
void tfi_unlock_quick(struct tfi_lock *lock);

/* Keeps signals from the calling thread and lets them come again; calls may be nested. A handler that jumps out of what
 * lies between would leave it half done. Those that a fault raises are not kept: the kernel kills a process that
 * blocks them. */
void tfi_signals_off(void);
void tfi_signals_on(void);

/* Reads a word that may not be mapped any more; false if it is not. */
bool tfi_peek(uintptr_t address, uintptr_t *word);

/* Turns cancellation of the calling thread off and on again, round anything that holds a lock. The type is changed too:
 * in glibc up to 2.36 an asynchronous request that is already under way ignores the state. */
int tfi_cancel_off(void);
void tfi_cancel_on(int before);

void tfi_futex_wait(uint32_t *word, uint32_t value, unsigned ms);
void tfi_futex_wake(uint32_t *word);

/* The kernel's answers, not a cached one: they differ in a vfork child. */
pid_t tfi_getpid(void);
pid_t tfi_gettid(void);

uint64_t tfi_monotonic_ns(void);
uint64_t tfi_realtime_ns(void);

/* Lets MEMBARRIER_CMD_PRIVATE_EXPEDITED be used in this process. */
void tfi_register_barrier(void);

/* Zeroed private memory, NULL if there is none. */
void *tfi_map(size_t bytes);

#endif
