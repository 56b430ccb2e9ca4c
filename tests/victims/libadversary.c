/* libadversary.c - preloaded into tfanalyze: acts before one of its system calls, and makes "random" numbers known.
 *
 * It counts the calls that open, look up, create, rename or read. Before number ADVERSARY_AT it runs the program
 * ADVERSARY_DO and waits for it. ADVERSARY_COUNT names a file for the number of calls, ADVERSARY_LOG a file for every
 * path that is opened. With ADVERSARY_KNOWN getrandom() gives zeros.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int calls;

static void act(void)
{
    const char *program = getenv("ADVERSARY_DO"), *at = getenv("ADVERSARY_AT");
    int number = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    if (program && at && number == atoi(at)) {
        pid_t child = fork();
        if (child == 0) {
            unsetenv("LD_PRELOAD");
            execl("/bin/sh", "sh", "-c", program, (char *)NULL);
            _exit(127);
        }
        waitpid(child, NULL, 0);
    }
}

static void append(const char *variable, const char *text)
{
    const char *path = getenv(variable);
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (fd >= 0) {
        dprintf(fd, "%s\n", text);
        close(fd);
    }
}

__attribute__((destructor)) static void tell(void)
{
    char number[16];
    snprintf(number, sizeof number, "%d", calls);
    append("ADVERSARY_COUNT", number);
}

static int open_it(int directory, const char *path, int flags, mode_t mode)
{
    act();
    append("ADVERSARY_LOG", path);
    return (int)syscall(SYS_openat, directory, path, flags, mode);
}

static mode_t mode_of(int flags, va_list arguments)
{
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        va_list arguments;                                                                                             \
        va_start(arguments, flags);                                                                                    \
        mode_t mode = mode_of(flags, arguments);                                                                       \
        va_end(arguments);                                                                                             \
        return open_it(AT_FDCWD, path, flags, mode);                                                                   \
    }
#define OPENAT(name)                                                                                                   \
    int name(int directory, const char *path, int flags, ...)                                                          \
    {                                                                                                                  \
        va_list arguments;                                                                                             \
        va_start(arguments, flags);                                                                                    \
        mode_t mode = mode_of(flags, arguments);                                                                       \
        va_end(arguments);                                                                                             \
        return open_it(directory, path, flags, mode);                                                                  \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

int renameat(int from, const char *old, int to, const char *new)
{
    act();
    return (int)syscall(SYS_renameat, from, old, to, new);
}

int rename(const char *old, const char *new)
{
    return renameat(AT_FDCWD, old, AT_FDCWD, new);
}

int mkdirat(int directory, const char *path, mode_t mode)
{
    act();
    return (int)syscall(SYS_mkdirat, directory, path, mode);
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

ssize_t read(int fd, void *to, size_t bytes)
{
    act();
    return syscall(SYS_read, fd, to, bytes);
}

ssize_t pread(int fd, void *to, size_t bytes, off_t offset)
{
    act();
    return syscall(SYS_pread64, fd, to, bytes, offset);
}

ssize_t pread64(int fd, void *to, size_t bytes, off_t offset)
{
    return pread(fd, to, bytes, offset);
}

/* tfanalyze looks files up by this function (include/glibc.c). */
long syscall(long number, ...)
{
    static long (*next)(long number, ...);
    va_list arguments;
    long argument[6];
    va_start(arguments, number);
    for (int i = 0; i < 6; i++) argument[i] = va_arg(arguments, long);
    va_end(arguments);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_newfstatat) act();
    return next(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}

ssize_t getrandom(void *to, size_t bytes, unsigned flags)
{
    if (getenv("ADVERSARY_KNOWN")) {
        memset(to, 0, bytes);
        return (ssize_t)bytes;
    }
    return syscall(SYS_getrandom, to, bytes, flags);
}
