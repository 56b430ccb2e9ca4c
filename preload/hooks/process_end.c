/* process_end.c - implements the hooks of posix.def: closes the trace before the process ends without destructors or execs.
 *
 * Python's subprocess and posix_spawn call these in a vfork child, in the parent's memory. There tfi_finish() does
 * nothing: it compares the kernel's pid with the pid that opened the trace. Nothing here allocates.
 * An exec that fails returns, and the process continues: its next event opens a new trace (execvp tries several).
 */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "control/rank.h"
#include "hang/silence.h"
#include "hooks/hooks.h"
#include "io/child_processes.h"

/* An environment with more entries than this is passed on unchanged. */
#define MAX_ENVIRONMENT 4096

#define FIRST_PAGE 4096 /* nothing is mapped below */

/* The next definition need not be libc's: a sanitizer's reports what it has found. */
static _Noreturn void leave(int status, void (*real)(int))
{
    tfi_io_end(status);
    tfi_finish("_exit");
    if (real) real(status);
    for (;;) syscall(SYS_exit_group, status);
}

TFI_EXPORT _Noreturn void _exit(int status)
{
    leave(status, (void (*)(int))tfi_real(TFI_HOOK__exit));
}

TFI_EXPORT _Noreturn void _Exit(int status)
{
    leave(status, (void (*)(int))tfi_real(TFI_HOOK__Exit));
}

/* libstdc++ comes here when no handler catches a C++ exception. libc's own aborts, such as those of assert() and of
 * malloc(), do not. */
TFI_EXPORT _Noreturn void abort(void)
{
    void (*real)(void) = (void (*)(void))tfi_real(TFI_HOOK_abort);
    tfi_silence_aborted();
    if (real) real();
    for (;;) syscall(SYS_tgkill, tfi_getpid(), tfi_gettid(), SIGABRT);
}

/* SIGKILL and signals that dump core are excluded: the state of such a process must stay unchanged. */
static bool may_finish_by(int number)
{
    return number == SIGINT || number == SIGTERM || number == SIGHUP;
}

/* Closes the trace and returns true if a process sends itself an uncaught signal that ends it. Python does so, after its
 * own clean-up, when a pipeline was interrupted. */
static bool finish_by(int number)
{
    struct sigaction action;
    if (!may_finish_by(number)) return false;
    if (sigaction(number, NULL, &action) != 0 || action.sa_flags & SA_SIGINFO || action.sa_handler != SIG_DFL)
        return false;
    tfi_finish("signal");
    return true;
}

TFI_EXPORT int kill(pid_t pid, int number)
{
    int (*real)(pid_t, int) = (int (*)(pid_t, int))tfi_real(TFI_HOOK_kill);
    bool ends = may_finish_by(number) && pid == tfi_getpid() && finish_by(number);
    int result = real ? real(pid, number) : (int)syscall(SYS_kill, pid, number);
    if (ends) tfi_resume(); /* the signal was blocked */
    return result;
}

/* A server that was stopped often ends so, once it has cleaned up: uvicorn does. */
TFI_EXPORT int raise(int number)
{
    int (*real)(int) = (int (*)(int))tfi_real(TFI_HOOK_raise);
    bool ends = finish_by(number);
    int result = real ? real(number) : (int)syscall(SYS_tgkill, tfi_getpid(), tfi_gettid(), number);
    if (ends) tfi_resume(); /* the signal was blocked */
    return result;
}

/* Returns the number of entries of an environment that needs our TFI_RUN_DIR, 0 if nothing is to be added. Shells build
 * the environment of their children themselves, without the variable that our constructor has set. If they pass on the
 * preload, the run directory must go with it, or each child would decide on its own. */
