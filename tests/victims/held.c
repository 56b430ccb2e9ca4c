/* held.c - makes children while another thread holds a lock of libc, of the loader or of the allocator.
 *
 *     held LOCK HOW CHILDREN
 *
 * A thread takes the lock again and again, or, where that is possible, holds it for ever. Each child, by fork, vfork, the
 * bare system call clone, or posix_spawn, opens a file and a stage. A child that has not ended after ten seconds hangs.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <locale.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static volatile bool stop, holds;
static void (*push)(const char *);
static void (*pop)(void);

/* ---- what holds a lock ---- */

static void wait_to_stop(void)
{
    struct timespec pause = {.tv_nsec = 1000000};
    holds = true;
    while (!stop) nanosleep(&pause, NULL);
}

static int hold_here(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)info;
    (void)size;
    (void)data;
    wait_to_stop();
    return 1;
}

static void nothing(void) {}

static void hold_the_list(void)
{
    dl_iterate_phdr(hold_here, NULL);
}

static void load(void)
{
    void *library = dlopen("libz.so.1", RTLD_NOW);
    if (library) dlclose(library);
}

static void use_atexit(void)
{
    static int times;
    if (times++ < 20000) atexit(nothing);
}

static void use_atfork(void)
{
    static int times;
    if (times++ < 2000) pthread_atfork(NULL, NULL, NULL);
}

static void hold_stdio(void)
{
    flockfile(stdout);
    wait_to_stop();
    funlockfile(stdout);
}

static void allocate(void)
{
    void *block[64];
    for (int i = 0; i < 64; i++) block[i] = malloc(2000 + (size_t)i * 100);
    for (int i = 0; i < 64; i++) free(block[i]);
}

static void resolve(void)
{
    struct addrinfo *found = NULL, hints = {.ai_flags = AI_NUMERICHOST};
    if (getaddrinfo("127.0.0.1", "80", &hints, &found) == 0) freeaddrinfo(found);
}

static void use_time(void)
{
    time_t now = time(NULL);
    struct tm tm;
    tzset();
    localtime_r(&now, &tm);
}

static void use_locale(void)
{
    setlocale(LC_ALL, "C.UTF-8");
    setlocale(LC_ALL, "C");
}

static void *end_at_once(void *data)
{
    return data;
}

static void make_threads(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, end_at_once, NULL) == 0) pthread_join(thread, NULL);
}

static void use_environment(void)
{
    setenv("HELD", "x", 1);
    unsetenv("HELD");
}

static const struct {
    const char *name;
    void (*use)(void);
    bool for_ever; /* it only returns at the end */
} locks[] = {
    {"objects", hold_the_list, true},
    {"dlopen", load, false},
    {"atexit", use_atexit, false},
    {"atfork", use_atfork, false},
    {"stdio", hold_stdio, true},
    {"malloc", allocate, false},
    {"resolver", resolve, false},
    {"time", use_time, false},
    {"locale", use_locale, false},
    {"threads", make_threads, false},
    {"environment", use_environment, false},
};

static void *hold(void *use)
{
    while (!stop) {
        ((void (*)(void))use)();
        holds = true;
    }
    return NULL;
}

/* ---- the children ---- */

static void live(void)
{
    int fd = open("/dev/null", O_WRONLY);
    ssize_t written = write(fd, "x", 1);
    if (push) push("child");
    if (push) pop();
    close(fd);
    _exit(written == 1 ? 5 : 6);
}

static pid_t make_child(const char *how)
{
    pid_t child = -1;
    char *arguments[] = {"true", NULL};
    if (strcmp(how, "fork") == 0 && !(child = fork())) live();
    if (strcmp(how, "clone") == 0 && !(child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0))) live();
    if (strcmp(how, "vfork") == 0 && !(child = vfork())) _exit(close(open("/dev/null", O_WRONLY)) == 0 ? 5 : 6);
    if (strcmp(how, "spawn") == 0 && posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) != 0) child = -1;
    return child;
}

static bool ends_well(pid_t child)
{
    struct timespec pause = {.tv_nsec = 200000};
    int status;
    for (int i = 0; i < 300000; i++) {
        if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) && WEXITSTATUS(status) % 5 == 0;
        nanosleep(&pause, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return false;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    size_t lock = sizeof locks / sizeof locks[0];
    if (argc != 4) return 2;
    while (lock-- && strcmp(locks[lock].name, argv[1]) != 0) continue;
    if (lock == (size_t)-1) return 2;
    push = (void (*)(const char *))dlsym(RTLD_DEFAULT, "tfi_range_push");
    pop = (void (*)(void))dlsym(RTLD_DEFAULT, "tfi_range_pop");
    pthread_create(&thread, NULL, hold, (void *)locks[lock].use);
    while (!holds) usleep(1000);
    int hung = 0, count = atoi(argv[3]);
    for (int i = 0; i < count && hung < 3; i++) hung += !ends_well(make_child(argv[2]));
    stop = true;
    pthread_join(thread, NULL);
    printf("%d hung\n", hung);
    return hung ? 1 : 7;
}
