/* device_clock.c - ties CUPTI's clock to the counter, and converts all times of its records to one unit.
 *
 * CUPTI's times are nanoseconds of its own clock until some client registers a timestamp callback. From then on they
 * are the values of that callback (kineto's is the TSC), for all clients and for good; records made before keep the
 * old unit. We learn of it from the call, which our wrapper sees, or from the values: CUPTI's clock no longer keeps
 * step with CLOCK_REALTIME. Each value is taken in the unit in which it lies nearer to the present. The other unit is
 * converted by a line through two readings. The trace only ever has CUPTI's own nanoseconds.
 *
 * No record can lie before the first reading or far after the present. After a callback was registered again, some releases
 * return kernels that seem to have run a day earlier.
 *
 * Pairs with the counter are kept for a while, so that a host call's time is interpolated between its two neighbours.
 */
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>

#include "cupti/client.h"
#include "record/clock.h"
#include "record/log.h"

#define PAIRS 64
#define HOUR UINT64_C(3600000000000) /* a simulated device runs ahead of the present */

struct pair {
    uint64_t ticks, ns;
};

static struct {
    struct pair ring[PAIRS];
    uint64_t count;
    uint64_t earliest, latest; /* times in all pairs so far: a clock that is set may go back */
    int64_t offset;            /* CUPTI's own clock less CLOCK_REALTIME */
    bool have_offset;
} own;

/* The unit of another client's clock. */
static struct {
    uint64_t (*clock)(void); /* NULL: noticed from the values alone */
    uint64_t value0, ns0;    /* first reading */
    uint64_t value1, ns1;    /* latest reading */
    uint32_t on;
} foreign;

static uint64_t estimate_ns(void)
{
    return tfi_realtime_ns() + (uint64_t)own.offset;
}

/* Reads the other unit and our estimate of CUPTI's own clock together. */
static void read_foreign(uint64_t *value, uint64_t *ns)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        uint64_t before = estimate_ns(), v = 0;
        if (foreign.clock) v = foreign.clock();
        else if (tfi_cupti_api.GetTimestamp(&v) != 0) continue;
        uint64_t after = estimate_ns();
        if (after - before >= best) continue;
        best = after - before;
        *value = v;
        *ns = before + best / 2;
    }
}

static void begin_foreign(uint64_t (*clock)(void))
{
    foreign.clock = clock;
    read_foreign(&foreign.value0, &foreign.ns0);
    foreign.value1 = foreign.value0;
    foreign.ns1 = foreign.ns0;
    __atomic_store_n(&foreign.on, 1, __ATOMIC_RELEASE);
}

void tfi_cupti_clock_foreign(uint64_t (*clock)(void))
{
    if (__atomic_load_n(&foreign.on, __ATOMIC_ACQUIRE) && foreign.clock == clock) return;
    begin_foreign(clock);
}

/* Reads the other unit again, 10 ms or more after the first reading: closer ones give no rate. */
static void renew_foreign(void)
{
    struct timespec pause = {.tv_nsec = 20000000};
    read_foreign(&foreign.value1, &foreign.ns1);
    if (foreign.ns1 - foreign.ns0 >= 10000000) return;
    syscall(SYS_nanosleep, &pause, NULL);
    read_foreign(&foreign.value1, &foreign.ns1);
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

static uint64_t foreign_to_ns(uint64_t value)
{
    __int128 rise = (__int128)foreign.ns1 - foreign.ns0, run = (__int128)foreign.value1 - foreign.value0;
    if (run <= 0 || rise <= 0) return foreign.ns1;
    return (uint64_t)(foreign.ns0 + ((__int128)value - foreign.value0) * rise / run);
}

uint64_t tfi_cupti_clock_ns(uint64_t value)
{
    if (!value || !__atomic_load_n(&foreign.on, __ATOMIC_ACQUIRE)) return value;
    return distance(value, foreign.ns1) <= distance(value, foreign.value1) ? value : foreign_to_ns(value);
}

void tfi_cupti_clock_refresh(void)
{
    if (__atomic_load_n(&foreign.on, __ATOMIC_ACQUIRE)) read_foreign(&foreign.value1, &foreign.ns1);
}

/* Reads CUPTI's clock, bracketed by the counter, and both by CLOCK_REALTIME: the best of a few readings. */
static bool read_pair(struct pair *pair, uint64_t *error, uint64_t *raw, uint64_t *realtime)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 8; i++) {
        uint64_t value = 0, begin = tfi_realtime_ns(), before = tfi_ticks();
        int result = tfi_cupti_api.GetTimestamp(&value);
        uint64_t after = tfi_ticks(), width = tfi_realtime_ns() - begin;
        if (result != 0 || value == 0) return false;
        if (width >= best) continue;
        best = width;
        *error = after - before;
        *raw = value;
        *realtime = begin + width / 2;
        pair->ticks = before + *error / 2;
    }
    return true;
}

