/* weather.c - programs that mistreat themselves, their files and their threads: weather MODE.
 *
 * Every mode calls the dummy library and prints the same lines with and without the profiler. Each process adds a line
 * "pid calls" to the file that WEATHER_LOG names, so that a test can look for exactly these calls in the traces. It
 * writes the line before any step that it may not survive.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dummy.h"

extern char **environ;
static char *self;

static void calls(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (dummy_add((long)i) != (long)i + 1) abort();
}

static void note(unsigned long count)
{
    char line[64];
    int fd = open(getenv("WEATHER_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    int length = snprintf(line, sizeof line, "%d %lu\n", (int)getpid(), count);
    if (fd < 0 || write(fd, line, (size_t)length) != length) abort();
    close(fd);
}

static int wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return status;
}

static int say(const char *text, int value)
{
    printf("%s %d\n", text, value);
    fflush(stdout);
    return 0;
}

/* ---- ends ---- */

static int ends(const char *mode)
{
    calls(100);
    note(100);
    say(mode, 100);
    if (!strcmp(mode, "abort")) abort();
    if (!strcmp(mode, "sigterm")) raise(SIGTERM);
    if (!strcmp(mode, "segv")) raise(SIGSEGV);
    if (!strcmp(mode, "_exit")) _exit(7);
    if (!strcmp(mode, "_Exit")) _Exit(8);
    if (!strcmp(mode, "quick_exit")) quick_exit(9);
    if (!strcmp(mode, "raw_exit")) syscall(SYS_exit_group, 6);
    return 5; /* mode "return" */
}

static void *from_thread(void *unused)
{
    (void)unused;
    calls(50);
    exit(4);
    return NULL;
}

static int exit_in_thread(void)
{
    pthread_t thread;
    calls(100);
    note(150);
    say("calls", 150);
    pthread_create(&thread, NULL, from_thread, NULL);
    pthread_join(thread, NULL);
    return 1;
}

static unsigned waiting;

static void *endless(void *unused)
{
    (void)unused;
    calls(1000);
    say("endless", 1000);
    __atomic_add_fetch(&waiting, 1, __ATOMIC_RELEASE);
    while (pause() != 0) continue;
    return NULL;
}

static int never_ending(void)
{
    pthread_t thread;
    for (int i = 0; i < 5; i++) pthread_create(&thread, NULL, endless, NULL);
    while (__atomic_load_n(&waiting, __ATOMIC_ACQUIRE) < 5) usleep(1000);
    note(5000);
    return 0;
}

/* ---- ends of the last thread ---- */

static const char *last_way;

static void at_the_end(void)
{
    say("exit handler", 1);
}

/* Works on for longer than the library looks for the end of the program's threads. */
static void *last_thread(void *unused)
{
    (void)unused;
    for (int i = 0; i < 25; i++) {
        usleep(100000);
        calls(10);
    }
    note(400250);
    if (strstr(last_way, "raw")) syscall(SYS_exit, 7);
    return NULL;
}

/* Ends the main thread, but not the process; its calls fill chunks, so the library has a thread of its own. */
static int last(const char *mode)
{
    pthread_t thread;
    last_way = mode;
    atexit(at_the_end);
    calls(400000);
    say(mode, 400000);
    if (strstr(mode, "thread")) pthread_create(&thread, NULL, last_thread, NULL);
    else note(400000);
    if (strstr(mode, "strict") && prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) return 77;
    if (strstr(mode, "killed")) syscall(SYS_getppid);
    if (strstr(mode, "zero")) syscall(SYS_exit, 0);
    if (strstr(mode, "quiet")) pthread_exit(NULL);
    syscall(SYS_exit, 7);
    return 1;
}

/* ---- processes ---- */

static int exec_self(void)
{
    calls(10);
    note(10);
    execl("/nonexistent/program", "program", (char *)NULL);
    say("exec failed", errno == ENOENT);
    calls(20);
    note(20);
    execl(self, self, "return", (char *)NULL);
    return 1;
}

static int execs(void)
{
    static const char *const names[] = {"execv",  "execve", "execvp",  "execvpe",
                                        "execlp", "execle", "fexecve", "execveat"};
    char *args[] = {self, "return", NULL};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        pid_t pid = fork();
        if (pid) {
            say(names[i], WEXITSTATUS(wait_for(pid)));
            continue;
        }
        calls(3);
        note(3);
        switch (i) {
        case 0: execv(self, args); break;
        case 1: execve(self, args, environ); break;
        case 2: execvp(self, args); break;
        case 3: execvpe(self, args, environ); break;
        case 4: execlp(self, self, "return", (char *)NULL); break;
        case 5: execle(self, self, "return", (char *)NULL, environ); break;
        case 6: fexecve(open(self, O_RDONLY), args, environ); break;
        default: execveat(AT_FDCWD, self, args, environ, 0);
        }
        _exit(1);
    }
    calls(1);
    note(1);
    return 0;
}

