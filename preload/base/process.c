/* process.c - keeps the state of this process; all layers read it, tfinject.c changes it.
 *
 * The state lies on a page that is wiped on fork, so a child, however it was made, finds itself asleep. In the
 * constructor tfinject.c moves the state to that page and names the functions that end the trace.
 */
#include "base/process.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct tfi_process before_constructor;
static size_t page_bytes; /* 0: there is no page, or it is already marked to be wiped on fork */
struct tfi_process *tfi_process = &before_constructor;

pid_t tfi_trace_pid;
uint64_t *tfi_drops;

static void (*end_trace)(const char *reason);
static void (*resume_trace)(void);

void tfi_process_move(struct tfi_process *page, size_t bytes)
{
    page_bytes = bytes;
    *page = *tfi_process;
    __atomic_store_n(&tfi_process, page, __ATOMIC_RELEASE);
}

/* The constructor does not call this: a process that stays asleep makes no system call that may be forbidden to it. */
void tfi_process_keep(void)
{
    size_t bytes = __atomic_load_n(&page_bytes, __ATOMIC_ACQUIRE);
    if (TFI_LIKELY(!bytes)) return;
    syscall(SYS_madvise, tfi_process, bytes, MADV_WIPEONFORK);
    __atomic_store_n(&page_bytes, 0, __ATOMIC_RELEASE);
}

void tfi_count_drop(int drop, uint64_t count)
{
    if (tfi_drops) __atomic_add_fetch(&tfi_drops[drop], count, __ATOMIC_RELAXED);
}

void tfi_process_ends_by(void (*finish)(const char *reason), void (*resume)(void))
{
    end_trace = finish;
    resume_trace = resume;
}

void tfi_finish(const char *reason)
{
    if (end_trace) end_trace(reason);
}

void tfi_resume(void)
{
    if (resume_trace) resume_trace();
}
