/* clock.h - the one counter that is read at every edge, and its ties to other clocks. */
#ifndef TFI_CLOCK_H
#define TFI_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <x86intrin.h>

#include "sys.h"

struct tfi_thread;

/* True where the counter is the TSC, false where it is CLOCK_MONOTONIC in nanoseconds. Chosen before it is first read. */
extern bool tfi_clock_is_tsc;

static inline uint64_t tfi_ticks(void)
{
    return tfi_clock_is_tsc ? __rdtsc() : tfi_monotonic_ns();
}

/* A pair of readings: the counter and a clock, and how far apart the two readings round it were. */
struct tfi_clock_pair {
    uint64_t ticks;
    uint64_t realtime;
    uint64_t monotonic;
    uint64_t error;
};

struct tfi_clock_pair tfi_clock_read(void);

/* In the constructor: reads the first pair, far ahead of the wake for a good rate. */
void tfi_clock_init(void);
/* To be called before anything that is kept is timed. To ask the processor takes tens of microseconds in a virtual
 * machine, which programs that are only started don't have to pay. */
void tfi_clock_choose(void);
const struct tfi_clock_pair *tfi_clock_first(void);

/* Writes clock records of a pair into the thread's chunk. */
void tfi_clock_write(struct tfi_thread *thread, const struct tfi_clock_pair *pair);

/* Writes a pair if the last one is old: at first every millisecond, then every second. Costs one compare otherwise. */
void tfi_clock_tick(struct tfi_thread *thread, uint64_t now);

/* Starts over, at wake. */
void tfi_clock_restart(void);

/* Ticks to nanoseconds, by the first pair and one read now; for timing.json, not for the trace. */
double tfi_clock_ns_per_tick(void);

#endif