static size_t lacks_run_dir(char *const envp[])
{
    size_t count = 0;
    bool preload = false;
    if ((uintptr_t)envp < FIRST_PAGE) return 0; /* NULL is an empty environment; the kernel refuses the others */
    for (; envp[count]; count++) {
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

/* Runs after an exec that returned, and so has failed. */
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
    int (*real)(const char *, char *const[], char *const[]) = tfi_real(TFI_HOOK_execve);
    tfi_io_exec(path);
    tfi_finish("exec");
    return failed(real ? real(path, argv, env) : (int)syscall(SYS_execve, path, argv, env));
}

TFI_EXPORT int execv(const char *path, char *const argv[])
{
    int (*real)(const char *, char *const[]) = tfi_real(TFI_HOOK_execv);
    if (!real || lacks_run_dir(environ)) return execve(path, argv, environ);
    tfi_io_exec(path);
    tfi_finish("exec");
    return failed(real(path, argv));
}

TFI_EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
    size_t count = lacks_run_dir(envp);
    char *room[count + 2];
    char *const *env = with_run_dir(room, envp, count);
    int (*real)(const char *, char *const[], char *const[]) = tfi_real(TFI_HOOK_execvpe);
    if (!real) return execve(file, argv, envp);
    tfi_io_exec(file);
    tfi_finish("exec");
    return failed(real(file, argv, env));
}

TFI_EXPORT int execvp(const char *file, char *const argv[])
{
    int (*real)(const char *, char *const[]) = tfi_real(TFI_HOOK_execvp);
    if (!real || lacks_run_dir(environ)) return execvpe(file, argv, environ);
    tfi_io_exec(file);
    tfi_finish("exec");
    return failed(real(file, argv));
}

TFI_EXPORT int execveat(int dir, const char *path, char *const argv[], char *const envp[], int flags)
{
    size_t count = lacks_run_dir(envp);
    char *room[count + 2];
    char *const *env = with_run_dir(room, envp, count);
    int (*real)(int, const char *, char *const[], char *const[], int) = tfi_real(TFI_HOOK_execveat);
    tfi_io_exec(path);
    tfi_finish("exec");
    if (real) return failed(real(dir, path, argv, env, flags));
    return failed((int)syscall(SYS_execveat, dir, path, argv, env, flags)); /* libc has it from 2.34 on */
}

TFI_EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
    size_t count = lacks_run_dir(envp);
    char *room[count + 2];
    char *const *env = with_run_dir(room, envp, count);
    int (*real)(int, char *const[], char *const[]) = tfi_real(TFI_HOOK_fexecve);
    if (!real) return execveat(fd, "", argv, envp, AT_EMPTY_PATH);
    tfi_io_exec("");
    tfi_finish("exec");
    return failed(real(fd, argv, env));
}

/* Counts the arguments of an l-function, which passes them on as an array in its own frame. */
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

/* The way of execl, execlp and execle: the array of the arguments lies in this frame. */
static int exec_list(unsigned hook, const char *path, const char *first, va_list counted, va_list list)
{
    size_t count = count_args(counted);
    char *argv[count + 1];
    collect(argv, first, count, list);
    if (hook == TFI_HOOK_execle) return execve(path, argv, va_arg(list, char **));
    return hook == TFI_HOOK_execlp ? execvp(path, argv) : execv(path, argv);
}

TFI_EXPORT int execl(const char *path, const char *arg, ...)
{
    va_list counted, list;
    va_start(counted, arg);
    va_start(list, arg);
    int result = exec_list(TFI_HOOK_execl, path, arg, counted, list);
    va_end(list);
    va_end(counted);
    return result;
}

TFI_EXPORT int execlp(const char *file, const char *arg, ...)
{
    va_list counted, list;
    va_start(counted, arg);
    va_start(list, arg);
    int result = exec_list(TFI_HOOK_execlp, file, arg, counted, list);
    va_end(list);
    va_end(counted);
    return result;
}

TFI_EXPORT int execle(const char *path, const char *arg, ...)
{
    va_list counted, list;
    va_start(counted, arg);
    va_start(list, arg);
    int result = exec_list(TFI_HOOK_execle, path, arg, counted, list);
    va_end(list);
    va_end(counted);
    return result;
}
