/* unwinder.c - loads libunwind, and keeps it off the program's descriptors and out of our records.
 *
 * libunwind writes a byte from an address into a pipe to learn whether the address can be read. It keeps the pipe's
 * numbers for ever. A program may have closed all descriptors and opened its own under these numbers: libunwind then
 * reads from them, writes to them, and closes both. So it gets the number of no descriptor instead of a pipe, and we
 * ask the kernel whether the address can be read.
 *
 * Its mappings are system calls here, so they pass none of our wrappers. The wrappers would take them for calls of a
 * signal handler inside the recorder, and count them as lost.
 */
#include "python/unwinder.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/raw_dlsym.h"
#include "base/tfi.h"
#include "host/patches.h"

#define PIPE INT_MAX /* both ends; the kernel gives nobody this number */

static int unwinder_pipe2(int ends[2], int flags)
{
    (void)flags;
    ends[0] = ends[1] = PIPE;
    return 0;
}

static int unwinder_pipe(int ends[2])
{
    return unwinder_pipe2(ends, 0);
}

static int unwinder_close(int fd)
{
    return fd == PIPE ? 0 : (int)syscall(SYS_close, fd);
}

/* The pipe is open and empty. */
static ssize_t unwinder_read(int fd, void *to, size_t bytes)
{
    if (fd != PIPE) return syscall(SYS_read, fd, to, bytes);
    errno = EAGAIN;
    return -1;
}

/* The kernel reads the set of signals before it refuses the operation, which does not exist. Containers that forbid
 * process_vm_readv allow this call. */
static bool is_readable(uintptr_t address)
{
    const long operation = -1;
    syscall(SYS_rt_sigprocmask, operation, address & ~(uintptr_t)7, NULL, 8);
    return errno == EINVAL;
}

/* libunwind writes one byte. */
static ssize_t unwinder_write(int fd, const void *from, size_t bytes)
{
    if (fd != PIPE) return syscall(SYS_write, fd, from, bytes);
    if (bytes == 1 && is_readable((uintptr_t)from)) return 1;
    errno = EFAULT;
    return -1;
}

static long unwinder_syscall(long number, ...)
{
    enum { MOST = 6 };
    long at[MOST];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < MOST; i++) at[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_write) return unwinder_write((int)at[0], (const void *)at[1], (size_t)at[2]);
    return syscall(number, at[0], at[1], at[2], at[3], at[4], at[5]);
}

static void *unwinder_mmap(void *start, size_t bytes, int rights, int flags, int fd, off_t at)
{
    return (void *)syscall(SYS_mmap, start, bytes, rights, flags, fd, at);
}

static int unwinder_munmap(void *start, size_t bytes)
{
    return (int)syscall(SYS_munmap, start, bytes);
}

tfi_unwinder *tfi_unwinder_load(void)
{
    static const struct tfi_patch patches[] = {
        {"pipe2", NULL, (void *)unwinder_pipe2}, {"pipe", NULL, (void *)unwinder_pipe},
        {"close", NULL, (void *)unwinder_close}, {"read", NULL, (void *)unwinder_read},
        {"write", NULL, (void *)unwinder_write}, {"syscall", NULL, (void *)unwinder_syscall},
        {"mmap", NULL, (void *)unwinder_mmap},   {"munmap", NULL, (void *)unwinder_munmap},
    };
    void *library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    tfi_unwinder *unwind = library ? (tfi_unwinder *)tfi_dlsym(library, "unw_backtrace") : NULL;
    if (unwind) tfi_patch_object((uintptr_t)unwind, patches, TFI_COUNT(patches));
    return unwind;
}
