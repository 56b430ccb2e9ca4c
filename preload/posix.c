/* posix.c - the bodies of posix.def: closes the trace before the process ends without destructors or is replaced.
 *
 * Python's subprocess and posix_spawn run these in a vfork child, in the parent's memory: tfi_finish() compares the
 * kernel's pid with the one that opened the trace, and does nothing there. Nothing here allocates.
 * An exec that fails returns, and the process goes on: its next event opens a new trace (execvp tries several).
 */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hooks.h"
#include "rank.h"
#include "sys.h"
#include "tfi.h"

/* More entries than this in an environment, and it is handed on as it is. */
#define MAX_ENVIRONMENT 4096

static _Noreturn void leave(int status)
{
    tfi_finish("_exit");
    for (;;) syscall(SYS_exit_group, status);
}

TFI_EXPORT _Noreturn void _exit(int status)
{
    leave(status);
}

TFI_EXPORT _Noreturn void _Exit(int status)
{
    leave(status);
}

/* A process that sends itself a signal which nobody catches: Python does so, after its own clean-up, when a pipeline was
 * interrupted. SIGKILL and what dumps core are left alone: what they end is to stay as it is found. */
static bool ends_itself(pid_t pid, int number)
{
    struct sigaction action;
    if (number != SIGINT && number != SIGTERM && number != SIGHUP) return false;
    return pid == tfi_getpid() && sigaction(number, NULL, &action) == 0 && !(action.sa_flags & SA_SIGINFO) &&
           action.sa_handler == SIG_DFL;
}

TFI_EXPORT int kill(pid_t pid, int number)
{
    bool ends = ends_itself(pid, number);
    if (ends) tfi_finish("signal");
    int result = (int)syscall(SYS_kill, pid, number);
    if (ends) tfi_resume(); /* it was blocked */
    return result;
}

/* Shells hand on an environment of their own making, without what our constructor put into ours. Where they pass the
 * preload on, the run directory has to go with it, or each child would decide for itself. Counts the entries; 0 if
 * nothing is to be added. */
static size_t lacks_run_dir(char *const envp[])
{
    size_t count = 0;
    bool preload = false;
    for (; envp && envp[count]; count++) {
        if (strncmp(envp[count], "TFI_RUN_DIR=", 12) == 0 || count == MAX_ENVIRONMENT) return 0;
        if (strncmp(envp[count], "LD_PRELOAD=", 11) == 0 && strstr(envp[count], "libtfinject")) preload = true;
    }
    return preload && tfi_run_dir_entry() ? count : 0;
}

/* The environment to pass on: `envp`, or a copy with our entry in `room`, which has space for count + 2. */
static char *const *with_run_dir(char **room, char *const envp[], size_t count)
{
    if (!count) return envp;
    memcpy(room, envp, count * sizeof *room);
    room[count] = (char *)tfi_run_dir_entry();
    room[count + 1] = NULL;
    return room;
}

/* What comes after an exec that returned: it has failed. */
static int failed(int result)
{
    tfi_resume();
    return result;
}

TFI_EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
    size_t count = lacks_run_dir(envp);
    char *room[count + 2];
    char *const *env = with_run_dir(room, envp, count);
    tfi_finish("exec");
    return failed((int)syscall(SYS_execve, path, argv, env));
}

TFI_EXPORT int execv(const char *path, char *const argv[])
{
    return execve(path, argv, environ);
}

TFI_EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
    size_t count = lacks_run_dir(envp);
    char *room[count + 2];
    char *const *env = with_run_dir(room, envp, count);
    int (*real)(const char *, char *const[], char *const[]) = tfi_real(TFI_HOOK_execvpe);
    if (!real) return execve(file, argv, envp);
    tfi_finish("exec");
    return failed(real(file, argv, env));
}

TFI_EXPORT int execvp(const char *file, char *const argv[])
{
    return execvpe(file, argv, environ);
}

TFI_EXPORT int execveat(int dir, const char *path, char *const argv[], char *const envp[], int flags)
{
    size_t count = lacks_run_dir(envp);
    char *room[count + 2];
    char *const *env = with_run_dir(room, envp, count);
    tfi_finish("exec");
    return failed((int)syscall(SYS_execveat, dir, path, argv, env, flags));
}

TFI_EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
    return execveat(fd, "", argv, envp, AT_EMPTY_PATH);
}

/* The l-functions hand their arguments on as an array in their own frame. */
static size_t count_args(va_list list)
{
    size_t count = 1;
    while (va_arg(list, char *)) count++;
    return count;
}

static void collect(char **argv, const char *first, size_t count, va_list list)
{
    argv[0] = (char *)first;
    for (size_t i = 1; i <= count; i++) argv[i] = va_arg(list, char *);
}

TFI_EXPORT int execl(const char *path, const char *arg, ...)
{
    va_list list;
    va_start(list, arg);
    size_t count = count_args(list);
    va_end(list);
    char *argv[count + 1];
    va_start(list, arg);
    collect(argv, arg, count, list);
    va_end(list);
    return execv(path, argv);
}

TFI_EXPORT int execlp(const char *file, const char *arg, ...)
{
    va_list list;
    va_start(list, arg);
    size_t count = count_args(list);
    va_end(list);
    char *argv[count + 1];
    va_start(list, arg);
    collect(argv, arg, count, list);
    va_end(list);
    return execvp(file, argv);
}

TFI_EXPORT int execle(const char *path, const char *arg, ...)
{
    va_list list;
    va_start(list, arg);
    size_t count = count_args(list);
    va_end(list);
    char *argv[count + 1];
    va_start(list, arg);
    collect(argv, arg, count, list);
    char **envp = va_arg(list, char **);
    va_end(list);
    return execve(path, argv, envp);
}
