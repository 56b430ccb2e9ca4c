/* io_weather.c - calls on files under bad circumstances: `io_weather CASE DIRECTORY`. Prints results and errnos. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[500], buf[64];

/* A file with ten bytes, made and opened without libc's wrappers if `raw`. */
static int file(const char *name, int raw)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd =
        raw ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT, 0644) : open(path, O_RDWR | O_CREAT, 0644);
    syscall(SYS_pwrite64, fd, "0123456789", 10, 0L);
    return fd;
}

static void say(const char *what, long result)
{
    printf("%s %ld %d\n", what, result, result == -1 ? errno : 0);
}

static sigjmp_buf back;
static int log_fd;

static void ignore(int number)
{
    (void)number;
}

static void jump(int number)
{
    (void)number;
    siglongjmp(back, 1);
}

static void note(int number)
{
    (void)number;
    if (write(log_fd, "!", 1) != 1) _exit(3);
}

/* A thread that waits until another one blocks in a read of `fd`, and then sends it a signal. Its own calls pass by libc. */
struct poke {
    void (*handler)(int); /* NULL: it only waits */
    int fd;
    long tid;
    pthread_t thread;
};

/* Tells whether the thread is in a read of the descriptor: the kernel shows the call that a sleeping thread is in. */
static int is_reading(const struct poke *poke)
{
    char path[64], text[128] = {0}, expected[32];
    snprintf(path, sizeof path, "/proc/self/task/%ld/syscall", poke->tid);
    snprintf(expected, sizeof expected, "%d %#x ", SYS_read, (unsigned)poke->fd);
    long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
    syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    return strncmp(text, expected, strlen(expected)) == 0;
}

static void *wait_and_poke(void *data)
{
    const struct poke *poke = data;
    struct timespec pause = {0, 1000000};
    while (!is_reading(poke)) syscall(SYS_nanosleep, &pause, NULL);
    if (poke->handler) syscall(SYS_tgkill, getpid(), poke->tid, SIGALRM);
    return NULL;
}

static void poke_when_reading(struct poke *poke)
{
    struct sigaction action = {.sa_handler = poke->handler};
    if (poke->handler) sigaction(SIGALRM, &action, NULL);
    pthread_create(&poke->thread, NULL, wait_and_poke, poke);
}

static void interrupted(void)
{
    int ends[2];
    syscall(SYS_pipe2, ends, 0);
    struct poke poke = {ignore, ends[0], syscall(SYS_gettid), 0};
    poke_when_reading(&poke);
    say("read", read(ends[0], buf, 1));
    pthread_join(poke.thread, NULL);
}

/* A handler writes while the thread is inside a read; the read is then interrupted. */
static void handled(void)
{
    int ends[2];
    log_fd = file("log", 0);
    syscall(SYS_pipe2, ends, 0);
    struct poke poke = {note, ends[0], syscall(SYS_gettid), 0};
    poke_when_reading(&poke);
    say("read", read(ends[0], buf, 1));
    pthread_join(poke.thread, NULL);
}

static void jumped(void)
{
    int ends[2], fd = file("data", 0);
    syscall(SYS_pipe2, ends, 0);
    struct poke poke = {jump, ends[0], syscall(SYS_gettid), 0};
    for (volatile int i = 0; i < 3; i++) {
        if (!sigsetjmp(back, 1)) {
            poke_when_reading(&poke);
            say("never", read(ends[0], buf, 1));
        }
        pthread_join(poke.thread, NULL);
        say("pread", pread(fd, buf, 4, i));
    }
}

static volatile long blocked_tid;

static void *blocked(void *data)
{
    blocked_tid = syscall(SYS_gettid);
    read(*(int *)data, buf, 1);
    return NULL;
}

static void cancelled(void)
{
    int ends[2];
    pthread_t thread;
    void *result;
    syscall(SYS_pipe2, ends, 0);
    pthread_create(&thread, NULL, blocked, &ends[0]);
    while (!blocked_tid) sched_yield();
    struct poke waiting = {NULL, ends[0], blocked_tid, 0};
    wait_and_poke(&waiting);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    say("cancelled", result == PTHREAD_CANCELED);
    say("write", write(file("after", 0), "x", 1));
}

/* Numbers that change their file by system calls that no wrapper sees. */
static void behind(void)
{
    int fd = file("one", 0);
    say("read", read(fd, buf, 1));
    syscall(SYS_close, fd);
    say("same", file("two", 0) == fd);
    say("read", read(fd, buf, 2));
    syscall(SYS_close, fd);
    say("read", read(fd, buf, 3));
    say("same", file("three", 1) == fd);
    say("read", read(fd, buf, 4));
}

static void vforked(void)
{
    int fd = file("kept", 0), status;
    pid_t child = vfork();
    if (child == 0) {
        close(fd);
        dup2(1, fd);
        if (write(fd, "child\n", 6) != 6) _exit(1);
        _exit(7);
    }
    waitpid(child, &status, 0);
    say("child", WEXITSTATUS(status));
    say("pread", pread(fd, buf, 4, 0));
}

/* In a root directory without /proc a descriptor that no wrapper saw has no name. */
static void rooted(void)
{
    int unseen = file("unseen", 1);
    say("chroot", chroot(dir));
    say("open", open("/seen", O_RDWR | O_CREAT, 0600) >= 0);
    say("read", read(unseen, buf, 3));
}

static void full(void)
{
    int fd = open("/dev/full", O_WRONLY);
    FILE *f = fdopen(fd, "w");
    say("write", write(fd, buf, 10));
    say("fputs", fputs("text", f) < 0 ? -1 : 0);
    say("fflush", fflush(f));
    say("fclose", fclose(f));
}

static int shared;

static void *write_once(void *data)
{
    if (write(shared, "x", 1) != 1) abort();
    return data;
}

static void threads(void)
{
    pthread_t all[50];
    pthread_attr_t small;
    shared = file("shared", 0);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int i = 0; i < 200; i++) {
        for (int k = 0; k < 50; k++)
            if (pthread_create(&all[k], &small, write_once, NULL) != 0) abort();
        for (int k = 0; k < 50; k++) pthread_join(all[k], NULL);
    }
    say("size", lseek(shared, 0, SEEK_END));
}

static void invalid(void)
{
    char *volatile nowhere = (char *)8;
    int fd = file("data", 0);
    say("open", open(nowhere, O_RDONLY));
    say("access", access(nowhere, F_OK));
    say("rename", rename("/", nowhere));
    say("read", read(-1, buf, 4));
    say("write", write(9999, buf, 4));
    say("read", read(fd, nowhere, 4));
    say("close", close(-5));
    say("dup2", dup2(77, 78));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"interrupted", interrupted}, {"handled", handled}, {"jumped", jumped}, {"cancelled", cancelled},
                 {"behind", behind},           {"vforked", vforked}, {"rooted", rooted}, {"full", full},
                 {"threads", threads},         {"invalid", invalid}};
    if (argc != 3 || strlen(argv[2]) >= sizeof dir) return 2;
    strcpy(dir, argv[2]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, argv[1]) == 0) cases[i].run();
    return 0;
}
