/* sys.h - provides the system services that the recorder uses; none allocates or is a cancellation point. */
#ifndef TFI_SYS_H
#define TFI_SYS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/tfi.h"

/* A lock of three states on a futex: free, held, held and waited for. The upper bits of the word name the process: a lock
 * that a thread of the parent held at the fork is free in the child. Its holder blocks signals, so that no handler jumps
 * out while the lock is held. */
struct tfi_lock {
    union {
        struct {
            uint32_t word;
            uint32_t thread; /* number of the holder by tfi_lock_quick(); otherwise 0 */
        };
        uint64_t both; /* changed at once: a jump never leaves a held lock of nobody */
    };
    tfi_frame frame;   /* of the function that took it by tfi_lock_quick(); 0 while that takes or releases it; else 0 */
    uint32_t given_up; /* a wait was in vain (the holder hangs, or was killed alone): until one succeeds nobody waits */
    bool masked;       /* the holder by tfi_lock_quick() has blocked signals after all */
};

/* Waits at most one second. On failure returns false and counts a drop: the caller gives up its operation. */
__attribute__((warn_unused_result)) bool tfi_lock(struct tfi_lock *lock);
/* Waits at most `ms` milliseconds; false if the lock could not be taken. */
bool tfi_lock_within(struct tfi_lock *lock, unsigned ms);
void tfi_unlock(struct tfi_lock *lock);

/* Like tfi_lock(), for locks that are held for some ten nanoseconds, many times a second: two changes of the signal
 * mask would cost more than all the rest. Signals are blocked only once a jump out of the recorder was seen in this
 * program. The first such jump may leave the lock held. The next thread that needs the lock then takes it over, so the
 * data it protects must be usable, if not correct, at every point. The function that takes the lock releases it by
 * tfi_unlock_quick(). */
#define tfi_lock_quick(lock) tfi_lock_quick_from(lock, TFI_FRAME)
__attribute__((warn_unused_result)) bool tfi_lock_quick_from(struct tfi_lock *lock, tfi_frame frame);
void tfi_unlock_quick(struct tfi_lock *lock);

/* Block the signals of the calling thread and unblock them; calls may be nested. A handler that jumps out of the code
 * in between would leave it half done. Signals raised by faults stay open: the kernel kills a process that blocks
 * them. */
void tfi_signals_off(void);
void tfi_signals_on(void);

/* Turn cancellation of the calling thread off and on again, around any code that holds a lock. They change the type
 * too: in glibc up to 2.36 an asynchronous request that is already under way ignores the state. */
int tfi_cancel_off(void);
void tfi_cancel_on(int before);

void tfi_futex_wait(uint32_t *word, uint32_t value, unsigned ms);
void tfi_futex_wait_ns(uint32_t *word, uint32_t value, uint64_t ns);
void tfi_futex_wake(uint32_t *word);

/* How long a wait may still last. Its limit passes in slices: each takes off the time that it lasted, and at most
 * TFI_SLICE_NS. A process that was stopped, or got no processor, meanwhile keeps its patience. */
struct tfi_patience {
    uint64_t left, asked; /* nanoseconds; tfi_monotonic_ns() of the last slice, 0: none yet */
};

#define TFI_SLICE_NS UINT64_C(10000000)
#define TFI_PATIENCE(ms) ((struct tfi_patience){(ms)*UINT64_C(1000000), 0})

/* Returns for how many nanoseconds the caller may wait before it looks and asks again; 0: the limit has passed. */
uint64_t tfi_patience_slice(struct tfi_patience *patience);

/* Ask the kernel each time, without a cache: the ids differ in a vfork child. */
pid_t tfi_getpid(void);
pid_t tfi_gettid(void);

/* True if this process has taken a lock of the library: the state on the page is its own, and not a parent's. */
bool tfi_process_has_begun(void);

/* True in a child that shares this process's memory, such as that of vfork. Asks the kernel. */
bool tfi_in_shared_child(void);

/* Asks the kernel whether a name of the program can be read up to its end. Keeps errno. */
bool tfi_is_readable(const char *name);

/* Finds the kernel's clock. Called in the constructor. */
void tfi_clock_constructor(void);

uint64_t tfi_monotonic_ns(void);
uint64_t tfi_monotonic_ms(void);
uint64_t tfi_realtime_ns(void);
/* Processor time that a thread of this process has used: the calling one, or the one with this kernel id; 0: unknown. */
uint64_t tfi_own_cpu_ns(void);
uint64_t tfi_thread_cpu_ns(uint32_t tid);

/* Registers this process for MEMBARRIER_CMD_PRIVATE_EXPEDITED. */
void tfi_register_barrier(void);

/* Zeroed private memory, NULL if there is none. */
void *tfi_map(size_t bytes);

/* As munmap and readlink. The library wraps both, and its own calls must not go through the wrappers. */
int tfi_unmap(void *address, unsigned long bytes);
ssize_t tfi_readlink(const char *path, char *target, size_t size);

/* Returns the memory that the pointer at `place` points to, and maps it at the first call; NULL if there is none.
 * Threads may call it at the same time: all get the same memory. */
void *tfi_map_once(void *place, size_t bytes);

#endif