static int forks(void)
{
    calls(10);
    for (int i = 0; i < 8; i++) {
        pid_t pid = i % 2 ? fork() : (pid_t)syscall(SYS_fork);
        if (pid == 0) {
            calls(30u + (unsigned)i);
            note(30u + (unsigned)i);
            if (i < 4) _exit(i);
            if (i < 6) exit(i);
            syscall(SYS_exit_group, i);
        }
        say("child", WEXITSTATUS(wait_for(pid)));
        calls(10);
    }
    note(90);
    return 0;
}

static volatile int stop;

static void *hammer(void *counter)
{
    unsigned long n = 0;
    while (!stop) dummy_add((long)++n);
    *(unsigned long *)counter = n;
    return NULL;
}

static int fork_busy(void)
{
    pthread_t threads[8];
    unsigned long counts[8], total = 0;
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, hammer, &counts[i]);
    for (int i = 0; i < 30; i++) {
        usleep(5000);
        pid_t pid = fork();
        if (pid == 0) {
            calls(100);
            note(100);
            _exit(0);
        }
        if (wait_for(pid) != 0) return 1;
    }
    stop = 1;
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL), total += counts[i];
    note(total);
    return say("forks", 30);
}

static int spawns(void)
{
    char *args[] = {self, "return", NULL};
    calls(10);
    for (int i = 0; i < 5; i++) {
        pid_t pid;
        if (i % 2) {
            if (posix_spawn(&pid, self, NULL, NULL, args, environ) != 0) return 1;
        } else if ((pid = vfork()) == 0) {
            close(3);
            dup2(1, 9);
            execve(i ? self : "/nonexistent/program", args, environ);
            _exit(3);
        }
        say("status", WEXITSTATUS(wait_for(pid)));
        calls(10);
    }
    note(60);
    return 0;
}

static int daemon_mode(void)
{
    calls(10);
    note(10);
    if (fork() != 0) _exit(0);
    setsid();
    if (fork() != 0) _exit(0);
    if (chdir("/") != 0) return 1;
    for (int fd = 0; fd < 1024; fd++) close(fd);
    calls(500);
    note(500);
    return 0;
}

/* ---- threads ---- */

static void *cancelled(void *kind)
{
    int old;
    pthread_setcanceltype(kind ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED, &old);
    calls(100);
    dummy_sleep(100000);
    return NULL;
}

static void *spinning(void *unused)
{
    int old;
    (void)unused;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    for (long i = 0;; i++) dummy_add(i);
    return NULL;
}

static int cancel(void)
{
    pthread_t thread;
    for (uintptr_t i = 0; i < 10; i++) {
        pthread_create(&thread, NULL, cancelled, (void *)(i % 2));
        usleep(10000);
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    for (int i = 0; i < 20; i++) {
        pthread_create(&thread, NULL, spinning, NULL);
        usleep(3000);
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    calls(10);
    note(1010);
    return say("cancelled", 30);
}

/* A cancelled thread forks before it reaches a cancellation point. */
static void *forks_cancelled(void *unused)
{
    int old;
    (void)unused;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    pid_t child = fork();
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    if (child == 0) _exit(0);
    return (void *)(uintptr_t)(wait_for(child) == 0);
}

static int fork_cancelled(void)
{
    pthread_t thread;
    void *forked;
    calls(100000); /* enough to start the background thread, which a fork ends */
    pthread_create(&thread, NULL, forks_cancelled, NULL);
    pthread_join(thread, &forked);
    calls(10);
    note(100010);
    return say("forked", forked != PTHREAD_CANCELED);
}

static void *short_thread(void *unused)
{
    (void)unused;
    calls(3);
    return NULL;
}

static int threads(void)
{
    pthread_t thread[20];
    for (int i = 0; i < 500; i++) {
        for (int k = 0; k < 20; k++) pthread_create(&thread[k], NULL, short_thread, NULL);
        for (int k = 0; k < 20; k++) pthread_join(thread[k], NULL);
    }
    note(30000);
    return say("threads", 10000);
}

static pthread_barrier_t barrier;

static void *crowd(void *unused)
{
    (void)unused;
    calls(2);
    pthread_barrier_wait(&barrier);
    calls(2);
    pthread_barrier_wait(&barrier);
    return NULL;
}

/* Runs more threads at once than there are slots and chunks. */
static int many(void)
{
    enum { MANY = 1500 };
    static pthread_t thread[MANY];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&barrier, NULL, MANY + 1);
    for (int i = 0; i < MANY; i++)
        if (pthread_create(&thread[i], &small, crowd, NULL) != 0) abort();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < MANY; i++) pthread_join(thread[i], NULL);
    note(MANY * 4);
    return say("many", MANY);
}

