/* clock.c - chooses the counter and ties it to CLOCK_REALTIME and CLOCK_MONOTONIC.
 *
 * The TSC is used where the CPU calls it invariant, or the kernel itself keeps time by it. A pair is the best of a few
 * bracketed readings. Conversion is the analyser's work; here only pairs are taken: one in the constructor (long before
 * the first record, so that even a trace of a few milliseconds has a rate), then more and more rarely.
 */
#include "clock.h"

#include "files.h"

#include <cpuid.h>
#include <string.h>

#include "thread.h"

bool tfi_clock_is_tsc = true;
static struct tfi_clock_pair first;
static uint64_t next_pair, interval;

static bool invariant_tsc(void)
{
    unsigned a, b, c, d;
    char source[64];
    if (__get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8))) return true;
    ssize_t n =
        tfi_read_file("/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof source);
    return n > 0 && strncmp(source, "tsc", 3) == 0;
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

static void write_one(struct tfi_thread *thread, uint32_t clock, uint64_t value, const struct tfi_clock_pair *pair)
{
    struct tfi_rec_clock *rec = TFI_RESERVE(thread, clock);
    if (!rec) return;
    rec->clock = clock;
    rec->ticks = pair->ticks;
    rec->value = value;
    rec->error = pair->error;
    tfi_commit(thread, sizeof *rec);
}

void tfi_clock_write(struct tfi_thread *thread, const struct tfi_clock_pair *pair)
{
    write_one(thread, TFI_CLOCK_MONOTONIC, pair->monotonic, pair);
    write_one(thread, TFI_CLOCK_REALTIME, pair->realtime, pair);
}

void tfi_clock_restart(void)
{
    double per_ns = tfi_clock_is_tsc ? 1 / tfi_clock_ns_per_tick() : 1;
    interval = (uint64_t)(1e6 * per_ns);
    __atomic_store_n(&next_pair, tfi_ticks() + interval, __ATOMIC_RELAXED);
}

void tfi_clock_tick(struct tfi_thread *thread, uint64_t now)
{
    uint64_t due = __atomic_load_n(&next_pair, __ATOMIC_RELAXED);
    if (TFI_LIKELY(now < due)) return;
    uint64_t wait = interval;
    if (!__atomic_compare_exchange_n(&next_pair, &due, now + wait, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
    if (wait < (uint64_t)1 << 31) interval = wait * 2; /* about a second on any clock rate there is */
    struct tfi_clock_pair pair = tfi_clock_read();
    tfi_clock_write(thread, &pair);
}

double tfi_clock_ns_per_tick(void)
{
    if (!tfi_clock_is_tsc) return 1;
    struct tfi_clock_pair now = tfi_clock_read();
    if (now.ticks <= first.ticks) return 1;
    return (double)(now.monotonic - first.monotonic) / (double)(now.ticks - first.ticks);
}
