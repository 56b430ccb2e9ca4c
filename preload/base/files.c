/* files.c - handles our directories and files by raw system calls on a directory's descriptor.
 *
 * Other users may be able to write to the output directory and change its content while we run. So this file walks to
 * it component by component and follows only links of our user and of root. It creates, renames and removes files by
 * the directory's descriptor, never by a path. Files are created with O_EXCL and O_NOFOLLOW: nothing is overwritten.
 * Files that we did not create are opened with O_NONBLOCK and O_NOCTTY and read only if they are regular.
 *
 * A program relies on the lowest free number when it opens a file. So a thread of the program holds none of ours beyond
 * the hook that it is in, and a bare thread, which may open files at any moment, has a table of descriptors of its own:
 * only there a file stays open.
 *
 * This code must run with less than a page of stack, so paths lie in static memory. The memory belongs to the walk,
 * which a lock restricts to one thread at a time. A thread that does not get the lock within 100 ms fails with EBUSY.
 */
#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bare_thread.h"
#include "base/fmt.h"
#include "base/sys.h"
#include "base/tfi.h"

#define MAX_LINKS 40 /* as the kernel */
#define MODE 0600

static int open_at(int at, const char *name, int flags)
{
    return (int)syscall(SYS_openat, at, name, flags | O_CLOEXEC, MODE);
}

static void close_raw(int fd)
{
    int error = errno;
    syscall(SYS_close, fd);
    errno = error;
}

/* Moves a descriptor out of the numbers that other threads expect to get meanwhile. Takes ownership of `fd`; returns the
 * new one, or `fd` itself. Below 64 the kernel's table need not grow, which takes milliseconds with threads. */
static int high_fd(int fd)
{
    const long lowest = 60;
    int high = fd < 0 || tfi_bare_thread_here() ? -1 : (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, lowest);
    if (high < 0) return fd;
    close_raw(fd);
    return high;
}

