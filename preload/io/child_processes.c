/* child_processes.c - wraps fork, vfork, posix_spawn, system and popen, and records starts and ends of processes.
 *
 * A wrapper of vfork must not return before its child is gone, because the child would destroy the wrapper's frame. So
 * the one here notes the call and jumps to the original, with the stack as it was, in assembler.
 */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "base/sys.h"
#include "base/x86_64.h"
#include "control/once.h"
#include "io/descriptors.h"
#include "io/io.h"
#include "io/child_processes.h"
#include "record/clock.h"
#include "record/enter.h"
#include "record/strings.h"
#include "stage/recording_state.h"

__thread unsigned tfi_vforked;

bool tfi_vforked_here(void)
{
    if (tfi_in_shared_child()) return true;
    tfi_vforked = 0;
    return false;
}

static void write_event(enum tfi_process_event event, pid_t pid, int status, const char *path)
{
    int error = errno;
    if (!tfi_io_on || !tfi_process->gen || tfi_inside || tfi_in_shared_child()) return;
    struct tfi_thread *t = tfi_enter(TFI_WHY_NONE);
    if (t && tfi_recording(TFI_ACTIVITY_IO) && tfi_call_wanted(t)) {
        uint32_t name = tfi_is_readable(path) ? tfi_string(path, strlen(path)) : 0;
        TFI_WRITE(t, process, .event = event, .time = tfi_ticks(), .pid = pid, .status = status, .path = name);
    }
    if (t) tfi_leave(t);
    errno = error;
}

void tfi_io_exec(const char *path)
{
    write_event(TFI_PROCESS_EXEC, tfi_trace_pid, -1, path);
}

void tfi_io_end(int status)
{
    write_event(TFI_PROCESS_END, tfi_trace_pid, status, NULL);
}

TFI_EXPORT pid_t fork(void)
{
    pid_t (*real)(void) = (pid_t(*)(void))tfi_real(TFI_HOOK_fork);
    if (TFI_UNLIKELY(!real)) return errno = ENOSYS, -1;
    tfi_run_has_child();
    pid_t child = real();
    if (TFI_LIKELY(!tfi_io_on)) return child;
    int error = errno;
    if (child >= 0) tfi_fd_forked();
    if (child != 0) write_event(TFI_PROCESS_FORK, child, child < 0 ? error : 0, NULL);
    errno = error;
    return child;
}

/* Called by the assembler. */
__attribute__((used, visibility("hidden"))) void *tfi_vfork_original(void)
{
    tfi_vforked = tfi_io_on;
    tfi_run_has_child();
    void *real = tfi_real(TFI_HOOK_vfork);
    return TFI_LIKELY(real != NULL) ? real : (void *)fork;
}

TFI_ASM_JUMP(vfork, tfi_vfork_original);

typedef int spawn_function(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                           const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]);

static int spawn(spawn_function *real, pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const argv[], char *const envp[])
{
    pid_t child = -1;
    if (TFI_UNLIKELY(!real)) return ENOSYS;
    if (!pid) pid = &child;
    tfi_run_has_child();
    int result = real(pid, path, actions, attributes, argv, envp);
    if (tfi_io_on) write_event(TFI_PROCESS_SPAWN, result ? -1 : *pid, result, path);
    return result;
}

TFI_EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                           const posix_spawnattr_t *attributes, char *const argv[], char *const envp[])
{
    return spawn((spawn_function *)tfi_real(TFI_HOOK_posix_spawn), pid, path, actions, attributes, argv, envp);
}

TFI_EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                            const posix_spawnattr_t *attributes, char *const argv[], char *const envp[])
{
    return spawn((spawn_function *)tfi_real(TFI_HOOK_posix_spawnp), pid, file, actions, attributes, argv, envp);
}

/* Libc makes the children of these inside, where no hook sees it. */
TFI_EXPORT int system(const char *command)
{
    int (*real)(const char *) = (int (*)(const char *))tfi_real(TFI_HOOK_system);
    if (TFI_UNLIKELY(!real)) return errno = ENOSYS, -1;
    tfi_run_has_child();
    return real(command);
}

TFI_EXPORT FILE *popen(const char *command, const char *mode)
{
    FILE *(*real)(const char *, const char *) = (FILE * (*)(const char *, const char *)) tfi_real(TFI_HOOK_popen);
    if (TFI_UNLIKELY(!real)) return errno = ENOSYS, NULL;
    tfi_run_has_child();
    return real(command, mode);
}
