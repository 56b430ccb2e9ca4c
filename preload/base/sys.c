/* sys.c - provides locks, memory, time and ids by raw system calls.
 *
 * This file uses syscall() where libc's function is a cancellation point or keeps state of its own.
 */
#include "base/sys.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/frame.h"
#include "base/objects.h"
#include "base/process.h"
#include "base/tfi.h"

int tfi_cancel_off(void)
{
    int state, type;
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    return state << 1 | type;
}

void tfi_cancel_on(int before)
{
    pthread_setcancelstate(before >> 1, NULL);
    pthread_setcanceltype(before & 1, NULL);
}

void tfi_futex_wait_ns(uint32_t *word, uint32_t value, uint64_t ns)
{
    struct timespec limit = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &limit, NULL, 0);
}

void tfi_futex_wait(uint32_t *word, uint32_t value, unsigned ms)
{
    tfi_futex_wait_ns(word, value, ms * (uint64_t)1000000);
}

void tfi_futex_wake(uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

uint64_t tfi_patience_slice(struct tfi_patience *patience)
{
    uint64_t now = tfi_monotonic_ns(), took = patience->asked ? now - patience->asked : 0;
    if (took > TFI_SLICE_NS) took = TFI_SLICE_NS;
    patience->asked = now;
    patience->left = patience->left > took ? patience->left - took : 0;
    return patience->left < TFI_SLICE_NS ? patience->left : TFI_SLICE_NS;
}

enum { HELD = 1, WAITED_FOR = 2, STATE = 3 };

#define LONGEST_MS 1000 /* much longer than any lock is held, except during a write to a file system that hangs */

/* This process's number in the upper bits of a lock. It lies on the page that is wiped on any kind of fork. */
static uint32_t holder(void)
{
    uint32_t known = __atomic_load_n(&tfi_process->holder, __ATOMIC_RELAXED);
    if (TFI_LIKELY(known)) return known;
    tfi_process_keep();
    known = (uint32_t)tfi_getpid() << 2;
    __atomic_store_n(&tfi_process->holder, known, __ATOMIC_RELAXED);
    return known;
}

/* Variables instead of structures, which would be padded: the library may need few bytes of thread-local variables. */
static __thread uint32_t signals_depth;
static __thread uint64_t signals_before;

void tfi_signals_off(void)
{
    /* Signals left open: faults, and the two that libc uses itself. Signal 32 cancels a thread; cancellation is off
     * where it matters. Signal 33 changes the user. */
    static const int open[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, 32, 33};
    uint64_t mask = ~0ull, before = 0;
    if (signals_depth) {
        signals_depth++;
        return;
    }
    for (size_t i = 0; i < TFI_COUNT(open); i++) mask &= ~(1ull << (open[i] - 1));
    if (syscall(SYS_rt_sigprocmask, SIG_BLOCK, &mask, &before, sizeof mask) != 0) before = ~0ull;
    signals_before = before;
    signals_depth = 1;
}

void tfi_signals_on(void)
{
    uint64_t before = signals_before;
    if (--signals_depth) return;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (before != ~0ull) syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
}

/* A thread's number, and the frame of its function that last took a lock by tfi_lock_quick(). The frame is
 * known before the lock is held, so that a jump between the two does not hide who holds it. */
static __thread uint32_t own_number;
static __thread tfi_frame quick_frame;

static uint32_t number(void)
{
    static uint32_t count;
    if (TFI_UNLIKELY(!own_number)) own_number = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    return own_number;
}

/* Returns the frame of the function that holds the lock; 0 if it is not known. */
static tfi_frame holding_frame(struct tfi_lock *lock)
{
    uint32_t thread = __atomic_load_n(&lock->thread, __ATOMIC_RELAXED);
    tfi_frame frame = *(volatile tfi_frame *)&lock->frame;
    return !frame[0] && thread && thread == own_number ? quick_frame : frame;
}

/* True if the function that holds the lock was left by a jump. The frame is read twice, because another function may
 * take the lock in between. */
static bool is_left(struct tfi_lock *lock)
{
    tfi_frame first = holding_frame(lock);
    if (!first[0] || !tfi_frame_is_left(first, (uintptr_t)__builtin_frame_address(0))) return false;
    tfi_frame again = holding_frame(lock);
    if (first[0] != again[0] || first[1] != again[1]) return false;
    tfi_jump_seen();
    tfi_count_drop(TFI_DROP_JUMPED, 1);
    return true;
}

static bool acquire(struct tfi_lock *lock, unsigned ms)
{
    uint32_t mine = holder();
    struct tfi_lock free = {0}, held = {.word = mine | HELD};
    if (__atomic_compare_exchange_n(&lock->both, &free.both, held.both, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return true;
    if (__atomic_load_n(&lock->given_up, __ATOMIC_RELAXED)) ms = 0;
    struct tfi_patience patience = TFI_PATIENCE(ms);
    for (;;) {
        struct tfi_lock now = {.both = __atomic_load_n(&lock->both, __ATOMIC_RELAXED)};
        bool available = (now.word & ~(uint32_t)STATE) != mine;
        struct tfi_lock next = {.word = mine | WAITED_FOR, .thread = available ? 0 : now.thread};
        if (now.both != next.both &&
            !__atomic_compare_exchange_n(&lock->both, &now.both, next.both, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            continue;
        if (available || is_left(lock)) {
            __atomic_store_n(&lock->thread, 0, __ATOMIC_RELAXED);
            lock->frame = (tfi_frame){0, 0};
            return true;
        }
        uint64_t slice = tfi_patience_slice(&patience);
        if (!slice) return false;
        tfi_futex_wait_ns(&lock->word, mine | WAITED_FOR, slice);
    }
}

bool tfi_lock_within(struct tfi_lock *lock, unsigned ms)
{
    int error = errno;
    tfi_signals_off();
    bool taken = acquire(lock, ms);
    if (!taken) tfi_signals_on();
    errno = error;
    return taken;
}

/* The lock is marked as given up before signals are on again. Otherwise a handler that jumps out there each time would
 * make each caller wait. */
bool tfi_lock(struct tfi_lock *lock)
{
    int error = errno;
    tfi_signals_off();
    bool taken = acquire(lock, LONGEST_MS);
    if (TFI_UNLIKELY(taken == __atomic_load_n(&lock->given_up, __ATOMIC_RELAXED)))
        __atomic_store_n(&lock->given_up, !taken, __ATOMIC_RELAXED);
    if (TFI_UNLIKELY(!taken)) {
        tfi_count_drop(TFI_DROP_LOCKED, 1);
        tfi_signals_on();
    }
    errno = error;
    return taken;
}

static void release(struct tfi_lock *lock)
{
    struct tfi_lock was = {.both = __atomic_exchange_n(&lock->both, 0, __ATOMIC_RELEASE)};
    if ((was.word & STATE) == WAITED_FOR) tfi_futex_wake(&lock->word);
}

void tfi_unlock(struct tfi_lock *lock)
{
    int error = errno;
    release(lock);
    tfi_signals_on();
    errno = error;
}

static TFI_COLD bool lock_masked(struct tfi_lock *lock)
{
    bool taken = tfi_lock(lock);
    if (taken) lock->masked = true;
    return taken;
}

bool tfi_lock_quick_from(struct tfi_lock *lock, tfi_frame frame)
{
    struct tfi_lock free = {0}, held = {.word = holder() | HELD, .thread = number()};
    bool jumps = tfi_jumps();
    if (TFI_LIKELY(!jumps)) *(volatile tfi_frame *)&quick_frame = frame;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    bool taken = !jumps && __atomic_compare_exchange_n(&lock->both, &free.both, held.both, false, __ATOMIC_ACQUIRE,
                                                       __ATOMIC_RELAXED);
    if (TFI_UNLIKELY(!taken) && !lock_masked(lock)) return false;
    *(volatile tfi_frame *)&lock->frame = frame;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return true;
}

void tfi_unlock_quick(struct tfi_lock *lock)
{
    bool masked = lock->masked;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    lock->masked = false;
    *(volatile tfi_frame *)&lock->frame = (tfi_frame){0, 0};
    if (TFI_UNLIKELY(masked)) tfi_unlock(lock);
    else release(lock);
}

pid_t tfi_getpid(void)
{
    return (pid_t)syscall(SYS_getpid);
}

bool tfi_process_has_begun(void)
{
    uint32_t known = __atomic_load_n(&tfi_process->holder, __ATOMIC_RELAXED);
    return known && known == (uint32_t)tfi_getpid() << 2;
}

bool tfi_in_shared_child(void)
{
    return holder() != (uint32_t)tfi_getpid() << 2;
}

bool tfi_is_readable(const char *name)
{
    int error = errno;
    bool readable = name && (syscall(SYS_access, name, F_OK) == 0 || errno != EFAULT);
    errno = error;
    return readable;
}

pid_t tfi_gettid(void)
{
    return (pid_t)syscall(SYS_gettid);
}

/* The kernel's own function, which needs no system call; NULL before the constructor, and where there is none. libc's may
 * be replaced by a library that fakes the time. */
static int (*kernel_clock)(clockid_t, struct timespec *);

void tfi_clock_constructor(void)
{
    *(void **)&kernel_clock = tfi_kernel_function("__vdso_clock_gettime");
}

static uint64_t clock_ns(clockid_t id)
{
    struct timespec t;
    if (!kernel_clock || kernel_clock(id, &t) != 0) syscall(SYS_clock_gettime, id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t tfi_monotonic_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t tfi_monotonic_ms(void)
{
    return tfi_monotonic_ns() / 1000000;
}

uint64_t tfi_realtime_ns(void)
{
    return clock_ns(CLOCK_REALTIME);
}

static uint64_t cpu_ns(clockid_t id)
{
    struct timespec t;
    if (syscall(SYS_clock_gettime, id, &t) != 0) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t tfi_own_cpu_ns(void)
{
    return cpu_ns(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t tfi_thread_cpu_ns(uint32_t tid)
{
    enum { OF_THREAD = 4, SCHEDULED = 2 };
    int error = errno;
    uint64_t ns = tid ? cpu_ns((clockid_t)(~tid << 3 | OF_THREAD | SCHEDULED)) : 0;
    errno = error;
    return ns;
}

void tfi_register_barrier(void)
{
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
}

void *tfi_map(size_t bytes)
{
    void *p = (void *)syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
    return p == MAP_FAILED ? NULL : p;
}

void *tfi_map_once(void *place, size_t bytes)
{
    typedef void *__attribute__((may_alias)) any_pointer;
    any_pointer *pointer = place;
    void *known = __atomic_load_n(pointer, __ATOMIC_ACQUIRE), *fresh;
    if (known || !(fresh = tfi_map(bytes))) return known;
    if (__atomic_compare_exchange_n(pointer, &known, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return fresh;
    tfi_unmap(fresh, bytes);
    return known;
}

int tfi_unmap(void *address, unsigned long bytes)
{
    return (int)syscall(SYS_munmap, address, bytes);
}

ssize_t tfi_readlink(const char *path, char *target, size_t size)
{
    return syscall(SYS_readlink, path, target, size);
}
