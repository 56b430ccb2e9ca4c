/* last_thread.c - finds out whether the program's own threads have all ended while threads of the library still run.
 *
 * A thread that ends by the bare system call exit, or by a seccomp filter, tells nobody. The library's threads would
 * then keep the process for ever. The kernel clears the list of robust mutexes of a thread that ends, so one system
 * call, which needs no file, shows that the first thread lives. Only when that list is empty is /proc/self/stat read.
 * The list is also empty in a child of a bare fork, so the file decides.
 */
#include "base/last_thread.h"

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "base/sys.h"

/* Numbers of fields in /proc/self/stat; see proc(5). */
enum { STATE = 3, NR_THREADS = 20, EXIT_CODE = 52 };

static bool first_lives(void)
{
    void *list = NULL;
    size_t bytes;
    return syscall(SYS_get_robust_list, tfi_getpid(), &list, &bytes) == 0 && list;
}

/* Returns the field's text; NULL if there is none. `state` is the text of field 3. */
static const char *field(const char *state, unsigned number)
{
    for (unsigned i = STATE; state && i < number; i++) {
        state = strchr(state, ' ');
        if (state) state++;
    }
    return state;
}

bool tfi_program_has_ended(uint32_t own, int *status)
{
    char text[1024];
    if (first_lives()) return false;
    ssize_t bytes = tfi_read_file("/proc/self/stat", text, sizeof text);
    const char *name_end = bytes > 0 ? memrchr(text, ')', (size_t)bytes) : NULL;
    if (!name_end || strncmp(name_end, ") Z ", 4) != 0) return false;
    const char *threads = field(name_end + 2, NR_THREADS), *code = field(name_end + 2, EXIT_CODE);
    if (!threads || !code || strtoul(threads, NULL, 10) != own + 1ul) return false;
    *status = (int)strtol(code, NULL, 10);
    return true;
}

_Noreturn void tfi_end_with(int status)
{
    if (WIFSIGNALED(status)) {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, WTERMSIG(status));
        signal(WTERMSIG(status), SIG_DFL);
        pthread_sigmask(SIG_UNBLOCK, &one, NULL);
        syscall(SYS_tgkill, tfi_getpid(), tfi_gettid(), WTERMSIG(status));
    }
    for (;;) syscall(SYS_exit_group, WEXITSTATUS(status));
}
