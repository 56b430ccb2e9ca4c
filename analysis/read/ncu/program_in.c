/* program_in.c - runs another program and reads what it prints. */
#include "read/ncu/program_in.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file_in.h"

/* Reads to the end, also what is more than `most` bytes, so that the program can end. Returns false if it was more. */
static bool read_all(int fd, size_t most, struct text *out)
{
    char bytes[1 << 16];
    ssize_t got;
    bool fits = true;
    while ((got = read(fd, bytes, sizeof bytes)) != 0) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) break;
        fits &= (size_t)got <= most - MIN(most, out->length);
        if (fits) text_add(out, bytes, (size_t)got);
    }
    return fits;
}

static int spawn(char *const argv[], int to, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    int error = posix_spawnp(pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static char *reason(const char *program, int status)
{
    if (WIFSIGNALED(status)) return string_format("%s was ended by signal %d", program, WTERMSIG(status));
    return string_format("%s ended with exit status %d", program, WEXITSTATUS(status));
}

char *program_output(char *const argv[], size_t most, size_t *length, char **why)
{
    struct text out = {0};
    int ends[2], status = 0;
    pid_t pid;
    if (file_is_confined()) {
        *why = string_format("tfanalyze mcp runs no program, and %s would have to print it; give its text as a file",
                             argv[0]);
        return NULL;
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        *why = string_format("%s", strerror(errno));
        return NULL;
    }
    int error = spawn(argv, ends[1], &pid);
    close(ends[1]);
    bool fits = error || read_all(ends[0], most, &out);
    close(ends[0]);
    while (!error && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (error) *why = string_format("%s cannot be started: %s", argv[0], strerror(error));
    else if (status) *why = reason(argv[0], status);
    else if (!fits) *why = string_format("%s printed more than %zu bytes", argv[0], most);
    if (error || status || !fits) text_free(&out);
    else text_puts(&out, "");
    *length = out.length;
    return out.data;
}
