/* posix.c - the bodies of posix.def: closes the trace before the process ends without destructors or is replaced.
 *
 * Python's subprocess and posix_spawn run these in a vfork child, in the parent's memory: tfi_finish() compares the
 * kernel's pid with the one that opened the trace, and does nothing there. Nothing here allocates.
 * An exec that fails returns, and the process goes on: its next event opens a new trace (execvp tries several).
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hooks.h"
#include "rank.h"
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

static char **with_run_dir(char **room, char *const envp[], size_t count)
{
    memcpy(room, envp, count * sizeof *room);
    room[count] = (char *)tfi_run_dir_entry();
    room[count + 1] = NULL;
    return room;
}

/* The environment to pass, `envp` itself where nothing is missing; made in the caller's frame. */
#define PASS_ON(envp, count) ((count) ? with_run_dir(alloca(((count) + 2) * sizeof(char *)), envp, count) : (envp))

/* Runs an exec with the trace closed; it only returns if it failed. */
#define EXEC(call)                                      \
    do {                                                \
        tfi_finish("exec");                             \
        int result = (call);                            \
        tfi_resume();                                   \
        return result;                                  \
    } while (0)

#define REAL(symbol) ((__typeof__(&(symbol)))tfi_real(TFI_HOOK_##symbol))

/* Calls that reach their original by another way than libc's symbol, so that nothing can be missing. */
static int raw_execve(const char *path, char *const argv[], char *const envp[])
{
    size_t count = lacks_run_dir(envp);
    char *const *env = PASS_ON(envp, count);
    EXEC((int)syscall(SYS_execve, path, argv, env));
}

TFI_EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
    return raw_execve(path, argv, envp);
}

TFI_EXPORT int execv(const char *path, char *const argv[])
{
    return raw_execve(path, argv, environ);
}

TFI_EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
    size_t count = lacks_run_dir(envp);
    char *const *env = PASS_ON(envp, count);
    if (!REAL(execvpe)) return raw_execve(file, argv, envp);
    EXEC(REAL(execvpe)(file, argv, env));
}

TFI_EXPORT int execvp(const char *file, char *const argv[])
{
    return execvpe(file, argv, environ);
}

TFI_EXPORT int execveat(int dir, const char *path, char *const argv[], char *const envp[], int flags)
{
    size_t count = lacks_run_dir(envp);
    char *const *env = PASS_ON(envp, count);
    EXEC((int)syscall(SYS_execveat, dir, path, argv, env, flags));
}

TFI_EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
    size_t count = lacks_run_dir(envp);
    char *const *env = PASS_ON(envp, count);
    if (!REAL(fexecve)) return execveat(fd, "", argv, envp, 0x1000 /* AT_EMPTY_PATH */);
    EXEC(REAL(fexecve)(fd, argv, env));
}

/* The arguments of the l-functions as an array, in the caller's frame. Sets `argv`; `last` is the va_list behind NULL. */
#define COLLECT(argv, first, list)                                    \
    size_t count = 1;                                                 \
    va_start(list, first);                                            \
    while (va_arg(list, char *)) count++;                             \
    va_end(list);                                                     \
    char **argv = alloca((count + 1) * sizeof *argv);                 \
    argv[0] = (char *)first;                                          \
    va_start(list, first);                                            \
    for (size_t i = 1; i <= count; i++) argv[i] = va_arg(list, char *)

TFI_EXPORT int execl(const char *path, const char *arg, ...)
{
    va_list list;
    COLLECT(argv, arg, list);
    va_end(list);
    return execv(path, argv);
}

TFI_EXPORT int execlp(const char *file, const char *arg, ...)
{
    va_list list;
    COLLECT(argv, arg, list);
    va_end(list);
    return execvp(file, argv);
}

TFI_EXPORT int execle(const char *path, const char *arg, ...)
{
    va_list list;
    COLLECT(argv, arg, list);
    char **envp = va_arg(list, char **);
    va_end(list);
    return execve(path, argv, envp);
}