/* CUPTI's own clock is CLOCK_REALTIME; under WSL it is CLOCK_MONOTONIC_RAW. */
static void note_offset(uint64_t raw, uint64_t realtime)
{
    if (own.have_offset) return;
    own.have_offset = true;
    if (distance(raw, realtime) < TFI_CUPTI_FAR || distance(raw, tfi_monotonic_ns()) < 60ull * TFI_CUPTI_FAR)
        own.offset = (int64_t)(raw - realtime);
}

static void keep_pair(struct pair *pair, uint64_t raw)
{
    pair->ns = tfi_cupti_clock_ns(raw);
    if (!own.count || pair->ns < own.earliest) own.earliest = pair->ns;
    if (pair->ns > own.latest) own.latest = pair->ns;
    own.ring[own.count++ % PAIRS] = *pair;
}

void tfi_cupti_clock_first(void)
{
    struct pair pair;
    uint64_t error, raw, realtime;
    if (own.count || !read_pair(&pair, &error, &raw, &realtime)) return;
    if (!foreign.on) note_offset(raw, realtime);
    keep_pair(&pair, raw);
}

bool tfi_cupti_clock_read(struct tfi_thread *lane)
{
    struct pair pair;
    uint64_t error, raw, realtime;
    if (!read_pair(&pair, &error, &raw, &realtime)) return false;
    if (!foreign.on) note_offset(raw, realtime);
    if (!foreign.on && distance(raw, realtime + (uint64_t)own.offset) > TFI_CUPTI_FAR) {
        tfi_log(TFI_LOG_WARN,
                "the program or another profiler has replaced CUPTI's clock; device times are converted from now on");
        begin_foreign(NULL);
    }
    if (foreign.on) {
        renew_foreign();
        if (!read_pair(&pair, &error, &raw, &realtime)) return false;
        read_foreign(&foreign.value1, &foreign.ns1);
    }
    keep_pair(&pair, raw);
    struct tfi_rec_clock *rec = TFI_RESERVE(lane, clock);
    if (!rec) return true;
    *rec = (struct tfi_rec_clock){rec->rec, TFI_CLOCK_DEVICE, pair.ticks, pair.ns, error};
    tfi_commit(lane, sizeof *rec);
    return true;
}

static const struct pair *pair_at(uint64_t index)
{
    return &own.ring[index % PAIRS];
}

bool tfi_cupti_clock_holds(uint64_t start, uint64_t end)
{
    if (!own.count) return true;
    const struct pair *newest = pair_at(own.count - 1);
    uint64_t now = newest->ns + (uint64_t)((double)(tfi_ticks() - newest->ticks) * tfi_clock_ns_per_tick());
    if (now < own.latest) now = own.latest;
    return start + TFI_CUPTI_FAR >= own.earliest && end >= start && end <= now + HOUR;
}

uint64_t tfi_cupti_clock_ticks(uint64_t ns)
{
    uint64_t first = own.count > PAIRS ? own.count - PAIRS : 0, i = own.count;
    if (!own.count) return 0;
    while (i > first + 1 && pair_at(i - 1)->ns > ns) i--;
    const struct pair *from = pair_at(i - 1), *to = i < own.count ? pair_at(i) : NULL;
    /* Outside the pairs, or between two that are too close to give a rate, the counter's own rate is better. */
    if (!to || ns < from->ns || to->ns - from->ns < 10000000) {
        double ticks = (double)(int64_t)(ns - from->ns) / tfi_clock_ns_per_tick();
        return from->ticks + (uint64_t)(int64_t)ticks;
    }
    return from->ticks + (uint64_t)((__int128)(ns - from->ns) * (to->ticks - from->ticks) / (to->ns - from->ns));
}
