/* bins.c - sums up samples, memory and clocks in equal parts of the time of a page. */
#include "commands/page/bins.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_POOLS = 4, MOST_DEVICES = 8 };

struct span {
    int64_t from, to;
};

static size_t bin_of(const struct span *span, int64_t time)
{
    double at = ((double)time - (double)span->from) / fmax((double)span->to - (double)span->from, 1) * BINS;
    return (size_t)fmin(fmax(at, 0), BINS - 1);
}

/* A value that is not a number is unknown. */
static void put_row(struct out *out, const struct process *process, const char *name, int64_t number, const char *unit,
                    const double values[BINS], bool *more)
{
    out_puts(out, *more ? ",\n" : "\n");
    *more = true;
    out_puts(out, "{\"rank\": ");
    if (process->rank < 0) out_puts(out, "null");
    else out_int(out, process->rank);
    out_puts(out, ", \"pid\": ");
    out_int(out, process->pid);
    out_puts(out, ", \"name\": \"");
    out_puts(out, name);
    if (number >= 0) out_int(out, number);
    out_puts(out, "\", \"unit\": \"");
    out_puts(out, unit);
    out_puts(out, "\", \"values\": [");
    for (size_t i = 0; i < BINS; i++) {
        if (i) out_puts(out, ",");
        if (isnan(values[i])) out_puts(out, "null");
        else out_format(out, "%.0f", values[i]);
    }
    out_puts(out, "]}");
}

static void forget_values(double values[BINS], double value)
{
    for (size_t i = 0; i < BINS; i++) values[i] = value;
}

/* Shares a time out over the parts of the page that it lies in. */
static void spread(double values[BINS], const struct span *span, int64_t start, int64_t end, double time)
{
    size_t first = bin_of(span, start), last = bin_of(span, end);
    for (size_t i = first; i <= last; i++) values[i] += time / (double)(last - first + 1);
}

static void put_samples(struct out *out, const struct process *process, const struct span *span, bool *more)
{
    const struct looks *l = &process->looks;
    double working[BINS] = {0}, waiting[BINS] = {0};
    if (!l->table.count) return;
    for (size_t i = 0; i < l->table.count; i++) {
        double all = (double)less_ns(l->end[i], l->start[i]), cpu = fmin((double)MAX(l->cpu[i], 0), all);
        spread(working, span, l->start[i], l->end[i], cpu);
        spread(waiting, span, l->start[i], l->end[i], all - cpu);
    }
    put_row(out, process, "samples: threads on a processor", -1, "ns", working, more);
    put_row(out, process, "samples: threads waiting", -1, "ns", waiting, more);
}

/* The memory in use of an allocator on a device: the largest in each part, and the last one. */
struct pool {
    int64_t device;
    uint32_t allocator;
    double most[BINS], last[BINS];
    int64_t time[BINS];
};

static struct pool *pool_of(struct pool *pools, size_t *count, int64_t device, uint32_t allocator)
{
    for (size_t i = 0; i < *count; i++)
        if (pools[i].device == device && pools[i].allocator == allocator) return &pools[i];
    if (*count == MOST_POOLS) return NULL;
    struct pool *pool = &pools[(*count)++];
    *pool = (struct pool){.device = device, .allocator = allocator};
    forget_values(pool->most, NAN);
    for (size_t i = 0; i < BINS; i++) pool->time[i] = INT64_MIN;
    return pool;
}

static void put_memory(struct out *out, const struct process *process, const struct span *span, bool *more)
{
    const struct blocks *b = &process->blocks;
    struct pool *pools = mem_zero(MOST_POOLS, sizeof *pools);
    size_t count = 0;
    for (size_t i = 0; i < b->table.count; i++) {
        if (b->kind[i] != BLOCK_NONE || b->allocated[i] == TOTAL_UNKNOWN) continue;
        struct pool *pool = pool_of(pools, &count, b->device[i], b->allocator[i]);
        size_t bin = bin_of(span, b->time[i]);
        if (!pool) continue;
        pool->most[bin] = fmax(pool->most[bin], (double)b->allocated[i]); /* fmax ignores what is unknown */
        if (b->time[i] < pool->time[bin]) continue;
        pool->time[bin] = b->time[i];
        pool->last[bin] = (double)b->allocated[i];
    }
    for (size_t i = 0; i < count; i++) {
        double held = NAN; /* a total holds until it changes */
        for (size_t bin = 0; bin < BINS; bin++) {
            bool changed = pools[i].time[bin] != INT64_MIN;
            pools[i].most[bin] = changed ? fmax(pools[i].most[bin], held) : held;
            held = changed ? pools[i].last[bin] : held;
        }
        put_row(out, process, pools[i].device < 0 ? "memory of the host" : "memory of device ", pools[i].device,
                "bytes", pools[i].most, more);
    }
    free(pools);
}

static void put_clock(struct out *out, const struct process *process, uint32_t device, const struct span *span,
                      bool *more)
{
    double sum[BINS] = {0}, count[BINS] = {0};
    bool any = false;
    for (size_t i = 0; i < process->samples; i++) {
        const struct device_sample *s = &process->sample[i];
        if (s->device != device || !(s->known & TFI_SAMPLE_SM_CLOCK)) continue;
        sum[bin_of(span, s->time)] += s->sm_mhz;
        count[bin_of(span, s->time)]++;
        any = true;
    }
    for (size_t i = 0; i < BINS; i++) sum[i] = count[i] > 0 ? sum[i] / count[i] : NAN;
    if (any) put_row(out, process, "SM clock of device ", device, "MHz", sum, more);
}

bool bins_write(struct out *out, const struct process *process, int64_t from, int64_t to, bool more)
{
    const struct span span = {from, to};
    put_samples(out, process, &span, &more);
    put_memory(out, process, &span, &more);
    for (size_t i = 0; i < MIN(process->devices, (size_t)MOST_DEVICES); i++)
        put_clock(out, process, process->device[i].number, &span, &more);
    return more;
}
