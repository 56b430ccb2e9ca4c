/* sys.c - locks, memory, files and directories by raw system calls.
 *
 * syscall() is used where libc's function would be a cancellation point or keeps state of its own.
 * Files are created with O_EXCL and O_NOFOLLOW: nothing is overwritten and no planted link is followed.
 */
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fmt.h"
#include "tfi.h"

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

void tfi_futex_wait(uint32_t *word, uint32_t value, unsigned ms)
{
    struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &limit, NULL, 0);
}

void tfi_futex_wake(uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

enum { HELD = 1, WAITED_FOR = 2, STATE = 3 };

/* This process in the upper bits of a lock. It is kept on the page that a child by whatever kind of fork finds empty. */
static uint32_t holder(void)
{
    uint32_t known = __atomic_load_n(&tfi_process->holder, __ATOMIC_RELAXED);
    if (TFI_LIKELY(known)) return known;
    known = (uint32_t)tfi_getpid() << 2;
    __atomic_store_n(&tfi_process->holder, known, __ATOMIC_RELAXED);
    return known;
}

bool tfi_lock_within(struct tfi_lock *lock, unsigned ms)
{
    uint32_t word = 0, mine = holder();
    if (__atomic_compare_exchange_n(&lock->word, &word, mine | HELD, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return true;
    uint64_t end = tfi_monotonic_ns() + (uint64_t)ms * 1000000;
    for (;;) {
        word = __atomic_load_n(&lock->word, __ATOMIC_RELAXED);
        bool available = (word & ~(uint32_t)STATE) != mine;
        if (word != (mine | WAITED_FOR) && !__atomic_compare_exchange_n(&lock->word, &word, mine | WAITED_FOR, false,
                                                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            continue;
        if (available) return true;
        if (tfi_monotonic_ns() >= end) return false;
        tfi_futex_wait(&lock->word, mine | WAITED_FOR, ms < 10 ? ms : 10);
    }
}

void tfi_lock(struct tfi_lock *lock)
{
    while (!tfi_lock_within(lock, 1000)) continue;
}

void tfi_unlock(struct tfi_lock *lock)
{
    if ((__atomic_exchange_n(&lock->word, 0, __ATOMIC_RELEASE) & STATE) == WAITED_FOR) tfi_futex_wake(&lock->word);
}

pid_t tfi_getpid(void)
{
    return (pid_t)syscall(SYS_getpid);
}

pid_t tfi_gettid(void)
{
    return (pid_t)syscall(SYS_gettid);
}

static uint64_t clock_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t tfi_monotonic_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t tfi_realtime_ns(void)
{
    return clock_ns(CLOCK_REALTIME);
}

void *tfi_map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static int open_raw(const char *path, int flags, int mode)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, mode);
}

static void close_raw(int fd)
{
    syscall(SYS_close, fd);
}

/* Moves a descriptor out of the range programs count on. Takes `fd`, returns the new one or `fd` itself. */
static int high_fd(int fd)
{
    /* Below 64 the kernel's table need not grow, which with threads takes it milliseconds. */
    static const int floors[] = {60, 40, 20};
    for (size_t i = 0; fd >= 0 && i < sizeof floors / sizeof floors[0]; i++) {
        int high = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, floors[i]);
        if (high < 0) continue;
        close_raw(fd);
        return high;
    }
    return fd;
}

static bool same_file(const struct tfi_file *file, int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_dev == file->device && st.st_ino == file->inode;
}

bool tfi_file_create(struct tfi_file *file, const char *path)
{
    struct stat st;
    file->fd = -1;
    int fd = open_raw(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW, 0644);
    if (fd < 0) return false;
    fd = high_fd(fd);
    if (fstat(fd, &st) != 0) {
        close_raw(fd);
        return false;
    }
    file->fd = fd;
    file->device = st.st_dev;
    file->inode = st.st_ino;
    tfi_fmt(file->path, sizeof file->path, "%s", path);
    return true;
}

/* True if file->fd can be written to; opens it again if needed. */
static bool check_file(struct tfi_file *file)
{
    if (file->fd >= 0 && same_file(file, file->fd)) return true;
    int fd = open_raw(file->path, O_WRONLY | O_APPEND | O_NOFOLLOW, 0);
    if (fd < 0) return false;
    if (!same_file(file, fd)) {
        close_raw(fd);
        errno = ESTALE;
        return false;
    }
    file->fd = high_fd(fd);
    return true;
}

bool tfi_file_has_room(uint64_t size)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || size <= limit.rlim_cur) return true;
    errno = EFBIG;
    return false;
}

bool tfi_file_append(struct tfi_file *file, uint64_t *size, struct iovec *parts, int count)
{
    size_t bytes = 0, done = 0;
    int again = 100; /* a program that closes all descriptors may do so between the look and the write */
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
    /* Half a block would only be damage to a reader: take it back. */
    int error = errno;
    if (done > 0 && syscall(SYS_ftruncate, file->fd, *size) != 0) *size += done;
    errno = error ? error : ENOSPC;
    return false;
}

void tfi_file_close(struct tfi_file *file)
{
    if (file->fd >= 0 && same_file(file, file->fd)) close_raw(file->fd);
    file->fd = -1;
}

ssize_t tfi_read_file(const char *path, char *buf, size_t size)
{
    int fd = open_raw(path, O_RDONLY, 0);
    if (fd < 0) return -1;
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

bool tfi_replace_file(const char *path, const void *data, size_t bytes)
{
    struct tfi_file file;
    char temporary[4096];
    uint64_t size = 0;
    tfi_fmt(temporary, sizeof temporary, "%s.tmp", path);
    unlink(temporary);
    if (!tfi_file_create(&file, temporary)) return false;
    struct iovec part = {(void *)data, bytes};
    bool ok = tfi_file_append(&file, &size, &part, 1);
    tfi_file_close(&file);
    if (ok && syscall(SYS_rename, temporary, path) == 0) return true;
    int error = errno;
    unlink(temporary);
    errno = error;
    return false;
}

/* A link in a shared directory may lead our files wherever its owner wants: only our own and root's are followed. */
static bool safe_directory(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0) return false;
    if (S_ISLNK(st.st_mode) && st.st_uid != geteuid() && st.st_uid != 0) {
        errno = ELOOP;
        return false;
    }
    if (stat(path, &st) != 0) return false;
    if (!S_ISDIR(st.st_mode)) {
        errno = ENOTDIR;
        return false;
    }
    return true;
}

bool tfi_make_dirs(const char *path)
{
    char part[4096];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof part) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(part, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (part[i] != '/' && part[i] != 0) continue;
        part[i] = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST && access(part, F_OK) != 0) return false;
        if (i < length) part[i] = '/';
    }
    return safe_directory(path);
}
