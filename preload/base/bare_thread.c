/* bare_thread.c - starts a thread by the system call clone, with a stack and thread-local variables of its own.
 *
 * pthread_create() allocates, and takes locks of libc and of the loader. A hook may run in a signal handler that
 * interrupts malloc, in an allocator, or in the child of a fork whose parent held such a lock: it would wait for ever
 * (12 of 12 programs did). A thread made in the constructor would need none of that. It was measured: it adds 0.08 ms
 * to each process of a shell script, makes every process a process with threads (libc then locks, and os.fork() of
 * Python warns), and a child of clone(2) would still have none.
 *
 * libc does not know a bare thread. Its functions that only make a system call, or compute, work there: they need
 * errno, and the state of cancellation. Those that allocate, take a lock or look at the thread's descriptor do not. So
 * such a thread runs code of this library only, and calls no other library.
 * Such a thread opens files whenever it likes, and a program relies on the lowest free number. So it has a table of
 * descriptors of its own, an empty one. The system call clone copies the program's table, and whoever waits for the end of
 * a pipe, or for a lock or an address, would wait for the copy too: the starting thread waits until it is empty. Emulators
 * of a processor know no thread with another table; valgrind would end the program. There the new thread begins in the
 * common table and leaves it by unshare(2), which containers may forbid: then it stays.
 * The thread-local variables are those of the objects that were loaded with the program, with their initial values,
 * because other libraries, such as sanitizers, may stand before memcpy and the like. The thread's descriptor above
 * them is empty, but for what compilers read.
 */
#include "base/bare_thread.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/tfi.h"
#include "base/x86_64.h"

enum {
    GUARD = 4096,
    STACK = 256 << 10,
    DESCRIPTOR = 8192, /* libc's is smaller */
    MOST_THREADS = 8,  /* kinds of bare threads */
    BEGIN_MS = 100,
};

static char *memories[MOST_THREADS];
static int taken_over = -1;

struct tfi_thread_variables tfi_thread_variables;

static size_t bytes_needed(void)
{
    return GUARD + STACK + tfi_thread_variables.below + DESCRIPTOR;
}

/* Makes the variables anew in the thread's memory; returns the value of the thread register. */
static char *make_tls(char *memory)
{
    char *here = memory + GUARD + STACK + tfi_thread_variables.below;
    memset(here - tfi_thread_variables.below, 0, tfi_thread_variables.below + DESCRIPTOR);
    for (uint32_t i = 0; i < tfi_thread_variables.count; i++)
        memcpy(here - tfi_thread_variables.module[i].below, tfi_thread_variables.module[i].image,
               tfi_thread_variables.module[i].bytes);
    const uintptr_t words[][2] = {
        {TFI_TLS_SELF, (uintptr_t)here},
        {TFI_TLS_THREAD, (uintptr_t)here},
        {TFI_TLS_STACK_GUARD, tfi_tls_word(TFI_TLS_STACK_GUARD)},
        {TFI_TLS_POINTER_GUARD, tfi_tls_word(TFI_TLS_POINTER_GUARD)},
    };
    for (size_t i = 0; i < TFI_COUNT(words); i++) memcpy(here + words[i][0], &words[i][1], sizeof words[i][1]);
    return here;
}

bool tfi_bare_thread_here(void)
{
    uintptr_t here = tfi_tls_word(TFI_TLS_SELF);
    for (int i = 0; i < MOST_THREADS; i++) {
        uintptr_t memory = (uintptr_t)__atomic_load_n(&memories[i], __ATOMIC_RELAXED);
        if (!memory) return false;
        if (here - memory < bytes_needed()) return true;
    }
    return false;
}

