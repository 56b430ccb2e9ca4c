/* libkill_opening.c - preloaded before the library: kills the process while it opens its trace, at the system call KILL_AT.
 *
 * The library makes system calls by libc's syscall(), which this file defines. KILL_AT is `live` (the live file is about to
 * be created), `size` (it gets its size) or `map` (it is about to be mapped).
 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_at(const char *at, long number, const long *a)
{
    const char *path = (const char *)a[1];
    size_t length = number == SYS_openat ? strlen(path) : 0;
    if (strcmp(at, "live") == 0) return length > 5 && strcmp(path + length - 5, ".live") == 0;
    if (strcmp(at, "size") == 0) return number == SYS_ftruncate || number == SYS_fallocate;
    return number == SYS_mmap && a[3] & MAP_SHARED;
}

long syscall(long number, ...)
{
    const char *at = getenv("KILL_AT");
    long a[6], result;
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (at && is_at(at, number, a)) kill(getpid(), SIGKILL);
    register long r10 __asm__("r10") =
        a[3];                              // cppcheck-suppress constStatement ; it reads the asm label as the statement
    register long r8 __asm__("r8") = a[4]; // cppcheck-suppress constStatement ; it reads the asm label as the statement
    register long r9 __asm__("r9") = a[5]; // cppcheck-suppress constStatement ; it reads the asm label as the statement
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result >= 0 || result < -4095) return result;
    *__errno_location() = (int)-result;
    return -1;
}
