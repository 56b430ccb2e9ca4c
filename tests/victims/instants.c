/* instants.c - interrupts an operation at many instants, each time by a handler that makes calls on files and opens stages.
 *
 *     instants SUBJECT ACTION INSTANTS
 *
 * The program steps through the operation with the processor's trap flag. At every instant it sends itself SIGUSR1, whose
 * handler makes each call that POSIX allows in a handler. The kernel delivers it at once, or as soon as it is unblocked.
 * An operation is repeated until there were enough instants. libc blocks all signals while it makes a thread, where the
 * trap would kill: a timer finds the instants there.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utime.h>

static void (*push)(const char *);
static void (*pop)(void);
static void (*action)(void);
static int directory, file;
static pid_t process;
static volatile long steps, stride, fired, wanted, failed;

static long call(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

/* ---- what the handler does ---- */

static void check(bool ok)
{
    failed += !ok;
}

static void make_calls(void)
{
    static const struct timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    char name[] = "a0", to[] = "b0", text[8];
    struct iovec part = {text, 1};
    struct stat st;
    int ends[2];
    name[1] = to[1] = (char)('0' + (getpid() != process)); /* a child has names of its own */
    int fd = openat(directory, name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    check(fd >= 0 && write(fd, "text", 4) == 4 && lseek(fd, 0, SEEK_SET) == 0 && read(fd, text, 2) == 2);
    check(readv(fd, &part, 1) == 1 && writev(fd, &part, 1) == 1 && pread(fd, text, 1, 0) == 1 &&
          pwrite(fd, text, 1, 0) == 1);
    check(fstat(fd, &st) == 0 && ftruncate(fd, 2) == 0 && fsync(fd) == 0 && fdatasync(fd) == 0 &&
          fchmod(fd, 0600) == 0);
    check(fchown(fd, (uid_t)-1, (gid_t)-1) == 0 && futimens(fd, now) == 0 && fcntl(fd, F_GETFD) >= 0);
    int copy = dup(fd);
    check(copy >= 0 && dup2(fd, copy) == copy && close(copy) == 0 && close(fd) == 0);
    check(access(name, R_OK) == 0 && faccessat(AT_FDCWD, name, R_OK, 0) == 0 && stat(name, &st) == 0 &&
          lstat(name, &st) == 0);
    check(fstatat(AT_FDCWD, name, &st, 0) == 0 && chmod(name, 0600) == 0 && fchmodat(AT_FDCWD, name, 0600, 0) == 0);
    check(chown(name, (uid_t)-1, (gid_t)-1) == 0 && fchownat(AT_FDCWD, name, (uid_t)-1, (gid_t)-1, 0) == 0);
    check(utime(name, NULL) == 0 && utimes(name, NULL) == 0 && utimensat(AT_FDCWD, name, now, 0) == 0);
    check(link(name, to) == 0 && unlink(to) == 0 && linkat(AT_FDCWD, name, AT_FDCWD, to, 0) == 0 &&
          rename(name, to) == 0);
    check(rename(to, name) == 0 || errno == ENOENT);
    unlinkat(AT_FDCWD, name, 0);
    unlinkat(AT_FDCWD, to, 0);
    check(symlink("x", to) == 0 && readlink(to, text, sizeof text) == 1 && readlinkat(AT_FDCWD, to, text, 8) == 1 &&
          unlink(to) == 0);
    check(symlinkat("x", AT_FDCWD, to) == 0 && renameat(AT_FDCWD, to, AT_FDCWD, name) == 0 && unlink(name) == 0);
    check(mkdir(name, 0700) == 0 && rmdir(name) == 0 && mkdirat(AT_FDCWD, name, 0700) == 0 && rmdir(name) == 0);
    check(mkfifo(name, 0600) == 0 && unlink(name) == 0 && mkfifoat(AT_FDCWD, name, 0600) == 0 && unlink(name) == 0);
    check(mknod(name, S_IFREG | 0600, 0) == 0 && unlink(name) == 0 && mknodat(AT_FDCWD, name, S_IFREG | 0600, 0) == 0 &&
          unlink(name) == 0);
    check(pipe(ends) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
    check(fchdir(directory) == 0 && chdir(".") == 0 && kill(getpid(), 0) == 0 && write(file, "x", 1) == 1);
}

/* Each ends the trace, and the next call opens another one. */
static void fail_to_execute(void)
{
    char *none[] = {NULL};
    check(execve("nowhere", none, none) == -1 && execv("nowhere", none) == -1 &&
          execl("nowhere", "x", (char *)NULL) == -1);
    check(fexecve(-1, none, none) == -1 && write(file, "x", 1) == 1);
}

/* The calls that a program repeats most, many times: its chunks fill. */
static void make_many_calls(void)
{
    for (int i = 0; i < 100; i++) check(write(file, "x", 1) == 1);
}

static void open_stages(void)
{
    for (int i = 0; push && i < 10; i++) {
        push("in the handler");
        pop();
    }
}

static void on_signal(int number)
{
    int error = errno;
    fired += number == SIGALRM;
    action();
    errno = error;
}

/* ---- stepping ---- */

enum { TRAP = 0x100 };

static void on_step(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    if (fired >= wanted) ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP;
    if (++steps % stride || fired >= wanted) return;
    fired++;
    call(SYS_tgkill, call(SYS_getpid, 0, 0, 0), call(SYS_gettid, 0, 0, 0), SIGUSR1);
}

static void set_stepping(bool on)
{
    if (on) __asm__ volatile("pushfq\n orq $0x100, (%%rsp)\n popfq" ::: "memory", "cc");
    else __asm__ volatile("pushfq\n andq $~0x100, (%%rsp)\n popfq" ::: "memory", "cc");
}

/* ---- what is interrupted ---- */

static void wait_for(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    check(status == 0);
}

static void *ends(void *data)
{
    return data;
}

static void *sleeps(void *data)
{
    for (;;) pause();
    return data;
}

/* Makes a thread that takes no signal, not even at its start: two handlers at a time would use the same names of files.
 * libc and allocators take their locks in a process with threads only. */
static void have_threads(void)
{
    sigset_t all, before;
    pthread_t other;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    check(pthread_create(&other, NULL, sleeps, NULL) == 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static __attribute__((noinline)) void *malloc_once(size_t bytes)
{
    void *volatile block = malloc(bytes); /* the compiler would leave out what is only freed */
    return block;
}

/* Each child finds the library as it was at the start: without memory of an earlier thread. */
static void allocates(void)
{
    static void *volatile blocks[16];
    pid_t child = fork();
    if (!child) {
        have_threads();
        free(malloc_once(3000)); /* the first calls find the functions, and prepare what others use */
        for (size_t i = 0; fired < wanted; i++) {
            set_stepping(true);
            free(blocks[i % 16]);
            blocks[i % 16] = malloc(2000 + i * 3001 % 60000);
            set_stepping(false);
        }
        _exit(failed != 0);
    }
    wait_for(child);
}

static void forks(void)
{
    set_stepping(true);
    pid_t child = fork();
    set_stepping(false);
    if (!child) _exit(0);
    wait_for(child);
}

static void loads(void)
{
    set_stepping(true);
    void *library = dlopen("libm.so.6", RTLD_NOW), *other = dlopen("libutil.so.1", RTLD_NOW);
    if (library) dlclose(library);
    if (other) dlclose(other);
    set_stepping(false);
}

static void makes_threads(void)
{
    static unsigned times;
    pthread_t thread;
    struct itimerval timer = {{0, 0}, {0, 20 + times++ * 7 % 180}};
    setitimer(ITIMER_REAL, &timer, NULL);
    check(pthread_create(&thread, NULL, ends, NULL) == 0);
    pthread_join(thread, NULL);
}

static void exits(void)
{
    pid_t child = fork();
    if (!child) {
        check(write(file, "x", 1) == 1);
        set_stepping(true);
        exit(0);
    }
    wait_for(child);
}

/* Its own instants, in the child: the child does not tell how many there were. */
static void wakes(void)
{
    pid_t child = fork();
    if (!child) {
        set_stepping(true);
        check(write(file, "x", 1) == 1);
        set_stepping(false);
        _exit(failed != 0);
    }
    wait_for(child);
}

static void fills_chunks(void)
{
    for (int i = 0; i < 900; i++) check(write(file, "x", 1) == 1);
    set_stepping(true);
    for (int i = 0; i < 40; i++) check(write(file, "x", 1) == 1);
    set_stepping(false);
}

static const struct {
    const char *name;
    void (*run)(void);
    long stride;  /* instructions from one instant to the next */
    long in_each; /* instants in each child; 0: in this process */
} subjects[] = {
    {"malloc", allocates, 23, 3},   {"fork", forks, 29, 0},
    {"dlopen", loads, 97, 0},       {"pthread_create", makes_threads, 1, 0},
    {"exit", exits, 131, 50},       {"wake", wakes, 131, 50},
    {"chunk", fills_chunks, 31, 0},
};

static const struct {
    const char *name;
    void (*run)(void);
} actions[] = {{"calls", make_calls}, {"many", make_many_calls}, {"stages", open_stages}, {"exec", fail_to_execute}};

int main(int argc, char **argv)
{
    struct sigaction handler = {.sa_handler = on_signal, .sa_flags = SA_RESTART},
                     step = {.sa_sigaction = on_step, .sa_flags = SA_RESTART | SA_SIGINFO};
    size_t subject = sizeof subjects / sizeof subjects[0];
    if (argc != 4) return 2;
    while (subject-- && strcmp(subjects[subject].name, argv[1]) != 0) continue;
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
        if (strcmp(actions[i].name, argv[2]) == 0) action = actions[i].run;
    if (subject == SIZE_MAX || !action) return 2;
    push = (void (*)(const char *))dlsym(RTLD_DEFAULT, "tfi_range_push");
    pop = (void (*)(void))dlsym(RTLD_DEFAULT, "tfi_range_pop");
    directory = open(".", O_RDONLY);
    file = open("/dev/null", O_WRONLY);
    process = getpid();
    stride = subjects[subject].stride;
    sigaction(SIGUSR1, &handler, NULL);
    sigaction(SIGALRM, &handler, NULL);
    sigaction(SIGTRAP, &step, NULL);
    long most = atol(argv[3]);
    wanted = subjects[subject].in_each;
    for (long i = 0; wanted && i < most; i += wanted) {
        stride = subjects[subject].stride * (1 + i / wanted % 16); /* the operation is longer than the first instants */
        subjects[subject].run();
    }
    if (!wanted) have_threads();
    for (wanted = wanted ? 0 : most; fired < wanted;) subjects[subject].run();
    printf("%ld failed\n", failed);
    return failed ? 1 : 7;
}
