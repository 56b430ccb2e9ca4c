/* run.c - runs a command and writes its cost to a file: `run FILE [NAME=VALUE...] COMMAND...`.
 *
 * A child starts with the peak of the process that forked it. Python's peak may exceed that of the command, but this
 * program's is small. The variables are set in the child alone, because LD_PRELOAD is one of them. FILE gets wall, user
 * and CPU seconds and peak bytes; the exit status is the command's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

int main(int argc, char **argv)
{
    struct rusage usage;
    int status;
    double start = now();
    pid_t child = argc > 2 ? fork() : -1;
    if (child == 0) {
        for (argv += 2; strchr(*argv, '='); argv++) putenv(*argv);
        execvp(*argv, argv);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &usage) != child) {
        fprintf(stderr, "usage: run FILE [NAME=VALUE...] COMMAND...\n");
        return 125;
    }
    double seconds = now() - start, user = seconds_of(usage.ru_utime), cpu = user + seconds_of(usage.ru_stime);
    FILE *file = fopen(argv[1], "w");
    if (!file || fprintf(file, "%.6f %.6f %.6f %ld\n", seconds, user, cpu, usage.ru_maxrss * 1024) < 0 ||
        fclose(file)) {
        perror(argv[1]);
        return 125;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
