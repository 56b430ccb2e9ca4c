/* peaks.c - finds the peaks of stages from records about stages, or from the changes of each pool.
 *
 * The largest total in a stretch of changes comes from a tree over them, so that nested stages cost a logarithm each.
 */
#include "ask/memory/peaks.h"

#include <stdlib.h>

#include "ask/stages/order.h"

enum { MOST_POOLS = 256 };

/* ---- rows ---- */

/* Totals of one call of a stage, or of the run. */
struct figures {
    uint64_t allocated_peak, reserved_peak, allocated, freed;
};

static uint64_t larger(uint64_t a, uint64_t b)
{
    if (a == TOTAL_UNKNOWN || b == TOTAL_UNKNOWN) return MIN(a, b);
    return MAX(a, b);
}

static void add(struct peak_rows *rows, uint32_t stage, const struct memory_pool *pool, struct figures f)
{
    uint64_t key = (uint64_t)stage << 32 | ((uint32_t)pool->device ^ (pool->allocator * 16 + pool->kind) * 0x9e3779b1u);
    uint32_t at = map_get(&rows->of, key);
    while (at != MAP_NONE && (rows->row[at].stage != stage || rows->row[at].device != pool->device ||
                              rows->row[at].allocator != pool->allocator || rows->row[at].kind != pool->kind))
        at = map_get(&rows->of, ++key);
    if (at == MAP_NONE) {
        rows->row = mem_grow(rows->row, &rows->capacity, rows->count + 1, sizeof *rows->row);
        at = (uint32_t)rows->count++;
        rows->row[at] = (struct peak_row){
            stage, pool->device, pool->allocator, pool->kind, 0, f.allocated_peak, f.reserved_peak, 0, 0};
        map_put(&rows->of, key, at);
    }
    struct peak_row *row = &rows->row[at];
    row->calls++;
    row->allocated_peak = larger(row->allocated_peak, f.allocated_peak);
    row->reserved_peak = larger(row->reserved_peak, f.reserved_peak);
    row->allocated += f.allocated;
    row->freed += f.freed;
}

/* ---- the changes of one pool ---- */

/* Changes of a pool by time. Node i of a tree has the larger of nodes 2i and 2i + 1; node count + i has change i. */
struct series {
    size_t count;
    int64_t *time;
    uint64_t *allocated, *reserved;      /* trees of 2 * count nodes */
    uint64_t *sum_allocated, *sum_freed; /* bytes of the first i changes */
};

static void series_init(struct series *s, const struct memory_changes *c, uint32_t pool, size_t count)
{
    *s = (struct series){.count = count,
                         .time = mem_zero(count, sizeof *s->time),
                         .allocated = mem_zero(2 * count, sizeof *s->allocated),
                         .reserved = mem_zero(2 * count, sizeof *s->reserved),
                         .sum_allocated = mem_zero(count + 1, sizeof *s->sum_allocated),
                         .sum_freed = mem_zero(count + 1, sizeof *s->sum_freed)};
    for (size_t i = 0, at = 0; i < c->count; i++) {
        const struct memory_change *change = &c->change[i];
        if (change->pool != pool) continue;
        bool frees = change->bytes < 0;
        s->time[at] = change->time;
        s->allocated[count + at] = change->allocated;
        s->reserved[count + at] = change->reserved;
        s->sum_allocated[at + 1] = s->sum_allocated[at] + (frees ? 0 : (uint64_t)change->bytes);
        s->sum_freed[at + 1] = s->sum_freed[at] + (frees ? 0 - (uint64_t)change->bytes : 0);
        at++;
    }
    for (size_t i = count; i-- > 1;) {
        s->allocated[i] = larger(s->allocated[2 * i], s->allocated[2 * i + 1]);
        s->reserved[i] = larger(s->reserved[2 * i], s->reserved[2 * i + 1]);
    }
}

static void series_free(struct series *s)
{
    void *arrays[] = {s->time, s->allocated, s->reserved, s->sum_allocated, s->sum_freed};
    for (size_t i = 0; i < ARRAY_SIZE(arrays); i++) free(arrays[i]);
}

/* Returns the number of changes before `time`. */
static size_t before(const struct series *s, int64_t time)
{
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->time[middle] < time) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Returns the largest total of the changes from `from` up to `to`, at least one. */
static uint64_t most(const struct series *s, const uint64_t *tree, size_t from, size_t to)
{
    uint64_t best = tree[s->count + from];
    for (from += s->count, to += s->count; from < to; from /= 2, to /= 2) {
        if (from & 1) best = larger(best, tree[from++]);
        if (to & 1) best = larger(best, tree[--to]);
    }
    return best;
}

