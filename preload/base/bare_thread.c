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
 * The thread-local variables are those of the objects that were loaded with the program, with their initial values,
 * because other libraries, such as sanitizers, may stand before memcpy and the like. The thread's descriptor above
 * them is empty, but for what compilers read.
 */
#include "base/bare_thread.h"

#include <errno.h>
#include <link.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
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
    MOST_TLS = 4 << 20, /* variables of the objects that were loaded with the program; ThreadSanitizer has 0.8 MB */
    DESCRIPTOR = 8192,  /* libc's is smaller */
    ALIGN = 64,
    MODULES = 64,
};

static struct {
    size_t below; /* bytes below the thread register */
    uint32_t count;
    struct {
        size_t below; /* where the variables of the object begin, below the thread register */
        const void *image;
        size_t bytes;
    } module[MODULES];
} tls;

/* The linker defines these for our own library: where its file and its thread-local variables begin. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern __thread const char _TLS_MODULE_BASE_[] __attribute__((visibility("hidden"), tls_model("initial-exec")));

/* Notes the variables of one object. Those of an object that was loaded later may lie anywhere, and are left out. Our
 * own never do, but the loader does not tell where they lie in a process whose driver has loaded the library, as for
 * CUDA_INJECTION64_PATH: nobody has asked the loader for the address of one. */
static int note(struct dl_phdr_info *object, size_t size, void *data)
{
    uintptr_t here = tfi_tls_word(TFI_TLS_SELF), start = (uintptr_t)object->dlpi_tls_data;
    (void)size;
    (void)data;
    if (!start && object->dlpi_addr == (uintptr_t)__ehdr_start) start = (uintptr_t)_TLS_MODULE_BASE_;
    if (!start || start >= here || here - start > MOST_TLS || tls.count == MODULES) return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type != PT_TLS) continue;
        tls.module[tls.count].below = here - start;
        tls.module[tls.count].image = (const void *)(object->dlpi_addr + part->p_vaddr);
        tls.module[tls.count++].bytes = part->p_filesz;
        if (here - start > tls.below) tls.below = here - start;
    }
    return 0;
}

void tfi_bare_thread_constructor(void)
{
    dl_iterate_phdr(note, NULL);
    if (tfi_tls_word(TFI_TLS_SELF) - (uintptr_t)&errno > tls.below)
        tls.below = 0; /* libc's are out of reach: no thread */
    tls.below = (tls.below + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

static size_t bytes_needed(void)
{
    return GUARD + STACK + tls.below + DESCRIPTOR;
}

/* Makes the variables anew in the thread's memory; returns the value of the thread register. */
static char *make_tls(char *memory)
{
    char *here = memory + GUARD + STACK + tls.below;
    memset(here - tls.below, 0, tls.below + DESCRIPTOR);
    for (uint32_t i = 0; i < tls.count; i++)
        memcpy(here - tls.module[i].below, tls.module[i].image, tls.module[i].bytes);
    const uintptr_t words[][2] = {
        {TFI_TLS_SELF, (uintptr_t)here},
        {TFI_TLS_THREAD, (uintptr_t)here},
        {TFI_TLS_STACK_GUARD, tfi_tls_word(TFI_TLS_STACK_GUARD)},
        {TFI_TLS_POINTER_GUARD, tfi_tls_word(TFI_TLS_POINTER_GUARD)},
    };
    for (size_t i = 0; i < TFI_COUNT(words); i++) memcpy(here + words[i][0], &words[i][1], sizeof words[i][1]);
    return here;
}

bool tfi_bare_thread_start(struct tfi_bare_thread *thread, void (*run)(void *), void *data)
{
    const unsigned long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                                CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    uint64_t all = ~0ull, before;
    if (!tls.below) return false;
    if (!thread->memory) {
        thread->memory = tfi_map(bytes_needed());
        if (!thread->memory) return false;
        syscall(SYS_mprotect, thread->memory, (size_t)GUARD, PROT_NONE);
    }
    char *here = make_tls(thread->memory);
    if (syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, sizeof all) != 0) return false;
    __atomic_store_n(&thread->alive, 1, __ATOMIC_RELEASE);
    long tid = tfi_clone_thread(flags, thread->memory + GUARD + STACK, &thread->tid, &thread->alive, here, run, data);
    if (tid < 0) __atomic_store_n(&thread->alive, 0, __ATOMIC_RELEASE);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
    return tid > 0;
}

/* The kernel wakes the futex as one that several processes may share. */
bool tfi_bare_thread_wait(struct tfi_bare_thread *thread, unsigned ms)
{
    uint64_t end = tfi_monotonic_ns() + (uint64_t)ms * 1000000, now;
    while (__atomic_load_n(&thread->alive, __ATOMIC_ACQUIRE)) {
        if ((now = tfi_monotonic_ns()) >= end) return false;
        struct timespec left = {.tv_sec = (time_t)((end - now) / 1000000000u),
                                .tv_nsec = (long)((end - now) % 1000000000u)};
        syscall(SYS_futex, &thread->alive, FUTEX_WAIT, 1, &left, NULL, 0);
    }
    return true;
}
