/* files.c - handles our directories and files by raw system calls on a directory's descriptor.
 *
 * Other users may be able to write to the output directory and change its content while we run. So this file walks to
 * it component by component and follows only links of our user and of root. It creates, renames and removes files by
 * the directory's descriptor, never by a path. Files are created with O_EXCL and O_NOFOLLOW: nothing is overwritten.
 * Files that we did not create are opened with O_NONBLOCK and O_NOCTTY and read only if they are regular.
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

/* Where RLIMIT_NOFILE leaves no number from here on, no descriptor is held between two uses: the program may need all,
 * or look at each. Below 64 the kernel's descriptor table need not grow, which takes milliseconds with threads. */
#define LOWEST_HELD 60

static void let_go(int *fd)
{
    if (*fd < 0 || *fd >= LOWEST_HELD) return;
    close_raw(*fd);
    *fd = -1;
}

/* Moves a descriptor out of the range of numbers that programs expect to get. Takes ownership of `fd`; returns the new
 * one, or `fd` itself. */
static int high_fd(int fd)
{
    int high = fd < 0 ? -1 : (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, LOWEST_HELD);
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
    dir->fd = fd;
    dir->device = st.st_dev;
    dir->inode = st.st_ino;
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

static int open_again(struct tfi_dir *dir)
{
    if (!begin_walk()) return -1;
    int fd = is_file(dir->fd, dir->device, dir->inode) ? dir->fd : walk_to(dir->path, false);
    if (fd >= 0 && fd != dir->fd && !is_file(fd, dir->device, dir->inode)) {
        close_raw(fd);
        fd = -1;
        errno = ESTALE;
    }
    if (fd >= 0 && fd != dir->fd) dir->fd = high_fd(fd);
    tfi_unlock(&walk.lock);
    return fd < 0 ? -1 : dir->fd;
}

int tfi_dir_fd(struct tfi_dir *dir)
{
    int fd = dir->fd;
    return is_file(fd, dir->device, dir->inode) ? fd : open_again(dir);
}

void tfi_dir_rest(struct tfi_dir *dir)
{
    if (is_file(dir->fd, dir->device, dir->inode)) let_go(&dir->fd);
}

void tfi_dir_close(struct tfi_dir *dir)
{
    if (dir->inode && is_file(dir->fd, dir->device, dir->inode)) close_raw(dir->fd);
    dir->fd = -1;
    dir->device = dir->inode = 0;
}

/* ---- names in a directory ---- */

/* Opens a name in a directory; tries again if the program closed the directory's descriptor in between. */
static int open_in(struct tfi_dir *dir, const char *name, int flags)
{
    int fd = -1;
    for (int again = 0; again < 10; again++) {
        int at = tfi_dir_fd(dir);
        if (at < 0) return -1;
        fd = open_at(at, name, flags | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
        if (fd >= 0 || errno != EBADF) break;
    }
    return fd;
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
    int at = tfi_dir_fd(dir);
    return at >= 0 && tfi_fstatat(at, name, st, AT_SYMLINK_NOFOLLOW) == 0;
}

bool tfi_dir_has(struct tfi_dir *dir, const char *name)
{
    struct stat st;
    return tfi_dir_look(dir, name, &st);
}

bool tfi_dir_remove(struct tfi_dir *dir, const char *name)
{
    int at = tfi_dir_fd(dir);
    return at >= 0 && syscall(SYS_unlinkat, at, name, 0) == 0;
}

static bool is_own(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_uid == geteuid();
}

int tfi_dir_open_own(struct tfi_dir *dir, const char *name, int flags, struct stat *st)
{
    int fd = open_in(dir, name, flags);
    if (fd < 0 || (tfi_fstat(fd, st) == 0 && is_own(st))) return fd;
    close_raw(fd);
    return -1;
}

bool tfi_dir_add_line(struct tfi_dir *dir, const char *name, const char *line)
{
    struct stat st;
    size_t length = strlen(line);
    int fd = tfi_dir_open_own(dir, name, O_WRONLY | O_APPEND | O_CREAT, &st);
    if (fd < 0) return false;
    if ((st.st_mode & 07777) != MODE) syscall(SYS_fchmod, fd, MODE);
    bool done =
        tfi_file_has_room((uint64_t)st.st_size + length) && syscall(SYS_write, fd, line, length) == (long)length;
    close_raw(fd);
    return done;
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

/* ---- a file of the kernel ---- */

bool tfi_kernel_file_open(struct tfi_kernel_file *file, const char *path)
{
    struct stat st;
    *file = (struct tfi_kernel_file){.fd = high_fd(open_at(AT_FDCWD, path, O_RDONLY))};
    if (file->fd >= 0 && file->fd < LOWEST_HELD) close_raw(file->fd);
    if (file->fd < LOWEST_HELD || tfi_fstat(file->fd, &st) != 0) return false;
    file->device = st.st_dev;
    file->inode = st.st_ino;
    return true;
}

ssize_t tfi_kernel_file_read(struct tfi_kernel_file *file, char *buf, size_t size)
{
    if (!file->inode || !is_file(file->fd, file->device, file->inode)) return -1;
    ssize_t n = syscall(SYS_pread64, file->fd, buf, size - 1, 0);
    if (n >= 0) buf[n] = 0;
    return n;
}

void tfi_kernel_file_close(struct tfi_kernel_file *file)
{
    if (file->inode && is_file(file->fd, file->device, file->inode)) close_raw(file->fd);
    *file = (struct tfi_kernel_file){.fd = -1};
}

/* ---- a file that is appended to ---- */

bool tfi_file_create(struct tfi_file *file, struct tfi_dir *dir, const char *name)
{
    struct stat st;
    file->fd = -1;
    int fd = tfi_dir_create(dir, name, O_WRONLY | O_APPEND);
    if (fd < 0) return false;
    if (tfi_fstat(fd, &st) != 0) {
        close_raw(fd);
        return false;
    }
    file->fd = fd;
    file->device = st.st_dev;
    file->inode = st.st_ino;
    file->dir = dir;
    tfi_fmt(file->name, sizeof file->name, "%s", name);
    return true;
}

static bool is_open(const struct tfi_file *file)
{
    return is_file(file->fd, file->device, file->inode);
}

/* Makes file->fd refer to our file, reopening it if needed; false with errno set if it can't. */
static bool check_file(struct tfi_file *file)
{
    if (is_open(file)) return true;
    int fd = open_in(file->dir, file->name, O_WRONLY | O_APPEND);
    if (fd < 0) return false;
    if (!is_file(fd, file->device, file->inode)) {
        close_raw(fd);
        errno = ESTALE;
        return false;
    }
    file->fd = high_fd(fd);
    return true;
}

bool tfi_file_is_gone(struct tfi_file *file)
{
    struct stat st;
    if (is_open(file) && tfi_fstat(file->fd, &st) == 0 && st.st_nlink > 0) return false;
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

static void rest(struct tfi_file *file)
{
    if (is_open(file)) let_go(&file->fd);
    tfi_dir_rest(file->dir);
}

static bool append(struct tfi_file *file, uint64_t *size, struct iovec *parts, int count)
{
    size_t bytes = 0, done = 0;
    int again = 100; /* a program that closes all descriptors may do so between check_file() and the write */
    for (int i = 0; i < count; i++) bytes += parts[i].iov_len;
    if (!check_file(file) || !tfi_file_has_room(*size + bytes)) return false;
    while (done < bytes) {
        ssize_t n = syscall(SYS_writev, file->fd, parts, count);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EBADF && again-- > 0 && check_file(file)) continue;
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
    if (done > 0 && syscall(SYS_ftruncate, file->fd, *size) != 0) *size += done;
    errno = error ? error : ENOSPC;
    return false;
}

bool tfi_file_append(struct tfi_file *file, uint64_t *size, struct iovec *parts, int count)
{
    bool done = append(file, size, parts, count);
    if (TFI_UNLIKELY(file->fd < LOWEST_HELD || file->dir->fd < LOWEST_HELD)) rest(file);
    return done;
}

bool tfi_file_rename(struct tfi_file *file, const char *name)
{
    int at = tfi_dir_fd(file->dir);
    bool ok = at >= 0 && syscall(SYS_renameat2, at, file->name, at, name, RENAME_NOREPLACE) == 0;
    /* The fallback for file systems that do not support RENAME_NOREPLACE. */
    if (!ok && at >= 0 && (errno == EINVAL || errno == ENOSYS) && !tfi_dir_has(file->dir, name))
        ok = syscall(SYS_renameat, at, file->name, at, name) == 0;
    if (ok) tfi_file_close(file);
    else tfi_file_remove(file);
    return ok;
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
    if (file->fd >= 0 && is_open(file)) close_raw(file->fd);
    file->fd = -1;
}
