/* stage_cpu.h - measures the processor time of a stage's thread from edge to edge.
 *
 * An open range keeps the time of its thread when it began, or was resumed, less what it had used before; a paused one
 * keeps what it has used. The clock is the thread's that the range is on, also where another thread ends it: 0 is unknown,
 * as for a thread that has ended.
 */
#ifndef TFI_STAGE_CPU_H
#define TFI_STAGE_CPU_H

#include "base/sys.h"
#include "record/thread.h"

/* The processor time that the thread has used; `self` is the calling one. */
static inline uint64_t tfi_cpu_now(const struct tfi_thread *self, const struct tfi_thread *thread)
{
    return thread == self ? tfi_own_cpu_ns() : thread ? tfi_thread_cpu_ns(thread->tid) : 0;
}

static inline void tfi_cpu_begin(struct tfi_open *open)
{
    if (open->flags & TFI_RANGE_STAGE) open->cpu = tfi_own_cpu_ns();
}

/* What the range has used, on this thread now; 0: unknown. */
static inline uint64_t tfi_cpu_used(const struct tfi_thread *self, const struct tfi_thread *thread,
                                    const struct tfi_open *open)
{
    if (!open->cpu || open->paused) return open->cpu;
    uint64_t now = tfi_cpu_now(self, thread);
    return now ? now - open->cpu + 1 : 0; /* the one tells nothing used from unknown */
}

/* Continues with what it has used, on the calling thread. */
static inline void tfi_cpu_resume(struct tfi_open *open)
{
    if (open->cpu) open->cpu = tfi_own_cpu_ns() - (open->cpu - 1);
}

#endif
