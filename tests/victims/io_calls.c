/* io_calls.c - calls every function of io/posix.def and io/stdio.def once, and prints what a record must say.
 *
 * `io_calls DIRECTORY` prints a line for each call: name, result, errno, requested bytes, path. All other work is done by
 * raw system calls, which no hook sees. Functions without a prototype in today's headers are declared here.
 */
#undef __OPTIMIZE__ /* otherwise the header makes getline a call of __getdelim */
#include <aio.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utime.h>

#undef fread_unlocked
#undef fwrite_unlocked
int __open_2(const char *, int), __open64_2(const char *, int), __openat_2(int, const char *, int),
    __openat64_2(int, const char *, int);
ssize_t __read_chk(int, void *, size_t, size_t), __pread_chk(int, void *, size_t, off_t, size_t),
    __pread64_chk(int, void *, size_t, off64_t, size_t);
ssize_t __readlink_chk(const char *, char *, size_t, size_t),
    __readlinkat_chk(int, const char *, char *, size_t, size_t);
int __xstat(int, const char *, struct stat *), __lxstat(int, const char *, struct stat *),
    __fxstat(int, int, struct stat *);
int __xstat64(int, const char *, struct stat64 *), __lxstat64(int, const char *, struct stat64 *),
    __fxstat64(int, int, struct stat64 *);
int __fxstatat(int, int, const char *, struct stat *, int), __fxstatat64(int, int, const char *, struct stat64 *, int);
size_t __fread_chk(void *, size_t, size_t, size_t, FILE *),
    __fread_unlocked_chk(void *, size_t, size_t, size_t, FILE *);
char *__fgets_chk(char *, size_t, int, FILE *), *__fgets_unlocked_chk(char *, size_t, int, FILE *);
int __fprintf_chk(FILE *, int, const char *, ...), __vfprintf_chk(FILE *, int, const char *, va_list);
int __dprintf_chk(int, int, const char *, ...), __vdprintf_chk(int, int, const char *, va_list);

static char dir[512], names[32][600], *line;
static size_t room;
static char buf[256];
static struct stat st;
static struct stat64 st64;
static struct iovec parts[2] = {{buf, 3}, {buf + 3, 5}};

static void say(const char *name, long result, int error, long bytes, const char *path)
{
    char text[1024];
    int n = snprintf(text, sizeof text, "%s %ld %d %ld %s\n", name, result, error, bytes, path ? path : "-");
    syscall(SYS_write, 1, text, n);
}

/* The path of a name in the directory. */
static const char *at(const char *name)
{
    static int next;
    char *path = names[next++ % 32];
    snprintf(path, 600, "%s/%s", dir, name);
    return path;
}

/* Opens a file that has ten bytes; no hook sees it. */
static int file(const char *name)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, at(name), O_RDWR | O_CREAT, 0644);
    syscall(SYS_pwrite64, fd, "abcd\nfghi\n", 10, 0L);
    return fd;
}

static const char *made(const char *name)
{
    syscall(SYS_close, file(name));
    return at(name);
}