/* Figures of the time from `start` to `end`, both included. Returns false if nothing changed in it. */
static bool figures_of(const struct series *s, int64_t start, int64_t end, struct figures *f)
{
    size_t from = before(s, start), to = before(s, add_ns(end, 1)), first = from ? from - 1 : from;
    if (from == to) return false;
    *f = (struct figures){most(s, s->allocated, first, to), most(s, s->reserved, first, to),
                          s->sum_allocated[to] - s->sum_allocated[from], s->sum_freed[to] - s->sum_freed[from]};
    return true;
}

/* ---- from changes ---- */

static void add_pool(struct peak_rows *rows, const struct choice *choice, const struct selection *chosen,
                     const struct memory_changes *changes, uint32_t pool, size_t count, bool by_stage)
{
    const struct ranges *r = &choice->process->ranges;
    const struct memory_pool *of = &changes->pool[pool];
    struct series series;
    struct figures figures;
    series_init(&series, changes, pool, count);
    if (choice->outside_wanted && figures_of(&series, choice->window.from, choice->window.to, &figures))
        add(rows, NAME_RUN, of, figures);
    for (size_t i = 0; by_stage && i < r->table.count; i++)
        if (is_stage(r, i) && selection_wants(chosen, r->name[i]) && choice_stage(choice, i) &&
            figures_of(&series, r->start[i], r->end[i], &figures))
            add(rows, r->name[i], of, figures);
    series_free(&series);
}

/* ---- from records about stages ---- */

static void add_recorded(struct peak_rows *rows, const struct choice *choice, const struct selection *chosen,
                         uint32_t allocator)
{
    const struct process *p = choice->process;
    struct map ranges = {0};
    ranges_by_id(&ranges, p);
    for (size_t i = 0; i < p->stage_memories; i++) {
        const struct stage_memory *m = &p->stage_memory[i];
        uint32_t range = map_get(&ranges, m->range);
        const struct memory_pool pool = {.device = m->device, .allocator = allocator};
        bool is_host = m->device == DEVICE_HOST;
        if (range == MAP_NONE || !(p->ranges.flags[range] & TFI_RANGE_STAGE) || !choice_stage(choice, range) ||
            !selection_wants(chosen, p->ranges.name[range]) || !list_has(&choice->options->device, m->device))
            continue;
        add(rows, p->ranges.name[range], &pool,
            (struct figures){m->allocated_peak, is_host ? TOTAL_UNKNOWN : m->reserved_peak, m->allocated, m->freed});
    }
    map_free(&ranges);
}

static int by_peak(const void *a, const void *b)
{
    const struct peak_row *x = a, *y = b;
    if ((x->stage == NAME_RUN) != (y->stage == NAME_RUN)) return x->stage == NAME_RUN ? -1 : 1;
    if (x->allocated_peak != y->allocated_peak) return x->allocated_peak > y->allocated_peak ? -1 : 1;
    if (x->stage != y->stage) return x->stage < y->stage ? -1 : 1;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->allocator != y->allocator) return x->allocator < y->allocator ? -1 : 1;
    return by_number(x->kind, y->kind);
}

void memory_peaks(struct peak_rows *rows, const struct choice *choice, const struct selection *chosen,
                  const struct memory_changes *changes, uint32_t allocator)
{
    *rows = (struct peak_rows){.is_partial = changes->pools > MOST_POOLS};
    size_t *count = mem_zero(changes->pools, sizeof *count);
    bool recorded = choice->process->stage_memories != 0;
    for (size_t i = 0; i < changes->count; i++) count[changes->change[i].pool]++;
    for (size_t i = 0; i < MIN(changes->pools, (size_t)MOST_POOLS); i++) {
        bool wanted = list_has(&choice->options->device, changes->pool[i].device);
        if (count[i] && wanted)
            add_pool(rows, choice, chosen, changes, (uint32_t)i, count[i],
                     changes->pool[i].allocator != allocator || !recorded);
    }
    if (recorded) add_recorded(rows, choice, chosen, allocator);
    if (rows->count) qsort(rows->row, rows->count, sizeof *rows->row, by_peak);
    free(count);
}

void memory_peaks_of_kinds(struct peak_rows *rows, const struct choice *choice, const struct selection *chosen,
                           const struct memory_changes *changes, uint32_t allocator)
{
    size_t *count = mem_zero(changes->pools, sizeof *count);
    for (size_t i = 0; i < changes->count; i++) count[changes->change[i].pool]++;
    for (size_t i = 0; i < changes->pools; i++) {
        const struct memory_pool *pool = &changes->pool[i];
        if (count[i] && pool->kind != BLOCK_NONE && pool->allocator == allocator &&
            list_has(&choice->options->device, pool->device))
            add_pool(rows, choice, chosen, changes, (uint32_t)i, count[i], true);
    }
    if (rows->count) qsort(rows->row, rows->count, sizeof *rows->row, by_peak);
    free(count);
}

void memory_peaks_free(struct peak_rows *rows)
{
    free(rows->row);
    map_free(&rows->of);
    *rows = (struct peak_rows){0};
}
