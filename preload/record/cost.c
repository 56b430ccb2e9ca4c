/* cost.c - measures the recorder's own cost: ticks spent off the hot path, and an estimate for each record on it. */
#include "record/cost.h"

#include "record/clock.h"

static uint64_t cost_ticks;
static double record_ns;

void tfi_cost_add(uint64_t ticks)
{
    __atomic_add_fetch(&cost_ticks, ticks, __ATOMIC_RELAXED);
}

/* Estimates the cost of a record as 2.3 readings of the counter; `info` shows it. */
void tfi_cost_restart(void)
{
    enum { READS = 64 };
    uint64_t start = tfi_ticks(), end = start;
    for (int i = 0; i < READS; i++) end = tfi_ticks();
    record_ns = (double)(end - start) * tfi_clock_ns_per_tick() / READS * 2.3;
    __atomic_store_n(&cost_ticks, 0, __ATOMIC_RELAXED);
}

uint64_t tfi_cost_ns(uint64_t records)
{
    double ticks = (double)__atomic_load_n(&cost_ticks, __ATOMIC_RELAXED);
    return (uint64_t)(ticks * tfi_clock_ns_per_tick()) + (uint64_t)((double)records * record_ns);
}
