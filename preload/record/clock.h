/* clock.h - reads the counter that times every record, and pairs it with other clocks. */
#ifndef TFI_CLOCK_H
#define TFI_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sys.h"
#include "base/x86_64.h"

/* True if the counter is the TSC, false if it is CLOCK_MONOTONIC in nanoseconds. Set by tfi_clock_choose(). */
extern bool tfi_clock_is_tsc;

static inline uint64_t tfi_ticks(void)
{
    return tfi_clock_is_tsc ? tfi_counter() : tfi_monotonic_ns();
}

/* The counter and two clocks, read together. `error` is the distance of the two counter readings around them, in
 * ticks. */
struct tfi_clock_pair {
    uint64_t ticks;
    uint64_t realtime;
    uint64_t monotonic;
    uint64_t error;
};

struct tfi_clock_pair tfi_clock_read(void);

/* Reads the first pair. Called in the constructor, long before the wake, for a good rate. */
void tfi_clock_init(void);
/* Chooses the counter. Call before taking any time that is kept. The constructor does not choose, because asking the
 * processor takes tens of microseconds in a virtual machine, and a process that never wakes should not pay for that. */
void tfi_clock_choose(void);
const struct tfi_clock_pair *tfi_clock_first(void);

/* Nanoseconds per tick, by the first pair and one read now; for timing.json, not for the trace. */
double tfi_clock_ns_per_tick(void);
/* The same in units of 2^-24, kept once the first pair is a millisecond old; 0: not yet. */
uint32_t tfi_clock_rate(void);

#endif
