/* machine.c - keeps the machine that a process ran on, and the process over time. */
#include "model/host/machine.h"

#include <stdlib.h>
#include <string.h>

#include "read/trace.h"

int64_t machine_number(const struct machine *machine, const char *key)
{
    uint64_t value;
    return machine->facts && pairs_number(machine->facts, key, &value) && value <= INT64_MAX ? (int64_t)value : -1;
}

static int sample_by_time(const void *a, const void *b)
{
    const struct process_sample *x = a, *y = b;
    return by_number(x->time, y->time);
}

static int pool_by_time(const void *a, const void *b)
{
    const struct thread_pool *x = a, *y = b;
    return x->time != y->time ? by_number(x->time, y->time) : by_number(x->thread, y->thread);
}

void machine_sort(struct machine *machine)
{
    if (machine->samples) qsort(machine->sample, machine->samples, sizeof *machine->sample, sample_by_time);
    if (machine->pools) qsort(machine->pool, machine->pools, sizeof *machine->pool, pool_by_time);
}

void machine_free(struct machine *machine)
{
    if (machine->facts) pairs_free(machine->facts);
    if (machine->settings) pairs_free(machine->settings);
    free(machine->facts);
    free(machine->settings);
    free(machine->sample);
    free(machine->pool);
    *machine = (struct machine){0};
}
