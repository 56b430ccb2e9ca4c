/* stderr.c - a program whose stderr is in a bad state while the library has a message.
 *
 * stderr KIND DIRECTORY: puts descriptor 2 into that state, opens stages, removes DIRECTORY, ends. The program itself
 * never writes to stderr, so any effect on it comes from the library. An alarm ends a program that hangs. Prints the
 * state of its signals before and after: the mask, and those that are pending.
 */
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "tfinject.h"

static void fill(int fd)
{
    static const char bytes[4096];
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    for (size_t piece = sizeof bytes; piece; piece /= 2)
        while (write(fd, bytes, piece) > 0) continue;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

static void become(int fd)
{
    if (fd != 2) dup2(fd, 2);
    if (fd != 2) close(fd);
}

static void use_pipe(const char *kind)
{
    char some[64];
    int ends[2];
    if (pipe(ends)) exit(3);
    if (strstr(kind, "full")) fill(ends[1]);
    if (strstr(kind, "nearly") && read(ends[0], some, sizeof some) < 0) exit(3);
    if (strstr(kind, "dead")) close(ends[0]);
    become(ends[1]);
}

static void use_socket(const char *kind)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) exit(3);
    if (strstr(kind, "full")) fill(ends[1]);
    if (strstr(kind, "dead")) close(ends[0]);
    become(ends[1]);
}

/* A terminal with room for less than a line, or stopped as by ctrl-S. */
static void use_terminal(const char *kind)
{
    char some[64];
    int master, slave;
    if (openpty(&master, &slave, NULL, NULL, NULL)) exit(3);
    if (strstr(kind, "full")) fill(slave);
    if (strstr(kind, "nearly") && read(master, some, sizeof some) < 0) exit(3);
    if (strstr(kind, "stopped")) tcflow(slave, TCOOFF);
    if (strstr(kind, "dead")) close(master);
    become(strstr(kind, "master") ? master : slave);
}

static void limit_size(void)
{
    struct stat st;
    struct rlimit limit;
    if (fstat(2, &st) || getrlimit(RLIMIT_FSIZE, &limit)) exit(3);
    limit.rlim_cur = (rlim_t)st.st_size;
    if (setrlimit(RLIMIT_FSIZE, &limit)) exit(3);
}

static void spoil(const char *kind)
{
    if (!strncmp(kind, "pipe", 4)) use_pipe(kind);
    else if (!strncmp(kind, "socket", 6)) use_socket(kind);
    else if (!strncmp(kind, "terminal", 8)) use_terminal(kind);
    else if (!strcmp(kind, "limit")) limit_size();
    else if (!strcmp(kind, "closed")) close(2);
    else if (!strcmp(kind, "own")) become((close(2), open("own", O_WRONLY | O_CREAT | O_EXCL, 0600)));
    else if (!strcmp(kind, "readonly")) become(open("/dev/null", O_RDONLY));
    else if (strcmp(kind, "plain")) exit(3);
}

static void show_signals(void)
{
    sigset_t mask, pending;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    sigpending(&pending);
    for (int i = 1; i < 65; i++)
        if (sigismember(&mask, i) == 1 || sigismember(&pending, i) == 1)
            printf("signal %d: blocked %d, pending %d\n", i, sigismember(&mask, i), sigismember(&pending, i));
}

int main(int argc, char **argv)
{
    char command[4200];
    sigset_t set;
    if (argc < 3) return 2;
    alarm(100);
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    if (argc > 3) pthread_sigmask(SIG_BLOCK, &set, NULL); /* a signal of the program's own is pending */
    if (argc > 3) raise(SIGPIPE);
    spoil(argv[1]);
    for (int i = 0; i < 20; i++) {
        tfi_range_push("stage");
        tfi_range_pop();
    }
    show_signals();
    snprintf(command, sizeof command, "rm -rf '%s'", argv[2]);
    if (system(command)) return 4;
    puts("done");
    return 5;
}
