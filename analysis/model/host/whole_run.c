/* whole_run.c - loads what a trace of TFI_MODE=flight knows of the whole run. Rows of a later moment replace all earlier ones. */
#include "model/host/whole_run.h"

#include <math.h>
#include <stdlib.h>

#include "model/load/load.h"
#include "sketch.h"

static struct whole_run *run_of(struct load *load)
{
    struct ring *ring = &load->process->ring;
    if (!ring->whole) ring->whole = mem_zero(1, sizeof *ring->whole);
    return ring->whole;
}

/* Returns true if rows of the moment `at` belong to the newest ones; `newer` if they are the first of them. */
static bool is_newest(uint64_t at, uint64_t *known, bool *newer)
{
    *newer = at > *known;
    if (at < *known) return false;
    *known = at;
    return true;
}

static int64_t limited(uint64_t value)
{
    return (int64_t)MIN(value, (uint64_t)INT64_MAX);
}

/* Takes the buckets that are in their order and exist. */
static void take_buckets(struct whole_sum *sum, const uint64_t *bucket, size_t count)
{
    sum->bucket = mem_zero(count, sizeof *sum->bucket);
    for (size_t i = 0; i < count; i++) {
        uint64_t number = bucket[i] >> TFI_AGGREGATE_COUNT_BITS;
        bool good = number < TFI_BUCKETS && (!i || bucket[i] > bucket[i - 1]);
        sum->has_quantiles &= good;
        if (good) sum->bucket[sum->buckets++] = bucket[i];
    }
}

void load_aggregates(struct load *load)
{
    const uint32_t *first = NULL;
    bool newer;
    const uint64_t *name = load_column(load, COL_aggregate_name), *time = load_column(load, COL_aggregate_time);
    const uint64_t *what = load_column(load, COL_aggregate_what), *count = load_column(load, COL_aggregate_count);
    const uint64_t *sum = load_column(load, COL_aggregate_sum), *again = load_column(load, COL_aggregate_again);
    const uint64_t *least = load_column(load, COL_aggregate_least), *most = load_column(load, COL_aggregate_most);
    const uint64_t *unplaced = load_column(load, COL_aggregate_unplaced);
    int buckets = load->group->kind->own[COL_aggregate_buckets];
    const uint64_t *bucket = buckets < 0 ? NULL : group_list(&load->reader.decoder, load->group, buckets, &first);
    struct whole_run *run = run_of(load);
    for (uint32_t i = 0; bucket && i < load_rows(load); i++) {
        if (!is_newest(time[i], &run->sums_at, &newer)) continue;
        if (newer) whole_sums_free(run);
        run->sum = mem_grow(run->sum, &run->sum_capacity, run->sums + 1, sizeof *run->sum);
        struct whole_sum *to = &run->sum[run->sums++];
        *to = (struct whole_sum){.what = (uint32_t)what[i],
                                 .name = name[i] ? load_name(load, name[i]) : NAME_NONE,
                                 .count = count[i],
                                 .sum = limited(sum[i]),
                                 .again = limited(MIN(again[i], sum[i])),
                                 .least = limited(least[i]),
                                 .most = limited(most[i]),
                                 .has_quantiles = !unplaced[i]};
        take_buckets(to, bucket + first[i], first[i + 1] - first[i]);
    }
}

void load_kept(struct load *load)
{
    bool newer;
    const uint64_t *cause = load_column(load, COL_kept_cause), *time = load_column(load, COL_kept_time);
    const uint64_t *name = load_column(load, COL_kept_name), *flags = load_column(load, COL_kept_flags);
    const uint64_t *from = load_column(load, COL_kept_from), *start = load_column(load, COL_kept_start);
    const uint64_t *end = load_column(load, COL_kept_end), *usual = load_column(load, COL_kept_usual);
    struct whole_run *run = run_of(load);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        if (!is_newest(time[i], &run->moments_at, &newer)) continue;
        if (newer) run->moments = 0, run->left_out = 0;
        if (!cause[i]) {
            run->left_out = usual[i];
            continue;
        }
        run->moment = mem_grow(run->moment, &run->moment_capacity, run->moments + 1, sizeof *run->moment);
        run->moment[run->moments++] = (struct whole_moment){.cause = (uint32_t)cause[i],
                                                            .name = name[i] ? load_name(load, name[i]) : NAME_NONE,
                                                            .is_cut = flags[i] & TFI_KEPT_CUT,
                                                            .from = limited(from[i]),
                                                            .start = limited(start[i]),
                                                            .end = limited(end[i]),
                                                            .usual = limited(usual[i])};
    }
}

static int64_t scaled(double ticks, double scale)
{
    double ns = ticks * scale;
    return ns < 9e18 ? (int64_t)llround(ns) : INT64_MAX;
}

static int by_end(const void *a, const void *b)
{
    const struct whole_moment *x = a, *y = b;
    return by_number(x->end, y->end);
}

static void convert(struct process *p, struct whole_run *run)
{
    double scale = p->clock.has_rate && !p->clock.is_nanoseconds ? p->clock.rate : 1;
    run->until = clock_ns(&p->clock, run->sums_at);
    for (size_t i = 0; i < run->sums; i++) {
        struct whole_sum *s = &run->sum[i];
        s->scale = s->what == TFI_AGGREGATE_KERNEL ? 1 : scale;
        if (s->what == TFI_AGGREGATE_KERNEL) continue;
        s->sum = scaled((double)s->sum, scale);
        s->again = scaled((double)s->again, scale);
        s->least = scaled((double)s->least, scale);
        s->most = scaled((double)s->most, scale);
    }
    for (size_t i = 0; i < run->moments; i++) {
        struct whole_moment *m = &run->moment[i];
        m->from = m->from ? clock_ns(&p->clock, (uint64_t)m->from) : 0;
        m->start = clock_ns(&p->clock, (uint64_t)m->start);
        m->end = clock_ns(&p->clock, (uint64_t)m->end);
        m->usual = scaled((double)m->usual, scale);
    }
    if (run->moments) qsort(run->moment, run->moments, sizeof *run->moment, by_end);
}

void whole_run_end(struct process *p, struct notes *notes)
{
    struct ring *ring = &p->ring;
    size_t moments = ring->whole ? ring->whole->moments : 0;
    if (ring->whole) convert(p, ring->whole);
    if (!ring->chunks) return;
    ring->since = (uint64_t)MAX(clock_ns(&p->clock, ring->since), 0);
    notes_add(notes, NOTE,
              "TFI_MODE=flight: the records cover the last %.3f s%s; %llu records before were left out to stay within "
              "TFI_FLIGHT_MB and TFI_FLIGHT_S",
              (double)(clock_ns(&p->clock, (uint64_t)p->last) - (int64_t)ring->since) / 1e9,
              moments ? ", and the earlier moments that `tfanalyze info` lists" : "",
              (unsigned long long)ring->records);
}
