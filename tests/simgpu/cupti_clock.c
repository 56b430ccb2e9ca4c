/* cupti_clock.c - a simulated CUPTI: the unit of all times in its records.
 *
 * Without a timestamp callback the unit is nanoseconds of CLOCK_REALTIME. They are computed from the device's anchor,
 * so that a test can compute the same values. With a callback, a host time is the callback's value at that moment. A
 * device time is converted by a line through two readings of both clocks: one at the registration, one when the record
 * is written.
 */
#include <time.h>

#include "cupti_sim.h"

struct reading {
    uint64_t monotonic, value;
};
static CUpti_TimestampCallbackFunc callback;
static struct reading registered;

uint64_t sim_monotonic(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Reads both clocks at nearly the same moment: the narrowest of a few readings. */
static struct reading both(CUpti_TimestampCallbackFunc f)
{
    struct reading r = {0};
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 10; i++) {
        uint64_t before = sim_monotonic(), value = f(), width = sim_monotonic() - before;
        if (width >= best) continue;
        best = width;
        r = (struct reading){before + width / 2, value};
    }
    return r;
}

static uint64_t realtime(unsigned device, uint64_t monotonic)
{
    static int (*anchor)(unsigned, uint64_t *, uint64_t *);
    uint64_t mono, real;
    if (!anchor) *(void **)&anchor = sim_driver("simgpu_anchor");
    if (anchor && anchor(device, &mono, &real)) return real + (monotonic - mono);
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec + (monotonic - sim_monotonic());
}

uint64_t sim_stamp(uint64_t monotonic)
{
    CUpti_TimestampCallbackFunc f = __atomic_load_n(&callback, __ATOMIC_ACQUIRE);
    return f ? f() : realtime(0, monotonic);
}

uint64_t sim_stamp_device(unsigned device, uint64_t monotonic)
{
    CUpti_TimestampCallbackFunc f = __atomic_load_n(&callback, __ATOMIC_ACQUIRE);
    if (!f) return realtime(device, monotonic);
    struct reading now = both(f);
    if (now.monotonic == registered.monotonic) return now.value;
    __int128 slope = (__int128)(now.value - registered.value);
    __int128 since = (__int128)(int64_t)(monotonic - registered.monotonic);
    return registered.value + (uint64_t)(since * slope / (__int128)(now.monotonic - registered.monotonic));
}

CUptiResult sim_clock_register(CUpti_TimestampCallbackFunc f)
{
    if (!f) return CUPTI_ERROR_INVALID_PARAMETER;
    sim_trap_registered(callback != NULL);
    registered = both(f);
    __atomic_store_n(&callback, f, __ATOMIC_RELEASE);
    return CUPTI_SUCCESS;
}

static uint64_t ticks(void)
{
    return sim_monotonic() * 3 + 1000003;
}

/* Registers a timestamp callback on behalf of another client. */
void sim_clock_foreign(void)
{
    sim_clock_register(ticks);
}