/* ---- files ---- */

static int close_all(void)
{
    calls(100);
    for (int fd = 3; fd < 4096; fd++) close(fd);
    /* The library no longer owns these descriptors: every byte in the files is the program's. */
    for (int i = 0; i < 1000; i++)
        if (open("mine", O_RDWR | O_CREAT | O_APPEND, 0600) < 0) break;
    calls(400000);
    struct stat st;
    if (stat("mine", &st) != 0) return 1;
    unlink("mine");
    for (int fd = 3; fd < 4096; fd++) close(fd);
    note(400100);
    return say("bytes in the program's file", (int)st.st_size);
}

static int no_descriptors(void)
{
    struct rlimit limit = {64, 64};
    note(0);
    setrlimit(RLIMIT_NOFILE, &limit);
    while (open("/dev/null", O_RDONLY) >= 0) continue;
    calls(100);
    return say("calls without descriptors", 100);
}

static int descriptors_later(void)
{
    calls(100);
    struct rlimit limit = {64, 64};
    setrlimit(RLIMIT_NOFILE, &limit);
    note(300100);
    while (open("/dev/null", O_RDONLY) >= 0) continue;
    calls(300000);
    return say("calls", 300100);
}

static int size_limit(const char *bytes, int before)
{
    struct rlimit limit = {strtoul(bytes, NULL, 10), RLIM_INFINITY};
    if (!before) calls(10);
    setrlimit(RLIMIT_FSIZE, &limit);
    calls(500000);
    return say("calls under a size limit", 500000);
}

static int change_root(void)
{
    calls(100);
    if (mkdir("root", 0700) != 0 && errno != EEXIST) return 1;
    note(300100);
    if (chroot("root") != 0 || chdir("/") != 0) return 77;
    calls(300000);
    return say("calls", 300100);
}

static int reuse_stderr(void)
{
    struct stat st;
    calls(10);
    note(10);
    close(2);
    if (open("mine", O_RDWR | O_CREAT | O_TRUNC, 0600) != 2) return 1;
    struct rlimit limit = {1 << 20, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    calls(1500000);
    fstat(2, &st);
    return say("bytes in the program's file", (int)st.st_size);
}

static int plain(void)
{
    errno = 0;
    calls(1);
    say("errno", errno);
    errno = 11;
    calls(200000);
    say("errno", errno);
    say("result", dummy_fail(23, -5));
    say("errno", errno);
    note(200002);
    return 0;
}

/* Its records pack to more than a megabyte. */
static int million(void)
{
    calls(1500000);
    note(1500000);
    return say("calls", 1500000);
}

static int run(const char *mode, const char *argument)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } modes[] = {
        {"exit_in_thread", exit_in_thread},
        {"never_ending", never_ending},
        {"exec", exec_self},
        {"execs", execs},
        {"forks", forks},
        {"fork_busy", fork_busy},
        {"spawns", spawns},
        {"daemon", daemon_mode},
        {"cancel", cancel},
        {"fork_cancelled", fork_cancelled},
        {"threads", threads},
        {"many", many},
        {"close_all", close_all},
        {"no_descriptors", no_descriptors},
        {"descriptors_later", descriptors_later},
        {"change_root", change_root},
        {"reuse_stderr", reuse_stderr},
        {"plain", plain},
        {"million", million},
    };
    for (unsigned i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (!strcmp(mode, modes[i].name)) return modes[i].run();
    if (!strcmp(mode, "size_limit_before")) return size_limit(argument, 1);
    if (!strcmp(mode, "size_limit")) return size_limit(argument, 0);
    if (!strncmp(mode, "last_", 5)) return last(mode);
    return ends(mode);
}

int main(int argc, char **argv)
{
    self = argv[0];
    return argc < 2 ? 2 : run(argv[1], argc > 2 ? argv[2] : "0");
}
