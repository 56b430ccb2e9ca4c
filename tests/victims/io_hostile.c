/* io_hostile.c - uses files in odd ways, one way for each name on the command line, and says what each call returned.
 *
 * The output does not depend on descriptor numbers, times or addresses: it is the same with and without the library.
 */
#include <aio.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "victims/io_hostile.h"

extern char **environ;

/* ---- processes ---- */

static void *keeps_writing(void *stop)
{
    int fd = make("thread", "");
    while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) pwrite(fd, "abcd", 4, 0);
    close(fd);
    return NULL;
}

static void forks(void)
{
    int stop = 0, status, bad = 0;
    pthread_t thread;
    char name[32];
    pthread_create(&thread, NULL, keeps_writing, &stop);
    for (int i = 0; i < 30; i++) {
        snprintf(name, sizeof name, "fork%d", i % 10);
        pid_t child = i % 3 ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0) {
            int fd = make(name, "child");
            FILE *file = fdopen(fd, "r+");
            fputs("of a fork", file);
            fclose(file);
            if (i % 5 == 0) execl("/bin/true", "true", (char *)NULL);
            _exit(7);
        }
        waitpid(child, &status, 0);
        bad += !WIFEXITED(status) || WEXITSTATUS(status) != (i % 5 ? 7 : 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    printf("bad children %d\n", bad);
    content("fork1");
}

static void children(void)
{
    int status = 0, fd = make("inherited", "0123456789");
    pid_t child = vfork();
    if (child == 0) {
        close(fd);
        dup2(1, 50);
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    waitpid(child, &status, 0);
    said("after vfork", pread(fd, block, 4, 2));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 5, "spawned", O_WRONLY | O_CREAT, 0600);
    posix_spawn_file_actions_addclose(&actions, fd);
    char *const command[] = {"sh", "-c", "echo text >&5", NULL};
    said("spawn", posix_spawn(&child, "/bin/sh", &actions, NULL, command, environ));
    waitpid(child, &status, 0);
    said("status", status);
    content("spawned");
    FILE *pipe = popen("cat inherited", "r");
    said("popen", (long)fread(block, 1, 100, pipe));
    pclose(pipe);
    said("system", system("wc -c <inherited >counted"));
    content("counted");
    close(fd);
}

/* ---- descriptors ---- */

static void closed(void)
{
    int fd = make("before", "before");
    (void)fd;
    said("close_range", close_range(3, ~0u, 0));
    for (int i = 3; i < 300; i++) close(i);
    fd = make("after", "after");
    said("after", fd);
    said("read", pread(fd, block, 9, 0));
    syscall(SYS_close_range, 3, ~0u, 0);
    for (int i = 0; i < 300; i++) {
        fd = make("again", "again");
        syscall(SYS_close, fd); /* behind libc's back */
    }
    content("after");
    content("again");
}

static void numerous(void)
{
    enum { MOST = 3000 };
    static int fd[MOST];
    struct rlimit limit;
    char text[16], name[32];
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < MOST + 200 ? limit.rlim_max : MOST + 200;
    setrlimit(RLIMIT_NOFILE, &limit);
    long sum = 0;
    for (int i = 0; i < MOST; i++) {
        snprintf(name, sizeof name, "many%d", i % 50);
        fd[i] = open(name, O_RDWR | O_CREAT, 0600);
        snprintf(text, sizeof text, "%d", i % 50);
        pwrite(fd[i], text, strlen(text), 0);
    }
    for (int i = 0; i < MOST; i++) sum += pread(fd[i], text, 2, 0) * i;
    for (int i = MOST; i-- > 0;) close(fd[i]);
    printf("sum %ld\n", sum);
}

static void special(void)
{
    struct stat s;
    mkdir("directory", 0700);
    close(make("directory/file", "inside"));
    int dir = open("directory", O_PATH), fd = openat(dir, "file", O_RDONLY);
    said("read of O_PATH", read(dir, block, 1));
    said("fstat of O_PATH", fstat(dir, &s));
    said("read", read(fd, block, 100));
    said("openat of a file", openat(fd, "x", O_RDONLY));
    said("fstatat", fstatat(fd, "", &s, AT_EMPTY_PATH));
    said("tmpfile", open(".", O_TMPFILE | O_RDWR, 0600) >= 0);
}

/* Files without a name. */
static void nameless(void)
{
    int memory = memfd_create("name", 0);
    said("memfd", write(memory, "memory", 6));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    int again = open(path, O_RDONLY);
    said("reopened", read(again, block, 100));
    int fd = make("gone", "text of a deleted file");
    unlink("gone");
    said("deleted", pread(fd, block, 100, 0));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    again = open(path, O_RDONLY);
    said("through proc", read(again, block, 100));
    said("truncate", ftruncate(fd, 1 << 20));
    void *map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    ((char *)map)[5] = 1;
    said("msync", msync(map, 1 << 20, MS_SYNC));
    said("munmap of a part", munmap((char *)map + 4096, 4096));
    said("munmap", munmap(map, 1 << 20));
}

static void devices(void)
{
    int pair[2];
    said("pipe", pipe2(pair, O_CLOEXEC));
    said("write", write(pair[1], "abc", 3));
    said("splice", splice(pair[0], NULL, open("spliced", O_RDWR | O_CREAT, 0600), NULL, 3, 0));
    content("spliced");
    int full = open("/dev/full", O_WRONLY);
    said("full", write(full, "x", 1));
    FILE *stream = fopen("/dev/full", "w");
    said("buffered", fputs("text", stream));
    said("flush", fflush(stream));
    said("fclose", fclose(stream));
    said("odd fd", read(1 << 30, block, 1));
    said("close", close(-1));
    said("dup2", dup2(9999, 3));
    said("fcntl", fcntl(1, F_DUPFD, 1 << 30));
}

/* Tries to execute a program; nothing but the kernel looks at a bad pointer. */
static void executes(char *bad)
{
    char *none[] = {NULL};
    said("execve", execve(bad, none, none));
    said("execve", execve("missing", (char **)(void *)bad, (char **)(void *)bad));
    said("execv", execv(bad, none));
    said("execveat", execveat(AT_FDCWD, bad, none, none, 0));
    said("posix_spawn", posix_spawn(NULL, bad, NULL, NULL, none, none));
}

/* The kernel or libc alone looks at these pointers. */
static void pointers(void)
{
    char *bad = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(bad + 4096, 4096, PROT_NONE);
    memset(bad, 'a', 4096);
    int fd = make("pointers", "0123456789");
    struct iovec vector[2] = {{bad + 4096, 4}, {block, 4}};
    said("open", open(null, O_RDONLY));
    said("open", open(nowhere, O_RDONLY));
    said("open without an end", open(bad, O_RDONLY | O_CREAT));
    said("open", open(bad + 4096, O_RDONLY));
    said("read", read(fd, nowhere, 4));
    said("pread", pread(fd, bad + 4096, 4, 0));
    said("write", write(fd, nowhere, 4));
    said("writev", writev(fd, (struct iovec *)nowhere, 2));
    said("writev", writev(fd, vector, 2));
    said("readv", readv(fd, vector, negative));
    said("readv", readv(fd, vector, enormous));
    said("preadv", preadv(fd, vector + 1, 1, -1));
    said("copy", copy_file_range(fd, nowhere, fd, NULL, 4, 0));
    said("pipe", pipe((int *)nowhere));
    said("closedir", closedir(null));
    said("aio_fsync", aio_fsync(99, null));
    said("aio_cancel", aio_cancel(9999, null));
    executes(nowhere);
    executes(null);
}

/* So are names; some are bad only behind another error. */
static void names(void)
{
    close(make("pointers", "0123456789"));
    said("stat", stat(nowhere, nowhere));
    said("stat", stat("pointers", nowhere));
    said("rename", rename("pointers", nowhere));
    memset(block, 'q', 5000);
    block[5000] = 0;
    said("rename", rename(block, nowhere));
    said("rename", rename("", nowhere));
    said("link", linkat(AT_FDCWD, "missing", AT_FDCWD, nowhere, 1 << 20));
    said("open", open(nowhere, O_TMPFILE | O_RDONLY));
    said("faccessat", syscall(SYS_faccessat2, AT_FDCWD, nowhere, 999, 0));
    said("access", access(nowhere, 999));
    said("statx", statx(AT_FDCWD, nowhere, 1 << 25, 0, nowhere));
    said("unlinkat", unlinkat(AT_FDCWD, nowhere, 12345));
    said("fopen", fopen(nowhere, "r") != NULL); // cppcheck-suppress leakReturnValNotUsed ; fails
    said("fopen", fopen(nowhere, "?") != NULL); // cppcheck-suppress leakReturnValNotUsed ; fails
    said("readlink", readlink("pointers", nowhere, 10));
    said("unlink", unlink(nowhere));
    memset(block, 'p', 5000);
    block[5000] = 0;
    said("long", open(block, O_RDONLY));
    said("empty", open("", O_RDONLY));
    said("bytes", close(make("line\nbreak \xff\xfe \x1b[31m", "x")));
}

/* ---- threads ---- */

static void *own_table(void *unused)
{
    (void)unused;
    unshare(CLONE_FILES);
    for (int i = 3; i < 40; i++) close(i);
    int fd = make("own", "own table");
    dup2(fd, 10);
    return (void *)(long)pread(10, block + 4096, 100, 0);
}

static void tables(void)
{
    void *got;
    pthread_t thread;
    int fd = make("shared", "shared");
    dup2(fd, 10);
    pthread_create(&thread, NULL, own_table, NULL);
    pthread_join(thread, &got);
    said("thread", (long)got);
    said("here", pread(10, block, 100, 0));
}

static void *races(void *number)
{
    unsigned seed = (unsigned)(long)number;
    char name[32];
    for (int i = 0; i < 600; i++) {
        snprintf(name, sizeof name, "race%d", rand_r(&seed) % 5);
        int fd = open(name, O_RDWR | O_CREAT, 0600);
        pwrite(fd, "abc", 3, 0);
        if (rand_r(&seed) % 4) close(fd);
        else if (fd > 40) close(fd - 1); /* of another thread, perhaps */
        DIR *dir = i % 100 ? NULL : opendir(".");
        while (dir && readdir(dir)) continue;
        if (dir) closedir(dir);
    }
    return NULL;
}

static void *writes_once(void *fd)
{
    return (void *)(long)pwrite((int)(long)fd, "t", 1, 0);
}

static void once(void)
{
    pthread_t thread;
    pthread_attr_t small;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    int fd = make("once", "");
    long sum = 0;
    void *got;
    for (int i = 0; i < 500; i++) {
        if (pthread_create(&thread, &small, writes_once, (void *)(long)fd)) break;
        pthread_join(thread, &got);
        sum += (long)got;
    }
    said("written", sum);
}

static void strangers(void)
{
    pthread_t thread[4];
    for (long i = 0; i < 4; i++) pthread_create(&thread[i], NULL, races, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    content("race1");
}

/* ---- signals ---- */

static int handler_fd;
static volatile int handled;
static sigjmp_buf back;

static void reads(int number)
{
    int error = errno;
    char bytes[8];
    (void)number;
    handled++;
    pread(handler_fd, bytes, sizeof bytes, 0);
    int fd = open("in_handler", O_RDWR | O_CREAT, 0600);
    write(fd, "h", 1);
    close(fd);
    errno = error;
}

static void jumps(int number)
{
    (void)number;
    handled++;
    siglongjmp(back, 1);
}

static void every(int microseconds, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void signals(void)
{
    int pair[2], fd = make("signal", "0123456789abcdef");
    handler_fd = fd;
    if (pipe(pair)) return;
    every(2000, reads);
    said("interrupted", read(pair[0], block, 1));
    long sum = 0;
    while (handled < 50) sum |= pread(fd, block, 16, 0) ^ 16;
    every(0, SIG_IGN);
    said("all read", sum);
    content("in_handler");
    handled = 0;
    sigsetjmp(back, 1);
    if (!handled) every(1500, jumps);
    while (handled < 80) {
        pread(fd, block, 16, 0);
        struct stat s;
        stat("signal", &s);
    }
    every(0, SIG_IGN);
    said("after jumps", pread(fd, block, 100, 0));
}

static void *blocks(void *fd)
{
    return (void *)(long)read((int)(long)fd, block, 1);
}

static void cancelled(void)
{
    int pair[2], bad = 0;
    pthread_t thread;
    if (pipe(pair)) return;
    for (int i = 0; i < 100; i++) {
        void *got;
        pthread_create(&thread, NULL, blocks, (void *)(long)pair[0]);
        if (i % 2) usleep(200);
        pthread_cancel(thread);
        pthread_join(thread, &got);
        bad += got != PTHREAD_CANCELED;
    }
    said("not cancelled", bad);
    int fd = make("later", "later");
    said("later", pread(fd, block, 100, 0));
}

/* ---- streams ---- */

static ssize_t cookie_read(void *cookie, char *buffer, size_t size)
{
    int fd = open("cookie", O_RDONLY);
    ssize_t got = pread(fd, buffer, size < 7 ? size : 7, *(off_t *)cookie);
    *(off_t *)cookie += got;
    close(fd);
    return got;
}

static ssize_t cookie_write(void *cookie, const char *buffer, size_t size)
{
    (void)cookie;
    FILE *file = fopen("cookie", "a");
    fwrite(buffer, 1, size, file);
    fclose(file);
    return (ssize_t)size;
}

static void streams(void)
{
    off_t at = 0;
    char *memory = NULL, *line = NULL;
    size_t length = 0;
    FILE *file = fopencookie(&at, "w", (cookie_io_functions_t){.write = cookie_write});
    said("printf", fprintf(file, "%s %d\n", "formatted", 42));
    said("fclose", fclose(file));
    content("cookie");
    file = fopencookie(&at, "r", (cookie_io_functions_t){.read = cookie_read});
    said("getline", getline(&line, &length, file));
    said("seek", fseek(file, 0, SEEK_SET));
    fclose(file);
    file = open_memstream(&memory, &length);
    said("memstream", fputs("in memory", file));
    fclose(file);
    file = fmemopen(memory, 9, "r");
    said("fmemopen", (long)fread(block, 2, 20, file));
    said("ftell", ftell(file));
    fclose(file);
    file = fopen("cookie", "r");
    said("freopen", freopen("reopened", "w", file) == file); // cppcheck-suppress leakReturnValNotUsed ; same stream
    fputs("again", file);
    said("freopen", freopen("/nonexistent/x", "w", file) == NULL); // cppcheck-suppress leakReturnValNotUsed ; fails
    content("reopened");
    file = fdopen(make("fd", "text of fd"), "r+"); // cppcheck-suppress resourceLeak ; closed above
    rewind(file);
    said("fgets", fgets(block, 5, file) != NULL);
    close(fileno(file));
    said("after close", fread(block, 1, 9000, file) != 0);
    said("seek", fseek(file, 5, SEEK_SET));
    said("fclose", fclose(file));
    file = tmpfile();
    said("tmpfile", fprintf(file, "%5000d", 1));
    rewind(file);
    said("scanf", fscanf(file, "%4d", &(int){0}));
    // cppcheck-suppress IOWithoutPositioning ; no bytes move
    said("fread of 0", (long)fread(block, 0, 5, file) + (long)fwrite(block, 5, 0, file));
    fclose(file);
    fclose(stdin);
    close(0);
    said("descriptor 0", make("zero", "0"));
    said("stdout", freopen("out", "w", stdout) == stdout);
    puts("to a file");
    fflush(stdout);
}

/* ---- the surroundings ---- */

static void deep(void)
{
    char name[201];
    memset(name, 'd', 200);
    name[200] = 0;
    for (int i = 0; i < 40; i++) {
        mkdir(name, 0700);
        if (chdir(name)) break;
    }
    int fd = make("deep", "deep");
    said("deep", pread(fd, block, 10, 0));
    said("no path", getcwd(block, 4096) == NULL);
    close(fd);
    unlink("deep");
    for (int i = 0; i < 40; i++) {
        if (chdir("..")) break;
        rmdir(name);
    }
    mkdir("leaving", 0700);
    said("chdir", chdir("leaving"));
    said("rmdir", rmdir("../leaving"));
    said("open", open("file", O_CREAT | O_RDWR, 0600));
    said("stat", access(".", F_OK));
}

static void limits(void)
{
    struct rlimit small = {100000, 100000}, none = {3, 3};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    int fd = make("large", "");
    long sum = 0;
    for (int i = 0; i < 200; i++) sum += write(fd, block, 1000) == 1000;
    said("blocks", sum);
    close(fd);
    setrlimit(RLIMIT_NOFILE, &none);
    said("open", open("large", O_RDONLY));
    said("fopen", fopen("large", "r") != NULL); // cppcheck-suppress leakReturnValNotUsed ; fails
    said("dup", dup(1));
}

static void jailed(void)
{
    mkdir("jail", 0700);
    close(make("jail/file", "in jail"));
    int outside = open(".", O_RDONLY | O_DIRECTORY);
    if (chroot("jail") || chdir("/")) {
        puts("no chroot");
        return;
    }
    content("/file");
    said("proc", open("/proc/self/maps", O_RDONLY));
    said("outside", openat(outside, "jail/file", O_RDONLY) >= 0);
    said("fchdir", fchdir(outside));
    content("jail/file");
}

static void unprivileged(void)
{
    close(make("mine", "text"));
    chmod("mine", 0644);
    said("setgid", setresgid(65534, 65534, 65534));
    said("setuid", setresuid(65534, 65534, 65534));
    said("dumpable", prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
    said("proc", open("/proc/self/environ", O_RDONLY));
    for (int i = 0; i < 30000; i++) access("mine", R_OK);
    said("create", open("not_mine", O_CREAT | O_RDWR, 0600));
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"forks", forks},
    {"children", children},
    {"closed", closed},
    {"numerous", numerous},
    {"special", special},
    {"nameless", nameless},
    {"devices", devices},
    {"names", names},
    {"pointers", pointers},
    {"tables", tables},
    {"once", once},
    {"strangers", strangers},
    {"signals", signals},
    {"cancelled", cancelled},
    {"streams", streams},
    {"deep", deep},
    {"limits", limits},
    {"jailed", jailed},
    {"unprivileged", unprivileged},
};

int main(int argc, char **argv)
{
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) cases[i].run();
    fflush(stdout);
    return 0;
}
