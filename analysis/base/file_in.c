/* file_in.c - opens regular files for reading, and refuses everything else without waiting for it. */
#include "base/file_in.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the message for a file type that is not read. */
static const char *not_a_file(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR: return "it is a directory; give a file";
    case S_IFLNK:
        return "it is a symbolic link, and tfanalyze follows no links in a directory; give the file that it points to";
    case S_IFIFO: return "it is a FIFO, and tfanalyze reads only files; write its data to a file first";
    case S_IFSOCK: return "it is a socket, and tfanalyze reads only files";
    case S_IFCHR:
    case S_IFBLK: return "it is a device, and tfanalyze reads only files";
    default: return "it is not a regular file; give a run directory or a trace";
    }
}

/* ---- confinement ---- */

static struct {
    char **root; /* without links */
    size_t count;
    bool holds;
} confined;

void file_confine(const char *const *directories, size_t count)
{
    confined.root = mem_zero(count + 1, sizeof *confined.root);
    for (size_t i = 0; i < count; i++) confined.root[i] = string_format("%s", directories[i]);
    confined.count = count;
    confined.holds = true;
}

bool file_is_confined(void)
{
    return confined.holds;
}

bool path_is_below(const char *path, const char *directory)
{
    size_t length = strlen(directory);
    if (length && directory[length - 1] == '/') length--; /* of the root directory */
    return strncmp(path, directory, length) == 0 && (!path[length] || path[length] == '/');
}

/* Asks the kernel where the open file lies, because a name may lead elsewhere by the time it is opened. */
static bool is_reachable(int fd, const char **why)
{
    char link[64], path[PATH_MAX];
    if (!confined.holds) return true;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[MAX(length, 0)] = 0;
    for (size_t i = 0; i < confined.count && length > 0; i++)
        if (path_is_below(path, confined.root[i])) return true;
    *why = "it lies outside the directories that are served";
    errno = EACCES;
    return false;
}

/* ---- opening ---- */

/* O_NONBLOCK opens a FIFO without a writer at once. O_NOCTTY never makes a terminal the controlling one. */
static int open_regular(int directory, const char *name, enum file_how how, struct stat *status, const char **why)
{
    int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (how == FILE_FOUND ? O_NOFOLLOW : 0);
    int follow = how == FILE_FOUND ? AT_SYMLINK_NOFOLLOW : 0;
    /* Some devices act on open, so the type is checked before it. The check on the descriptor decides. */
    if (tfi_fstatat(directory, name, status, follow) != 0) {
        *why = strerror(errno);
        return -1;
    }
    if (!S_ISREG(status->st_mode)) {
        *why = not_a_file(status->st_mode);
        return -1;
    }
    int fd = openat(directory, name, flags);
    if (fd < 0 || tfi_fstat(fd, status) != 0) *why = errno == ELOOP ? not_a_file(S_IFLNK) : strerror(errno);
    else if (!S_ISREG(status->st_mode)) *why = not_a_file(status->st_mode);
    else return fd;
    if (fd >= 0) close(fd);
    return -1;
}

int file_open_at(int directory, const char *name, enum file_how how, struct stat *status, const char **why)
{
    int fd = open_regular(directory, name, how, status, why);
    if (fd < 0 || is_reachable(fd, why)) return fd;
    close(fd);
    return -1;
}

int file_open(const char *path, enum file_how how, struct stat *status, const char **why)
{
    return file_open_at(AT_FDCWD, path, how, status, why);
}

void *file_library(const char *soname)
{
    return strchr(soname, '/') ? NULL : dlopen(soname, RTLD_NOW | RTLD_LOCAL);
}

ssize_t file_read(int fd, char *to, size_t room)
{
    size_t done = 0;
    while (done < room) {
        ssize_t n = pread(fd, to + done, room - done, (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (!n) break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

char *file_whole(const char *path, size_t most, size_t *length, char **why)
{
    struct stat status;
    const char *reason = NULL;
    char *bytes = NULL;
    int fd = file_open(path, FILE_NAMED, &status, &reason);
    if (fd < 0) {
        *why = string_format("%s", reason);
        return NULL;
    }
    if ((uint64_t)status.st_size > most) {
        *why = string_format("it has %lld bytes, and at most %zu are read", (long long)status.st_size, most);
        goto out;
    }
    bytes = mem_resize(NULL, (size_t)status.st_size + 1, 1);
    ssize_t got = file_read(fd, bytes, (size_t)status.st_size);
    if (got < 0) {
        *why = string_format("%s", strerror(errno));
        free(bytes);
        bytes = NULL;
        goto out;
    }
    bytes[got] = 0;
    *length = (size_t)got;
out:
    close(fd);
    return bytes;
}

bool file_is_in(int directory, const char *path, dev_t device, ino_t inode)
{
    const char *slash = strrchr(path, '/');
    struct stat status;
    return tfi_fstatat(directory, slash ? slash + 1 : path, &status, 0) == 0 && status.st_dev == device &&
           status.st_ino == inode;
}

size_t file_of_proc(const char *path, char *to, size_t size)
{
    struct stat status;
    const char *why;
    int fd = open_regular(AT_FDCWD, path, FILE_FOUND, &status, &why);
    ssize_t n = fd >= 0 ? read(fd, to, size - 1) : 0;
    if (fd >= 0) close(fd);
    to[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

int file_list(const char *directory, int (*wanted)(const struct dirent *entry), struct dirent ***entries)
{
    const char *why;
    int count = -1, fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && is_reachable(fd, &why)) count = scandirat(fd, ".", entries, wanted, versionsort);
    int error = errno;
    if (fd >= 0) close(fd);
    errno = error;
    return count;
}