static bool is_file(int fd, uint64_t device, uint64_t inode)
{
    struct stat st;
    return fd >= 0 && tfi_fstat(fd, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

/* ---- the walk ---- */

static struct {
    struct tfi_lock lock;
    char rest[2 * TFI_PATH_BYTES]; /* the path still to be walked */
    char target[TFI_PATH_BYTES];   /* target of the latest link */
} walk;

/* Opens a directory that is not a link. With `make`, creates it if it is missing. */
static int open_directory(int at, const char *name, bool make)
{
    const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW;
    int fd = open_at(at, name, flags);
    if (fd >= 0 || errno != ENOENT || !make) return fd;
    if (syscall(SYS_mkdirat, at, name, 0777) != 0 && errno != EEXIST) return -1;
    return open_at(at, name, flags);
}

/* Reads a link into walk.target; false with errno set if `name` is no link (ENOTDIR) or another user's (ELOOP). */
static bool read_link(int at, const char *name)
{
    struct stat st;
    int fd = open_at(at, name, O_PATH | O_NOFOLLOW);
    if (fd < 0) return false;
    long length = -1;
    if (tfi_fstat(fd, &st) != 0 || !S_ISLNK(st.st_mode)) errno = ENOTDIR;
    else if (st.st_uid != geteuid() && st.st_uid != 0) errno = ELOOP;
    else length = syscall(SYS_readlinkat, fd, "", walk.target, sizeof walk.target - 1);
    close_raw(fd);
    if (length >= 0) walk.target[length] = 0;
    return length >= 0;
}

/* Puts the link's target before the path still to be walked. */
static bool follow(const char *tail)
{
    size_t first = strlen(walk.target), second = strlen(tail);
    if (first + 1 + second >= sizeof walk.rest) {
        errno = ENAMETOOLONG;
        return false;
    }
    memmove(walk.rest + first + 1, tail, second + 1);
    memcpy(walk.rest, walk.target, first);
    walk.rest[first] = '/';
    return true;
}

/* Opens the directory at the end of walk.rest; takes ownership of `at`. */
static int walk_from(int at, bool make)
{
    unsigned links = 0;
    char *name = walk.rest;
    while (at >= 0) {
        name += strspn(name, "/");
        if (!*name) return at;
        char *end = strchrnul(name, '/'), separator = *end;
        *end = 0;
        int next = open_directory(at, name, make);
        bool link = next < 0 && (errno == ENOTDIR || errno == ELOOP) && read_link(at, name);
        *end = separator;
        if (link && ++links > MAX_LINKS) errno = ELOOP;
        else if (link && follow(end)) next = walk.target[0] == '/' ? open_at(AT_FDCWD, "/", O_PATH) : at;
        if (next != at) close_raw(at);
        at = next;
        name = link ? walk.rest : end;
    }
    return -1;
}

static int walk_to(const char *path, bool make)
{
    if (*path != '/' || strlen(path) >= TFI_PATH_BYTES - TFI_NAME_BYTES) {
        errno = ENAMETOOLONG;
        return -1;
    }
    tfi_fmt(walk.rest, sizeof walk.rest, "%s", path);
    return walk_from(open_at(AT_FDCWD, "/", O_PATH), make);
}

static bool begin_walk(void)
{
    if (tfi_lock_within(&walk.lock, 100)) return true;
    errno = EBUSY;
    return false;
}

/* ---- a directory ---- */

static bool is_dir(const struct tfi_dir *dir, int fd)
{
    return is_file(fd, dir->device, dir->inode);
}

/* Closes the descriptor of the program's table. */
static void close_dir(struct tfi_dir *dir)
{
    if (dir->inode && is_dir(dir, dir->fd)) close_raw(dir->fd);
    dir->fd = -1;
    dir->users = 0;
}

static bool open_path(struct tfi_dir *dir, const char *path, bool make)
{
    struct stat st;
    tfi_dir_close(dir);
    tfi_fmt(dir->path, sizeof dir->path, "%s", path);
    if (!begin_walk()) return false;
    int fd = walk_to(path, make);
    tfi_unlock(&walk.lock);
    if (fd < 0) return false;
    fd = high_fd(fd);
    if (tfi_fstat(fd, &st) != 0) {
        close_raw(fd);
        return false;
    }
    dir->device = st.st_dev;
    dir->inode = st.st_ino;
    if (tfi_bare_thread_here()) {
        close_raw(fd);
    } else {
        dir->fd = fd;
        dir->users = 1;
    }
    return true;
}

bool tfi_dir_make(struct tfi_dir *dir, const char *path)
{
    return open_path(dir, path, true);
}

bool tfi_dir_open(struct tfi_dir *dir, const char *path)
{
    return open_path(dir, path, false);
}

void tfi_dir_has_mapped(struct tfi_dir *dir, const void *start, size_t bytes)
{
    dir->mapped = start;
    dir->mapped_bytes = bytes;
}

/* Walks to where the directory was moved: the kernel knows the path of a file in it that is mapped. */
static int walk_after(const struct tfi_dir *dir)
{
    char link[80];
    uintptr_t start = (uintptr_t)dir->mapped;
    tfi_fmt(link, sizeof link, "/proc/self/map_files/%lx-%lx", (unsigned long)start,
            (unsigned long)(start + dir->mapped_bytes));
    long length = start ? syscall(SYS_readlinkat, AT_FDCWD, link, walk.rest, sizeof walk.rest - 1) : -1;
    if (length <= 0) return -1;
    walk.rest[length] = 0;
    char *slash = strrchr(walk.rest, '/');
    if (!slash) return -1;
    *slash = 0;
    return walk_from(open_at(AT_FDCWD, "/", O_PATH), false);
}

/* Opens the directory anew, where it is now; the caller owns the lock of the walk. Its number tells it from every other one,
 * so links on the way do no harm. */
static int find_dir(const struct tfi_dir *dir)
{
    int fd = open_at(AT_FDCWD, dir->path, O_PATH | O_DIRECTORY), error = errno;
    if (is_dir(dir, fd)) return fd;
    if (fd >= 0) {
        close_raw(fd);
        error = ESTALE;
    }
    fd = error == ESTALE || error == ENOENT || error == ENOTDIR ? walk_after(dir) : -1;
    if (is_dir(dir, fd)) return fd;
    if (fd >= 0) close_raw(fd);
    errno = error;
    return -1;
}

/* Returns a descriptor of the directory until leave_dir(); -1 with errno set, ESTALE if its path leads elsewhere now. */
static int enter_dir(struct tfi_dir *dir)
{
    int fd = -1;
    if (!begin_walk()) return -1;
    if (tfi_bare_thread_here()) {
        fd = find_dir(dir);
    } else {
        if (!is_dir(dir, dir->fd)) dir->fd = high_fd(find_dir(dir));
        if (dir->fd >= 0) dir->users++;
        fd = dir->fd;
    }
    tfi_unlock(&walk.lock);
    return fd;
}

static void leave_dir(struct tfi_dir *dir, int fd)
{
    int error = errno;
    if (fd >= 0 && tfi_bare_thread_here()) close_raw(fd);
    else if (fd >= 0) tfi_dir_rest(dir);
    errno = error;
}

bool tfi_has_descriptors(void)
{
    int error = errno, fd = (int)syscall(SYS_openat, AT_FDCWD, "/", O_PATH | O_CLOEXEC, 0);
    int other = fd >= 0 ? (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (other >= 0) close_raw(other);
    if (fd >= 0) close_raw(fd);
    errno = error;
    return other >= 0;
}

bool tfi_dir_hold(struct tfi_dir *dir)
{
    return tfi_bare_thread_here() || enter_dir(dir) >= 0;
}

void tfi_dir_rest(struct tfi_dir *dir)
{
    if (tfi_bare_thread_here() || !begin_walk()) return;
    if (dir->users <= 1) close_dir(dir);
    else dir->users--;
    tfi_unlock(&walk.lock);
}

void tfi_dir_close(struct tfi_dir *dir)
{
    close_dir(dir);
    dir->device = dir->inode = 0;
    dir->mapped = NULL;
}

bool tfi_dir_system(struct tfi_dir *dir, struct statfs *fs)
{
    int at = enter_dir(dir);
    bool known = at >= 0 && fstatfs(at, fs) == 0;
    leave_dir(dir, at);
    return known;
}

/* ---- names in a directory ---- */

/* Opens a name in a directory; tries again if the program closed the directory's descriptor in between. */
static int open_in(struct tfi_dir *dir, const char *name, int flags)
{
    int fd = -1;
    for (int again = 0; again < 10; again++) {
        int at = enter_dir(dir);
        if (at < 0) return -1;
        fd = open_at(at, name, flags | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
        leave_dir(dir, at);
        if (fd >= 0 || errno != EBADF) break;
    }
    return fd;
}

/* The kernel's struct linux_dirent64, which no header has. */
struct entry {
    uint64_t inode;
    int64_t offset;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

void tfi_dir_each(struct tfi_dir *dir, void (*take)(struct tfi_dir *dir, const char *name))
{
    enum { ROOM = 8192 };
    char *entries = tfi_map(ROOM);
    long bytes;
    if (!entries) return;
    int fd = open_in(dir, ".", O_RDONLY | O_DIRECTORY);
    while (fd >= 0 && (bytes = syscall(SYS_getdents64, fd, entries, (size_t)ROOM)) > 0)
        for (long at = 0; at < bytes; at += ((const struct entry *)(entries + at))->bytes)
            take(dir, ((const struct entry *)(entries + at))->name);
    if (fd >= 0) close_raw(fd);
    tfi_unmap(entries, ROOM);
}

int tfi_dir_create(struct tfi_dir *dir, const char *name, int flags)
{
    struct stat st;
    int fd = high_fd(open_in(dir, name, flags | O_CREAT | O_EXCL));
    if (fd >= 0 && tfi_fstat(fd, &st) == 0 && (st.st_mode & 07777) != MODE) syscall(SYS_fchmod, fd, MODE);
    return fd;
}

bool tfi_dir_look(struct tfi_dir *dir, const char *name, struct stat *st)
{
    int at = enter_dir(dir);
    bool known = at >= 0 && tfi_fstatat(at, name, st, AT_SYMLINK_NOFOLLOW) == 0;
    leave_dir(dir, at);
    return known;
}

bool tfi_dir_has(struct tfi_dir *dir, const char *name)
{
    struct stat st;
    return tfi_dir_look(dir, name, &st);
}

bool tfi_dir_remove(struct tfi_dir *dir, const char *name)
{
    int at = enter_dir(dir);
    bool removed = at >= 0 && syscall(SYS_unlinkat, at, name, 0) == 0;
    leave_dir(dir, at);
    return removed;
}

static bool is_own(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_uid == geteuid();
}

int tfi_dir_open_own(struct tfi_dir *dir, const char *name, int flags, struct stat *st)
{
    int fd = high_fd(open_in(dir, name, flags));
    if (fd < 0 || (tfi_fstat(fd, st) == 0 && is_own(st))) return fd;
    close_raw(fd);
    return -1;
}

int tfi_dir_open_lines(struct tfi_dir *dir, const char *name, uint64_t *size)
{
    struct stat st;
    int fd = tfi_dir_open_own(dir, name, O_RDWR | O_APPEND | O_CREAT, &st);
    if (fd < 0) return -1;
    if ((st.st_mode & 07777) != MODE) syscall(SYS_fchmod, fd, MODE);
    *size = (uint64_t)st.st_size;
    return fd;
}

ssize_t tfi_lines_read(int fd, char *buf, size_t size)
{
    ssize_t bytes = syscall(SYS_pread64, fd, buf, size - 1, 0L);
    buf[bytes > 0 ? bytes : 0] = 0;
    return bytes;
}

bool tfi_lines_add(int fd, const char *line, uint64_t size)
{
    size_t length = strlen(line);
    return tfi_file_has_room(size + length) && syscall(SYS_write, fd, line, length) == (long)length;
}

/* Reads a file and closes it; takes ownership of `fd`. */
static ssize_t read_all(int fd, char *buf, size_t size)
{
    size_t done = 0;
    while (done < size - 1) {
        ssize_t n = syscall(SYS_read, fd, buf + done, size - 1 - done);
        if (n <= 0) break;
        done += (size_t)n;
    }
    buf[done] = 0;
    close_raw(fd);
    return (ssize_t)done;
}

ssize_t tfi_dir_read(struct tfi_dir *dir, const char *name, char *buf, size_t size)
{
    struct stat st;
    if (!tfi_dir_look(dir, name, &st)) return -1;
    int fd = is_own(&st) ? open_in(dir, name, O_RDONLY) : -1;
    if (is_file(fd, st.st_dev, st.st_ino)) return read_all(fd, buf, size);
    if (fd >= 0) close_raw(fd);
    errno = EPERM;
    return -1;
}

ssize_t tfi_read_file(const char *path, char *buf, size_t size)
{
    struct stat st;
    int fd = open_at(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return -1;
    if (tfi_fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) return read_all(fd, buf, size);
    close_raw(fd);
    errno = EINVAL;
    return -1;
}

/* ---- a file that is appended to ---- */

/* The number of the file in the table of descriptors that the calling thread uses. */
static int *number_of(struct tfi_file *file)
{
    return tfi_bare_thread_here() ? &file->bare_fd : &file->fd;
}

/* A number that a thread has left may by now mean the same file, open for reading only. */
static bool is_open(struct tfi_file *file)
{
    int fd = *number_of(file);
    return is_file(fd, file->device, file->inode) && (syscall(SYS_fcntl, fd, F_GETFL) & O_ACCMODE) == O_WRONLY;
}

bool tfi_file_create(struct tfi_file *file, struct tfi_dir *dir, const char *name)
{
    struct stat st;
    file->fd = file->bare_fd = -1;
    file->kept = false;
    int fd = tfi_dir_create(dir, name, O_WRONLY | O_APPEND);
    if (fd < 0) return false;
    if (tfi_fstat(fd, &st) != 0) {
        close_raw(fd);
        return false;
    }
    *number_of(file) = fd;
    file->device = st.st_dev;
    file->inode = st.st_ino;
    file->dir = dir;
    tfi_fmt(file->name, sizeof file->name, "%s", name);
    return true;
}

bool tfi_file_open(struct tfi_file *file)
{
    if (is_open(file)) return true;
    if (file->kept && is_file(file->fd, file->device, file->inode)) { /* taken over from the program's table */
        file->bare_fd = file->fd;
        return true;
    }
    int fd = open_in(file->dir, file->name, O_WRONLY | O_APPEND);
    if (fd < 0) return false;
    if (!is_file(fd, file->device, file->inode)) {
        close_raw(fd);
        errno = ESTALE;
        return false;
    }
    *number_of(file) = high_fd(fd);
    return true;
}

bool tfi_file_is_gone(struct tfi_file *file)
{
    struct stat st;
    if (is_open(file) && tfi_fstat(*number_of(file), &st) == 0 && st.st_nlink > 0) return false;
    if (!tfi_dir_look(file->dir, file->name, &st)) return errno == ENOENT || errno == ENOTDIR || errno == ESTALE;
    return st.st_dev != file->device || st.st_ino != file->inode;
}

bool tfi_file_has_room(uint64_t size)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || size <= limit.rlim_cur) return true;
    errno = EFBIG;
    return false;
}

void tfi_file_rest(struct tfi_file *file)
{
    if (!tfi_bare_thread_here() && !file->kept) tfi_file_close(file);
}

void tfi_file_keep(struct tfi_file *file)
{
    if (file->kept || !tfi_file_open(file)) return;
    file->kept = true;
    tfi_dir_hold(file->dir);
    tfi_bare_thread_takes_over(file->fd);
}

bool tfi_file_append(struct tfi_file *file, uint64_t *size, struct iovec *parts, int count)
{
    size_t bytes = 0, done = 0;
    int again = 100; /* a program that closes all descriptors may do so between tfi_file_open() and the write */
    for (int i = 0; i < count; i++) bytes += parts[i].iov_len;
    if (!tfi_file_open(file) || !tfi_file_has_room(*size + bytes)) return false;
    while (done < bytes) {
        ssize_t n = syscall(SYS_writev, *number_of(file), parts, count);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EBADF && again-- > 0 && tfi_file_open(file)) continue;
        if (n <= 0) break;
        done += (size_t)n;
        for (; count > 0 && (size_t)n >= parts->iov_len; parts++, count--) n -= (ssize_t)parts->iov_len;
        if (count == 0) break;
        parts->iov_base = (char *)parts->iov_base + n;
        parts->iov_len -= (size_t)n;
    }
    if (done == bytes) {
        *size += bytes;
        return true;
    }
    /* Half a block would only be damage to a reader: truncate the file. */
    int error = errno;
    if (done > 0 && syscall(SYS_ftruncate, *number_of(file), *size) != 0) *size += done;
    errno = error ? error : ENOSPC;
    return false;
}

bool tfi_dir_rename(struct tfi_dir *dir, const char *from, const char *to)
{
    int at = enter_dir(dir);
    bool ok = at >= 0 && syscall(SYS_renameat2, at, from, at, to, RENAME_NOREPLACE) == 0;
    /* The fallback for file systems that do not support RENAME_NOREPLACE. */
    if (!ok && at >= 0 && (errno == EINVAL || errno == ENOSYS) && !tfi_dir_has(dir, to))
        ok = syscall(SYS_renameat, at, from, at, to) == 0;
    leave_dir(dir, at);
    return ok;
}

bool tfi_file_rename(struct tfi_file *file, const char *name)
{
    bool ok = tfi_dir_rename(file->dir, file->name, name);
    if (ok) tfi_file_close(file);
    else tfi_file_remove(file);
    return ok;
}

bool tfi_file_replace(struct tfi_file *old, const struct tfi_file *file)
{
    char name[TFI_NAME_BYTES];
    errno = ESTALE;
    if (tfi_file_is_gone(old)) return false;
    int at = enter_dir(old->dir);
    bool ok = at >= 0 && syscall(SYS_renameat, at, file->name, at, old->name) == 0;
    leave_dir(old->dir, at);
    if (!ok) return false;
    tfi_file_close(old);
    memcpy(name, old->name, sizeof name);
    *old = *file;
    memcpy(old->name, name, sizeof name);
    return true;
}

void tfi_file_remove(struct tfi_file *file)
{
    int error = errno;
    if (!tfi_file_is_gone(file)) tfi_dir_remove(file->dir, file->name);
    tfi_file_close(file);
    errno = error;
}

void tfi_file_close(struct tfi_file *file)
{
    int *fd = number_of(file);
    if (*fd >= 0 && is_open(file)) close_raw(*fd);
    *fd = -1;
    if (fd != &file->fd || !file->kept) return;
    file->kept = false;
    tfi_bare_thread_takes_over(-1);
}
