/* stage_cpu.h - measures the processor time of a stage's thread from edge to edge.
 *
 * An open range keeps the time of its thread when it began, or was resumed, less what it had used before; a paused one
 * keeps what it has used. The clock is the thread's that the range is on, also where another thread ends it: 0 is unknown,
 * as for a thread that has ended.
 *
 * A reading is a system call of half a microsecond, five times a whole range without it. A thread that was read less than
 * NEAR ticks ago is taken to have run since: what it slept there counts as used, at most about ten microseconds until the
 * next reading, and never twice.
 */
#ifndef TFI_STAGE_CPU_H
#define TFI_STAGE_CPU_H

#include "base/sys.h"
#include "record/clock.h"
#include "record/thread.h"

/* The processor time that the calling thread has used at `now`, in ticks; 0: unknown. */
static inline uint64_t tfi_cpu_self(struct tfi_thread *self, uint64_t now)
{
    enum { NEAR = 1 << 15 };
    struct tfi_cpu_reading *last = &self->cpu;
    uint64_t since = now - last->ticks, ns = 0;
    uint32_t rate = last->ticks && since < NEAR ? tfi_clock_rate() : 0;
    if (rate) {
        ns = last->ns + (since * rate >> 24);
    } else {
        ns = tfi_own_cpu_ns();
        last->ticks = now;
        last->ns = ns;
    }
    if (ns < last->given) ns = last->given;
    last->given = ns;
    return ns;
}

static inline void tfi_cpu_begin(struct tfi_thread *self, struct tfi_open *open)
{
    if (open->flags & TFI_RANGE_STAGE) open->cpu = tfi_cpu_self(self, open->since);
}

/* What the range has used until `now`, on this thread now; 0: unknown. */
static inline uint64_t tfi_cpu_used(struct tfi_thread *self, const struct tfi_thread *thread,
                                    const struct tfi_open *open, uint64_t now)
{
    if (!open->cpu || open->paused) return open->cpu;
    uint64_t ns = thread == self ? tfi_cpu_self(self, now) : thread ? tfi_thread_cpu_ns(thread->tid) : 0;
    if (!ns) return 0;
    int64_t used = (int64_t)(ns - open->cpu);
    return (uint64_t)(used > 0 ? used : 0) + 1; /* the one tells nothing used from unknown */
}

/* Continues with what it has used, on the calling thread. */
static inline void tfi_cpu_resume(struct tfi_thread *self, struct tfi_open *open)
{
    if (open->cpu) open->cpu = tfi_cpu_self(self, open->since) - (open->cpu - 1);
}

#endif
