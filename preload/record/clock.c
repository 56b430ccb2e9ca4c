/* clock.c - chooses the counter and ties it to CLOCK_REALTIME and CLOCK_MONOTONIC.
 *
 * The TSC is used where the kernel itself keeps time by it, or the CPU calls it invariant. The kernel is asked first: a
 * virtual machine traps CPUID, and two of them take eight times as long as the kernel's file. A pair is the best of a few
 * bracketed readings. This file only takes pairs; the analyser converts. The first pair is read in the constructor,
 * long before the first record, so that even a trace of a few milliseconds has a rate.
 */
#include "record/clock.h"

#include <string.h>

#include "base/files.h"

bool tfi_clock_is_tsc = true;
static struct tfi_clock_pair first;

static bool invariant_tsc(void)
{
    char source[64];
    ssize_t n =
        tfi_read_file("/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof source);
    return (n > 0 && strncmp(source, "tsc", 3) == 0) || tfi_counter_is_invariant();
}

struct tfi_clock_pair tfi_clock_read(void)
{
    struct tfi_clock_pair best = {.error = UINT64_MAX};
    for (int i = 0; i < 4; i++) {
        uint64_t before = tfi_ticks();
        uint64_t realtime = tfi_realtime_ns();
        uint64_t monotonic = tfi_monotonic_ns();
        uint64_t after = tfi_ticks();
        if (after - before >= best.error) continue;
        best.error = after - before;
        best.ticks = before + best.error / 2;
        best.realtime = realtime;
        best.monotonic = monotonic;
    }
    return best;
}

void tfi_clock_init(void)
{
    first = tfi_clock_read();
}

void tfi_clock_choose(void)
{
    static bool chosen;
    if (__atomic_exchange_n(&chosen, true, __ATOMIC_RELAXED) || invariant_tsc()) return;
    first.ticks = first.monotonic;
    tfi_clock_is_tsc = false;
}

const struct tfi_clock_pair *tfi_clock_first(void)
{
    return &first;
}

double tfi_clock_ns_per_tick(void)
{
    if (!tfi_clock_is_tsc) return 1;
    struct tfi_clock_pair now = tfi_clock_read();
    if (now.ticks <= first.ticks) return 1;
    return (double)(now.monotonic - first.monotonic) / (double)(now.ticks - first.ticks);
}

uint32_t tfi_clock_rate(void)
{
    enum { UNIT = 1 << 24, OLD_ENOUGH_NS = 1000000 };
    static uint32_t rate; /* atomic: threads that find it at the same time write values that hardly differ */
    uint32_t known = __atomic_load_n(&rate, __ATOMIC_RELAXED);
    if (known || tfi_monotonic_ns() - first.monotonic < OLD_ENOUGH_NS) return known;
    known = (uint32_t)(tfi_clock_ns_per_tick() * UNIT);
    __atomic_store_n(&rate, known, __ATOMIC_RELAXED);
    return known;
}
