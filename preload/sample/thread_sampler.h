/* thread_sampler.h - a thread of the library's own looks at the program's threads, TFI_SAMPLE_HZ times a second. */
#ifndef TFI_THREAD_SAMPLER_H
#define TFI_THREAD_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

/* A period of one thread, as in the record. The stack's number is one of tables.h. */
struct tfi_look {
    uint64_t time, duration, cpu; /* ticks, ticks, nanoseconds */
    uint32_t tid, stack, call, looks, flags;
};

/* True if this process is to be sampled. */
bool tfi_sampler_wanted(void);

/* Lets the thread run in this process even before it wakes, if all of it is recorded. The interpreter runs. */
void tfi_sampler_begin(void);

/* Called at the end of a process that may sleep: from here on the thread does not wake it. If it does just now, waits at most
 * `ms` milliseconds; false if it still does. */
bool tfi_sampler_ends_asleep(unsigned ms);

/* Called where the process goes on, because an exec has failed. */
void tfi_sampler_resume(void);

/* True if the thread runs in this process, which may sleep. */
bool tfi_sampler_runs_asleep(void);

/* Starts the thread if it may run and does not. */
void tfi_sampler_start(void);

/* Ends the thread; waits at most `ms` milliseconds. */
bool tfi_sampler_stop(unsigned ms);
void tfi_sampler_before_fork(void);
void tfi_sampler_after_fork(void);

/* Forgets what a parent process has left. */
void tfi_sampler_restart(void);

/* Takes at most `most` periods that were not taken yet, the oldest first. One thread at a time. */
unsigned tfi_sampler_take(struct tfi_look *looks, unsigned most);

/* The number of periods since the last call that found no room. */
uint64_t tfi_sampler_lost(void);

#endif