/* Notes the memory of a bare thread, which is never given back; false if there are too many. */
static bool note_memory(char *memory)
{
    for (int i = 0; i < MOST_THREADS; i++) {
        char *none = NULL;
        if (__atomic_compare_exchange_n(&memories[i], &none, memory, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return true;
    }
    return false;
}

void tfi_bare_thread_takes_over(int fd)
{
    __atomic_store_n(&taken_over, fd, __ATOMIC_RELEASE);
}

/* Closes all descriptors from `first` to `last`; false on kernels before 5.9. */
static bool close_range_of(unsigned first, unsigned last)
{
    return first > last || syscall(SYS_close_range, first, last, 0u) == 0;
}

/* Closes each other descriptor that /proc lists: kernels before 5.9 have no close_range(2). */
static void close_listed(int kept)
{
    char entries[512];
    long bytes;
    int list = (int)syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    while (list >= 0 && (bytes = syscall(SYS_getdents64, list, entries, sizeof entries)) > 0) {
        for (long at = 0; at < bytes;) {
            const struct dirent64 *entry = (const struct dirent64 *)(entries + at);
            long fd = strtol(entry->d_name, NULL, 10);
            if (entry->d_name[0] != '.' && fd != list && fd != kept) syscall(SYS_close, fd);
            at += entry->d_reclen;
        }
    }
    if (list >= 0) syscall(SYS_close, list);
}

static void begin_thread(void *data)
{
    struct tfi_bare_thread *thread = data;
    int kept = __atomic_load_n(&taken_over, __ATOMIC_ACQUIRE);
    bool is_common = thread->leaves && syscall(SYS_unshare, CLONE_FILES) != 0;
    if (!is_common &&
        (!close_range_of((unsigned)kept + 1, ~0u) || (kept > 0 && !close_range_of(0, (unsigned)kept - 1))))
        close_listed(kept);
    __atomic_store_n(&thread->begun, 1, __ATOMIC_RELEASE);
    tfi_futex_wake(&thread->begun);
    thread->run(thread->data);
}

static long clone_bare(struct tfi_bare_thread *thread, char *tls)
{
    unsigned long flags = CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
                          CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | (thread->leaves ? CLONE_FILES : 0u);
    return tfi_clone_thread(flags, thread->memory + GUARD + STACK, &thread->tid, &thread->alive, tls, begin_thread,
                            thread);
}

static void wait_begun(struct tfi_bare_thread *thread)
{
    struct tfi_patience patience = TFI_PATIENCE(BEGIN_MS);
    uint64_t slice;
    while (!__atomic_load_n(&thread->begun, __ATOMIC_ACQUIRE) && (slice = tfi_patience_slice(&patience)))
        tfi_futex_wait_ns(&thread->begun, 0, slice);
}

bool tfi_bare_thread_start(struct tfi_bare_thread *thread, void (*run)(void *), void *data)
{
    uint64_t all = ~0ull, before;
    if (!tfi_thread_variables.below) return false;
    if (!thread->memory) {
        char *memory = tfi_map(bytes_needed());
        if (!memory) return false;
        if (!note_memory(memory)) {
            tfi_unmap(memory, bytes_needed());
            return false;
        }
        syscall(SYS_mprotect, memory, (size_t)GUARD, PROT_NONE);
        thread->memory = memory;
    }
    char *here = make_tls(thread->memory);
    if (syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, sizeof all) != 0) return false;
    thread->run = run;
    thread->data = data;
    thread->begun = 0;
    __atomic_store_n(&thread->alive, 1, __ATOMIC_RELEASE);
    thread->leaves = tfi_on_valgrind();
    long tid = clone_bare(thread, here);
    if (tid == -EINVAL && !thread->leaves) {
        thread->leaves = true;
        tid = clone_bare(thread, here);
    }
    if (tid < 0) __atomic_store_n(&thread->alive, 0, __ATOMIC_RELEASE);
    if (tid > 0) wait_begun(thread);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
    return tid > 0;
}

/* The kernel wakes the futex as one that several processes may share. */
bool tfi_bare_thread_wait(struct tfi_bare_thread *thread, unsigned ms)
{
    struct tfi_patience patience = TFI_PATIENCE(ms);
    while (__atomic_load_n(&thread->alive, __ATOMIC_ACQUIRE)) {
        struct timespec slice = {.tv_nsec = (long)tfi_patience_slice(&patience)};
        if (!slice.tv_nsec) return false;
        syscall(SYS_futex, &thread->alive, FUTEX_WAIT, 1, &slice, NULL, 0);
    }
    return true;
}
