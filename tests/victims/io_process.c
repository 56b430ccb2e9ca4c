/* io_process.c - forks, spawns and executes: `io_process DIRECTORY`. Prints the pids. */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    char path[600], buf[8];
    char *const true_argv[] = {"true", NULL};
    pid_t child;
    int status;
    if (argc != 2) return 2;
    snprintf(path, sizeof path, "%s/inherited", argv[1]);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    if (write(fd, "abcd", 4) != 4) return 1;
    printf("parent %d\n", (int)getpid());
    fflush(stdout);
    pid_t forked = fork();
    if (forked == 0) {
        if (pread(fd, buf, 4, 0) != 4) _exit(9);
        execv("/bin/true", true_argv);
        _exit(8);
    }
    if (waitpid(forked, &status, 0) != forked || status) return 3;
    if (posix_spawn(&child, "/bin/true", NULL, NULL, true_argv, environ) != 0) return 4;
    if (waitpid(child, &status, 0) != child || status) return 5;
    printf("forked %d\nspawned %d\n", (int)forked, (int)child);
    return 0;
}
