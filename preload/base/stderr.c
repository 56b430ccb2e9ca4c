/* stderr.c - writes to the program's stderr, and can neither kill the program nor make it wait.
 *
 * A program may close descriptor 2 and get that number for a file of its own. A line of ours would damage that file, so
 * nothing is written unless descriptor 2 is still the file it was at start, or a terminal or pipe.
 *
 * There are three more dangers. A write to a pipe without a reader, and one beyond RLIMIT_FSIZE, raise a signal that
 * kills. A write to a full pipe or terminal waits until somebody reads. So the line is dropped if the kernel says
 * beforehand that the write would not succeed. Another thread may change that between the check and the write.
 * Therefore:
 * - All signals are blocked during both. A signal raised by the write itself goes to this thread and is consumed. One
 *   of the same number that was pending before is the program's and stays pending. With SIGTTOU blocked a terminal takes
 *   the line of a background job too. No handler of the program can jump out of this code.
 * - A bare thread has no descriptor 2: it asks the kernel for a copy of the program's, or opens that file again.
 * - The write itself does not wait. A terminal takes that flag only from its open file, so it is opened a second time.
 */
#include "base/stderr.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/bare_thread.h"
#include "base/files.h"
#include "base/fmt.h"
#include "base/sys.h"

#define KERNEL_SET 8 /* bytes of the kernel's signal set */

static struct stat at_start;
static bool known;

void tfi_stderr_init(void)
{
    known = tfi_fstat(STDERR_FILENO, &at_start) == 0;
}

static bool still_stderr(int fd, struct stat *st)
{
    if (!known || tfi_fstat(fd, st) != 0) return false;
    if (st->st_dev == at_start.st_dev && st->st_ino == at_start.st_ino) return true;
    return S_ISFIFO(st->st_mode) || S_ISCHR(st->st_mode);
}

static bool takes_lines(int fd, const struct stat *st, size_t bytes)
{
    struct pollfd look = {.fd = fd, .events = POLLOUT};
    if (S_ISREG(st->st_mode)) {
        off_t place = (off_t)syscall(SYS_lseek, fd, 0L, SEEK_CUR);
        return tfi_file_has_room((uint64_t)(place > st->st_size ? place : st->st_size) + bytes);
    }
    if (!S_ISFIFO(st->st_mode) && !S_ISCHR(st->st_mode) && !S_ISSOCK(st->st_mode)) return false;
    return syscall(SYS_poll, &look, 1L, 0L) == 1 && look.revents == POLLOUT;
}

/* True if stderr is a terminal that may be opened again. Devices of major number 5 (such as /dev/tty) stand for another
 * device, and opening /dev/ptmx would make a new pair. */
static bool is_terminal(int fd, const struct stat *st)
{
    return S_ISCHR(st->st_mode) && major(st->st_rdev) != 5 && isatty(fd);
}

/* Writes to the terminal through an open file of our own, which does not wait; false if the terminal can't be
 * opened. */
static bool write_terminal(int terminal, const char *line, size_t bytes)
{
    char link[40];
    tfi_fmt(link, sizeof link, "/proc/thread-self/fd/%d", terminal);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, link, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    syscall(SYS_write, fd, line, bytes);
    syscall(SYS_close, fd);
    return true;
}

static void write_once(int fd, const struct stat *st, const char *line, size_t bytes)
{
    struct iovec part = {(void *)line, bytes};
    if (S_ISSOCK(st->st_mode)) {
        syscall(SYS_sendto, fd, line, bytes, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
        return;
    }
    if (is_terminal(fd, st) && write_terminal(fd, line, bytes)) return;
    /* The kernel refuses RWF_NOWAIT for kinds of files where it can't promise not to wait. */
    if (!S_ISREG(st->st_mode) && (syscall(SYS_pwritev2, fd, &part, 1L, -1L, -1L, RWF_NOWAIT) >= 0 ||
                                  (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)))
        return;
    syscall(SYS_write, fd, line, bytes);
}

/* Consumes the signals of `raised` that are pending for this thread now and were not before. */
static void take_back(uint64_t raised, uint64_t before)
{
    uint64_t pending = 0;
    struct timespec none = {0, 0};
    syscall(SYS_rt_sigpending, &pending, KERNEL_SET);
    for (raised &= pending & ~before; raised; raised &= raised - 1) {
        uint64_t one = raised & -raised;
        syscall(SYS_rt_sigtimedwait, &one, NULL, &none, KERNEL_SET);
    }
}

/* The program's stderr in the table of a bare thread; -1 if it cannot be had there. The first call of the kernel gives it
 * as it is. An open file of its own has another position, so it appends; a socket cannot be opened. */
static int copy_of_stderr(void)
{
    int process = (int)syscall(SYS_pidfd_open, tfi_getpid(), 0);
    int fd = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, STDERR_FILENO, 0);
    if (process >= 0) syscall(SYS_close, process);
    if (fd >= 0) return fd;
    return (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/fd/2",
                        O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
}

void tfi_stderr_write(const char *line, size_t bytes)
{
    const uint64_t raised = 1ull << (SIGPIPE - 1) | 1ull << (SIGXFSZ - 1);
    uint64_t all = ~0ull, mask, pending = 0;
    struct stat st;
    int error = errno, copy = -1, fd = STDERR_FILENO;
    if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, KERNEL_SET) != 0) goto out;
    if (tfi_bare_thread_here()) fd = copy = copy_of_stderr();
    if (fd >= 0 && still_stderr(fd, &st) && takes_lines(fd, &st, bytes) &&
        syscall(SYS_rt_sigpending, &pending, KERNEL_SET) == 0) {
        write_once(fd, &st, line, bytes);
        take_back(raised, pending);
    }
    if (copy >= 0) syscall(SYS_close, copy);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, KERNEL_SET);
out:
    errno = error;
}
