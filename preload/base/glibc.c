/* glibc.c - implements the functions of glibc.h by system calls.
 *
 * On x86-64 the kernel's struct stat is libc's.
 */
#include "base/glibc.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int tfi_fstatat(int dir, const char *path, struct stat *st, int flags)
{
    return (int)syscall(SYS_newfstatat, dir, path, st, flags);
}

int tfi_stat(const char *path, struct stat *st)
{
    return tfi_fstatat(AT_FDCWD, path, st, 0);
}

int tfi_lstat(const char *path, struct stat *st)
{
    return tfi_fstatat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

int tfi_fstat(int fd, struct stat *st)
{
    return tfi_fstatat(fd, "", st,
                       AT_EMPTY_PATH); /* as the loader: a seccomp filter that lets programs start allows it */
}

int tfi_unmap(void *address, size_t bytes)
{
    return (int)syscall(SYS_munmap, address, bytes);
}

ssize_t tfi_readlink(const char *path, char *target, size_t size)
{
    return syscall(SYS_readlink, path, target, size);
}