static const char *link_of(int fd)
{
    static char path[600];
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    long n = syscall(SYS_readlink, name, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    return path;
}

#define CALL(name, bytes, path, expression)                                                                            \
    do {                                                                                                               \
        const char *path_ = path;                                                                                      \
        errno = 77;                                                                                                    \
        long result_ = (long)(expression);                                                                             \
        say(#name, result_, result_ == -1 ? errno : 0, bytes, path_);                                                  \
    } while (0)
/* A function that completes the name that it gets. */
#define CHOSEN(name, expression)                                                                                       \
    do {                                                                                                               \
        chosen = (char *)at("tempXXXXXX");                                                                             \
        long result_ = (long)(expression);                                                                             \
        say(#name, result_, 0, 0, chosen);                                                                             \
    } while (0)
/* A function that returns an errno. */
#define CODE(name, bytes, path, expression)                                                                            \
    do {                                                                                                               \
        const char *path_ = path;                                                                                      \
        int code_ = expression;                                                                                        \
        say(#name, code_ ? -1 : 0, code_, bytes, path_);                                                               \
    } while (0)

static void opening(void)
{
    const char *p = made("o"), *none = at("none");
    int d = (int)syscall(SYS_openat, AT_FDCWD, dir, O_RDONLY | O_DIRECTORY);
    CALL(open, 0, none, open(none, O_RDONLY));
    CALL(open64, 0, p, open64(p, O_RDWR | O_CREAT, 0600));
    CALL(openat, 0, p, openat(d, "o", O_RDONLY));
    CALL(openat64, 0, p, openat64(d, "./o", O_RDONLY));
    CALL(__open_2, 0, p, __open_2(p, O_RDONLY));
    CALL(__open64_2, 0, p, __open64_2(p, O_RDONLY));
    CALL(__openat_2, 0, p, __openat_2(d, "o", O_RDONLY));
    CALL(__openat64_2, 0, p, __openat64_2(d, "o", O_RDONLY));
    CALL(creat, 0, at("c1"), creat(at("c1"), 0640));
    CALL(creat64, 0, at("c2"), creat64(at("c2"), 0640));
    int made_fd = -1;
    char *chosen;
    CHOSEN(mkstemp, made_fd = mkstemp(chosen));
    CHOSEN(mkostemp, made_fd = mkostemp(chosen, O_CLOEXEC));
    CHOSEN(mkstemps, made_fd = mkstemps(chosen, 0));
    CHOSEN(mkostemps, made_fd = mkostemps(chosen, 0, O_CLOEXEC));
    CHOSEN(mkstemp64, made_fd = mkstemp64(chosen));
    CHOSEN(mkostemp64, made_fd = mkostemp64(chosen, O_CLOEXEC));
    CHOSEN(mkstemps64, made_fd = mkstemps64(chosen, 0));
    CHOSEN(mkostemps64, made_fd = mkostemps64(chosen, 0, O_CLOEXEC));
    CHOSEN(mkdtemp, mkdtemp(chosen) ? 1 : -1);
    int fd = file("o");
    CALL(close, 0, p, close(fd));
    CALL(close_range, 0, NULL, close_range(900, 901, 0));
    CALL(closefrom, 0, NULL, (closefrom(1000), 0));
}

static void reading(void)
{
    const char *p = made("r");
    int fd = file("r");
    CALL(read, 4, p, read(fd, buf, 4));
    CALL(__read_chk, 20, p, __read_chk(fd, buf, 20, sizeof buf));
    CALL(pread, 4, p, pread(fd, buf, 4, 1));
    CALL(pread64, 5, p, pread64(fd, buf, 5, 8));
    CALL(__pread_chk, 5, p, __pread_chk(fd, buf, 5, 8, sizeof buf));
    CALL(__pread64_chk, 5, p, __pread64_chk(fd, buf, 5, 2, sizeof buf));
    CALL(preadv, 8, p, preadv(fd, parts, 2, 1));
    CALL(preadv64, 8, p, preadv64(fd, parts, 2, 9));
    CALL(preadv2, 8, p, preadv2(fd, parts, 2, 1, 0));
    CALL(preadv64v2, 8, p, preadv64v2(fd, parts, 2, 1, 0));
    CALL(lseek, 0, p, lseek(fd, 2, SEEK_SET));
    CALL(lseek64, 0, p, lseek64(fd, 1, SEEK_CUR));
    CALL(readv, 8, p, readv(fd, parts, 2));
    CALL(readahead, 10, p, readahead(fd, 0, 10));
    CODE(posix_fadvise, 10, p, posix_fadvise(fd, 0, 10, POSIX_FADV_RANDOM));
    CODE(posix_fadvise64, 10, p, posix_fadvise64(fd, 0, 10, 999));
}

static void writing(void)
{
    const char *p = made("w"), *t = made("t");
    int fd = file("w"), to = file("v"), ends[2], more[2];
    CALL(write, 4, p, write(fd, "1234", 4));
    CALL(pwrite, 3, p, pwrite(fd, "abc", 3, 7));
    CALL(pwrite64, 3, p, pwrite64(fd, "abc", 3, 7));
    CALL(writev, 8, p, writev(fd, parts, 2));
    CALL(pwritev, 8, p, pwritev(fd, parts, 2, 3));
    CALL(pwritev64, 8, p, pwritev64(fd, parts, 2, 3));
    CALL(pwritev2, 8, p, pwritev2(fd, parts, 2, 3, 0));
    CALL(pwritev64v2, 8, p, pwritev64v2(fd, parts, 2, 3, 0));
    off_t from = 2;
    off64_t from64 = 3;
    CALL(sendfile, 5, p, sendfile(to, fd, &from, 5));
    CALL(sendfile64, 5, p, sendfile64(to, fd, &from64, 5));
    CALL(copy_file_range, 5, p, copy_file_range(fd, &from64, to, NULL, 5, 0));
    syscall(SYS_pipe2, ends, 0);
    syscall(SYS_pipe2, more, 0);
    from64 = 1;
    CALL(splice, 4, p, splice(fd, &from64, ends[1], NULL, 4, 0));
    CALL(tee, 3, link_of(ends[0]), tee(ends[0], more[1], 3, 0));
    CALL(vmsplice, 8, link_of(ends[1]), vmsplice(ends[1], parts, 2, 0));
    CALL(fsync, 0, p, fsync(fd));
    CALL(fdatasync, 0, p, fdatasync(fd));
    CALL(syncfs, 0, p, syncfs(fd));
    CALL(sync, 0, NULL, (sync(), 0));
    CALL(sync_file_range, 8, p, sync_file_range(fd, 0, 8, SYNC_FILE_RANGE_WRITE));
    CALL(fallocate, 100, p, fallocate(fd, 0, 0, 100));
    CALL(fallocate64, 200, p, fallocate64(fd, 0, 0, 200));
    CODE(posix_fallocate, 300, p, posix_fallocate(fd, 0, 300));
    CODE(posix_fallocate64, 0, p, posix_fallocate64(fd, 0, 0));
    CALL(ftruncate, 50, p, ftruncate(fd, 50));
    CALL(ftruncate64, 60, p, ftruncate64(fd, 60));
    CALL(truncate, 5, t, truncate(t, 5));
    CALL(truncate64, 6, t, truncate64(t, 6));
}

static void mapping(void)
{
    const char *p = made("m");
    int fd = file("m");
    char *one, *two;
    CALL(mmap, 4096, p, one = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    CALL(mmap64, 4096, p, two = mmap64(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
    CALL(msync, 4096, p, msync(one, 4096, MS_SYNC));
    CALL(madvise, 4096, p, madvise(one, 4096, MADV_RANDOM));
    CODE(posix_madvise, 4096, p, posix_madvise(two, 4096, POSIX_MADV_WILLNEED));
    CALL(munmap, 4096, p, munmap(one, 4096));
}

static void asking(void)
{
    const char *p = made("s"), *l = at("l");
    int fd = file("s"), d = (int)syscall(SYS_openat, AT_FDCWD, dir, O_RDONLY | O_DIRECTORY);
    struct statx stx;
    syscall(SYS_symlink, "s", l);
    CALL(stat, 0, p, stat(p, &st));
    CALL(stat64, 0, p, stat64(p, &st64));
    CALL(lstat, 0, l, lstat(l, &st));
    CALL(lstat64, 0, l, lstat64(l, &st64));
    CALL(fstat, 0, p, fstat(fd, &st));
    CALL(fstat64, 0, p, fstat64(fd, &st64));
    CALL(fstatat, 0, p, fstatat(d, "s", &st, 0));
    CALL(fstatat64, 0, p, fstatat64(fd, "", &st64, AT_EMPTY_PATH));
    CALL(__xstat, 0, p, __xstat(1, p, &st));
    CALL(__xstat64, 0, p, __xstat64(1, p, &st64));
    CALL(__lxstat, 0, l, __lxstat(1, l, &st));
    CALL(__lxstat64, 0, l, __lxstat64(1, l, &st64));
    CALL(__fxstat, 0, p, __fxstat(1, fd, &st));
    CALL(__fxstat64, 0, p, __fxstat64(1, fd, &st64));
    CALL(__fxstatat, 0, p, __fxstatat(1, d, "s", &st, 0));
    CALL(__fxstatat64, 0, p, __fxstatat64(1, d, "s", &st64, 0));
    CALL(statx, 0, p, statx(d, "s", 0, STATX_SIZE, &stx));
    CALL(access, 0, at("none"), access(at("none"), R_OK));
    CALL(faccessat, 0, p, faccessat(d, "s", R_OK, 0));
    CALL(euidaccess, 0, p, euidaccess(p, R_OK));
    CALL(eaccess, 0, p, eaccess(p, R_OK));
    CALL(readlink, 20, l, readlink(l, buf, 20));
    CALL(readlinkat, 20, l, readlinkat(d, "l", buf, 20));
    CALL(__readlink_chk, 20, l, __readlink_chk(l, buf, 20, sizeof buf));
    CALL(__readlinkat_chk, 20, l, __readlinkat_chk(d, "l", buf, 20, sizeof buf));
}

static void naming(void)
{
    int fd = file("n"), d = (int)syscall(SYS_openat, AT_FDCWD, dir, O_RDONLY | O_DIRECTORY);
    const char *p = at("n");
    struct timeval tv[2] = {{1, 0}, {2, 0}};
    struct timespec ts[2] = {{1, 0}, {2, 0}};
    struct utimbuf tb = {1, 2};
    CALL(mkdir, 0, at("d1"), mkdir(at("d1"), 0700));
    CALL(mkdirat, 0, at("d2"), mkdirat(d, "d2", 0700));
    CALL(rmdir, 0, at("d2"), rmdir(at("d2")));
    CALL(mkfifo, 0, at("f1"), mkfifo(at("f1"), 0600));
    CALL(mkfifoat, 0, at("f2"), mkfifoat(d, "f2", 0600));
    CALL(mknod, 0, at("f3"), mknod(at("f3"), S_IFREG | 0600, 0));
    CALL(mknodat, 0, at("f4"), mknodat(d, "f4", S_IFREG | 0600, 0));
    CALL(rename, 0, at("f3"), rename(at("f3"), at("f5")));
    CALL(renameat, 0, at("f5"), renameat(d, "f5", d, "f6"));
    CALL(renameat2, 0, at("f6"), renameat2(d, "f6", d, "f7", RENAME_NOREPLACE));
    CALL(link, 0, p, link(p, at("n2")));
    CALL(linkat, 0, p, linkat(d, "n", d, "n3", 0));
    CALL(symlink, 0, at("l2"), symlink("target", at("l2")));
    CALL(symlinkat, 0, at("l3"), symlinkat("target", d, "l3"));
    CALL(unlink, 0, at("f1"), unlink(at("f1")));
    CALL(unlinkat, 0, at("f2"), unlinkat(d, "f2", 0));
    CALL(remove, 0, at("f4"), remove(at("f4")));
    CALL(chmod, 0, p, chmod(p, 0600));
    CALL(lchmod, 0, p, lchmod(p, 0600));
    CALL(fchmod, 0, p, fchmod(fd, 0600));
    CALL(fchmodat, 0, p, fchmodat(d, "n", 0600, 0));
    CALL(chown, 0, p, chown(p, getuid(), getgid()));
    CALL(lchown, 0, p, lchown(p, getuid(), getgid()));
    CALL(fchown, 0, p, fchown(fd, getuid(), getgid()));
    CALL(fchownat, 0, p, fchownat(d, "n", getuid(), getgid(), 0));
    CALL(utime, 0, p, utime(p, &tb));
    CALL(utimes, 0, p, utimes(p, tv));
    CALL(lutimes, 0, p, lutimes(p, tv));
    CALL(futimes, 0, p, futimes(fd, tv));
    CALL(futimesat, 0, p, futimesat(d, "n", tv));
    CALL(futimens, 0, p, futimens(fd, ts));
    CALL(utimensat, 0, p, utimensat(d, "n", ts, 0));
    CALL(fchdir, 0, dir, fchdir(d));
    CALL(chdir, 0, at("d1"), chdir("d1"));
    CALL(chroot, 0, at("d1/none"), chroot("none"));
}

static void listing(void)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, dir, O_RDONLY | O_DIRECTORY);
    struct dirent entry, *found;
    struct dirent64 entry64, *found64;
    DIR *d = NULL, *e = NULL;
    CALL(opendir, 0, dir, (d = opendir(dir)) ? dirfd(d) : -1);
    CALL(fdopendir, 0, dir, (e = fdopendir(fd)) ? dirfd(e) : -1);
    CALL(readdir, 0, dir, readdir(d) ? 1 : -1);
    CALL(readdir64, 0, dir, readdir64(d) ? 1 : -1);
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    CODE(readdir_r, 0, dir, readdir_r(d, &entry, &found));
    CODE(readdir64_r, 0, dir, readdir64_r(d, &entry64, &found64));
    long place;
    CALL(telldir, 0, dir, place = telldir(d));
    CALL(seekdir, 0, dir, (seekdir(d, place), 0));
    CALL(rewinddir, 0, dir, (rewinddir(d), 0));
    CALL(getdents64, 256, dir, getdents64(fd, buf, 256));
    CALL(closedir, 0, dir, closedir(d));
}

static void copying(void)
{
    int fd = file("x"), pair[2];
    const char *p = at("x");
    CALL(dup, 0, p, dup(fd));
    CALL(dup2, 0, p, dup2(fd, 60));
    CALL(dup3, 0, p, dup3(fd, 61, O_CLOEXEC));
    CALL(fcntl, 0, p, fcntl(fd, F_GETFD));
    CALL(fcntl64, 0, p, fcntl64(60, F_DUPFD, 70));
    CALL(pipe, 0, NULL, pipe(pair));
    CALL(pipe2, 0, NULL, pipe2(pair, O_CLOEXEC));
}

static void submitting(void)
{
    int fd = file("a");
    const char *p = at("a");
    struct aiocb one = {.aio_fildes = fd, .aio_buf = buf, .aio_nbytes = 8};
    struct aiocb64 two = {.aio_fildes = fd, .aio_buf = buf, .aio_nbytes = 7, .aio_offset = 1};
    struct aiocb three = {.aio_fildes = fd, .aio_buf = buf, .aio_nbytes = 6, .aio_lio_opcode = LIO_READ},
                 *list = &three;
    struct aiocb64 four = {.aio_fildes = fd, .aio_buf = buf, .aio_nbytes = 6, .aio_lio_opcode = LIO_READ},
                   *list64 = &four;
    struct aiocb five = one, six = one;
    struct aiocb64 seven = two, eight = two;
    struct timespec pause = {0, 1000000};
    CALL(aio_read, 8, p, aio_read(&one));
    CALL(aio_read64, 7, p, aio_read64(&two));
    CALL(aio_suspend, 0, NULL, aio_suspend((const struct aiocb *const[]){&one}, 1, NULL));
    CALL(aio_suspend64, 0, NULL, aio_suspend64((const struct aiocb64 *const[]){&two}, 1, NULL));
    CODE(aio_error, 8, p, aio_error(&one));
    CODE(aio_error64, 7, p, aio_error64(&two));
    CALL(aio_return, 8, p, aio_return(&one));
    CALL(aio_return64, 7, p, aio_return64(&two));
    CALL(aio_write, 8, p, aio_write(&five));
    CALL(aio_write64, 7, p, aio_write64(&seven));
    CALL(aio_fsync, 0, p, aio_fsync(O_SYNC, &six));
    CALL(aio_fsync64, 0, p, aio_fsync64(O_SYNC, &eight));
    const struct aiocb *first[] = {&five, &six};
    const struct aiocb64 *second[] = {&seven, &eight};
    for (int i = 0; i < 2; i++)
        while (__atomic_load_n(&first[i]->__error_code, __ATOMIC_ACQUIRE) == EINPROGRESS ||
               __atomic_load_n(&second[i]->__error_code, __ATOMIC_ACQUIRE) == EINPROGRESS)
            syscall(SYS_nanosleep, &pause, NULL);
    CALL(aio_cancel, 0, p, aio_cancel(fd, NULL));
    CALL(aio_cancel64, 0, p, aio_cancel64(fd, NULL));
    CALL(lio_listio, 0, NULL, lio_listio(LIO_WAIT, &list, 1, NULL));
    CALL(lio_listio64, 0, NULL, lio_listio64(LIO_WAIT, &list64, 1, NULL));
}

static int with_list(int which, FILE *f, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = which == 0   ? vfprintf(f, format, list)
            : which == 1 ? __vfprintf_chk(f, 1, format, list)
            : which == 2 ? vdprintf(f->_fileno, format, list)
                         : __vdprintf_chk(f->_fileno, 1, format, list);
    va_end(list);
    return n;
}

static long length(const char *text)
{
    return text ? (long)strlen(text) : 0;
}

static void streams(void)
{
    const char *p = made("i"), *q = made("j"), *none = at("none");
    FILE *f = NULL, *g = NULL, *h = NULL;
    fpos_t at_start;
    fpos64_t at_start64;
    CALL(fopen, 0, none, (f = fopen(none, "r")) ? fileno(f) : -1);
    CALL(fopen64, 0, p, (f = fopen64(p, "r+")) ? fileno(f) : -1);
    CALL(fdopen, 0, q, (g = fdopen(file("j"), "r+")) ? fileno(g) : -1);
    CALL(fread, 6, p, fread(buf, 2, 3, f) * 2);
    CALL(ftell, 0, p, ftell(f));
    CALL(fseek, 0, p, fseek(f, 2, SEEK_SET));
    CALL(fread_unlocked, 40, p, fread_unlocked(buf, 4, 10, f) * 4);
    CALL(fseeko, 0, p, fseeko(f, 0, SEEK_SET));
    CALL(__fread_chk, 3, p, __fread_chk(buf, sizeof buf, 1, 3, f));
    CALL(__fread_unlocked_chk, 3, p, __fread_unlocked_chk(buf, sizeof buf, 1, 3, f));
    CALL(ftello, 0, p, ftello(f));
    CALL(ftello64, 0, p, ftello64(f));
    CALL(fseeko64, 0, p, fseeko64(f, 0, SEEK_SET));
    CALL(fgets, 100, p, length(fgets(buf, 100, f)));
    CALL(fgets_unlocked, 3, p, length(fgets_unlocked(buf, 3, f)));
    CALL(__fgets_chk, 100, p, length(__fgets_chk(buf, sizeof buf, 100, f)));
    CALL(__fgets_unlocked_chk, 100, p, length(__fgets_unlocked_chk(buf, sizeof buf, 100, f)));
    CALL(rewind, 0, p, (rewind(f), 0));
    CALL(getline, 0, p, getline(&line, &room, f));
    CALL(getdelim, 0, p, getdelim(&line, &room, 'h', f));
    CALL(__getdelim, 0, p, __getdelim(&line, &room, '\n', f));
    CALL(fgetpos, 0, p, fgetpos(f, &at_start));
    CALL(fgetpos64, 0, p, fgetpos64(f, &at_start64));
    CALL(fsetpos, 0, p, fsetpos(f, &at_start));
    CALL(fsetpos64, 0, p, fsetpos64(f, &at_start64));
    CALL(fwrite, 6, p, fwrite("123456", 3, 2, f) * 3);
    CALL(fwrite_unlocked, 4, p, fwrite_unlocked("1234", 1, 4, f));
    CALL(fputs, 5, p, fputs("hello", f) < 0 ? -1 : 5);
    CALL(fputs_unlocked, 3, p, fputs_unlocked("abc", f) < 0 ? -1 : 3);
    CALL(fprintf, 7, p, fprintf(f, "%s %d\n", "four", 5));
    CALL(__fprintf_chk, 9, p, __fprintf_chk(f, 1, "%.2f %s\n", 3.14159, "pie"));
    CALL(vfprintf, 3, p, with_list(0, f, "%d", 123));
    CALL(__vfprintf_chk, 3, p, with_list(1, f, "%d", 456));
    CALL(fflush, 0, p, fflush(f));
    CALL(fflush_unlocked, 0, p, fflush_unlocked(f));
    CALL(dprintf, 4, q, dprintf(fileno(g), "%x", 0xabcd));
    CALL(__dprintf_chk, 4, q, __dprintf_chk(fileno(g), 1, "%x", 0xabcd));
    CALL(vdprintf, 3, q, with_list(2, g, "%d", 123));
    CALL(__vdprintf_chk, 3, q, with_list(3, g, "%d", 123));
    CALL(freopen, 0, p, (h = freopen(p, "r", g)) ? fileno(h) : -1);
    CALL(freopen64, 0, q, (h = freopen64(q, "r", h)) ? fileno(h) : -1);
    CALL(fclose, 0, p, fclose(f));
}

int main(int argc, char **argv)
{
    if (argc != 2 || strlen(argv[1]) >= sizeof dir) return 2;
    strcpy(dir, argv[1]);
    opening();
    reading();
    writing();
    mapping();
    asking();
    listing();
    copying();
    submitting();
    streams();
    naming();
    return 0;
}
