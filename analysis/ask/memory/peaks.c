/* peaks.c - finds the peaks of stages from records about stages, or from the changes of each pool.
 *
 * No stage begins or ends inside a stretch, so what a pool did in one is held as a whole: memory grows with the stages, not
 * with the changes. The largest total of several stretches comes from a tree over them, so that nested stages cost a
 * logarithm each.
 */
#include "ask/memory/peaks.h"

#include <stdlib.h>
#include <string.h>

#include "ask/stages/order.h"

enum { MOST_POOLS = 256 };

/* ---- rows ---- */

/* Totals of one call of a stage, of a piece of one, or of the run. */
struct figures {
    uint64_t allocated_peak, reserved_peak, allocated, freed;
};

static uint64_t larger(uint64_t a, uint64_t b)
{
    if (a == TOTAL_UNKNOWN || b == TOTAL_UNKNOWN) return MIN(a, b);
    return MAX(a, b);
}

/* Returns the row of a stage. A new one has no call yet. */
static struct peak_row *row_of(struct peak_rows *rows, uint32_t stage, const struct memory_pool *pool)
{
    uint64_t key = (uint64_t)stage << 32 | ((uint32_t)pool->device ^ (pool->allocator * 16 + pool->kind) * 0x9e3779b1u);
    uint32_t at = map_get(&rows->of, key);
    while (at != MAP_NONE && (rows->row[at].stage != stage || rows->row[at].device != pool->device ||
                              rows->row[at].allocator != pool->allocator || rows->row[at].kind != pool->kind))
        at = map_get(&rows->of, ++key);
    if (at == MAP_NONE) {
        rows->row = mem_grow(rows->row, &rows->capacity, rows->count + 1, sizeof *rows->row);
        at = (uint32_t)rows->count++;
        rows->row[at] =
            (struct peak_row){stage, pool->device, pool->allocator, pool->kind, 0, TOTAL_UNKNOWN, TOTAL_UNKNOWN, 0, 0};
        map_put(&rows->of, key, at);
    }
    return &rows->row[at];
}

/* `calls`: 0 for a piece of a call that is counted already. */
static void add_figures(struct peak_row *row, struct figures f, unsigned calls)
{
    row->calls += calls;
    row->allocated_peak = larger(row->allocated_peak, f.allocated_peak);
    row->reserved_peak = larger(row->reserved_peak, f.reserved_peak);
    row->allocated += f.allocated;
    row->freed += f.freed;
}

/* ---- stretches ---- */

/* Moments between which no stage begins or ends. */
struct edges {
    int64_t *time;
    size_t count, capacity, next;
};

static void edges_add(struct edges *edges, int64_t start, int64_t end)
{
    edges->time = mem_grow(edges->time, &edges->capacity, edges->count + 2, sizeof *edges->time);
    edges->time[edges->count++] = start;
    edges->time[edges->count++] = add_ns(end, 1);
}

static int times_in_order(const void *a, const void *b)
{
    return by_number(*(const int64_t *)a, *(const int64_t *)b);
}

/* Returns the number of the stretch with that moment, which is not before the last one. */
static size_t stretch_at(struct edges *edges, int64_t time)
{
    while (edges->next < edges->count && edges->time[edges->next] <= time) edges->next++;
    return edges->next;
}

/* The changes of a pool in one stretch. */
struct stretch {
    int64_t time; /* of the first one */
    size_t number;
    uint64_t most_allocated, most_reserved, last_allocated, last_reserved;
    uint64_t sum_allocated, sum_freed; /* bytes, from the pool's first change on */
};

/* The stretches of a pool, by time. Node i of a tree has the larger of nodes 2i and 2i + 1; node count + i has stretch
 * i. */
struct series {
    enum { NOT_SEEN, LEFT_OUT, OF_RUN, OF_STAGES } use;
    struct stretch *stretch;
    size_t count, capacity;
    uint64_t *allocated, *reserved; /* trees of 2 * count nodes */
};

static void series_take(struct series *s, const struct memory_change *change, size_t number)
{
    const struct stretch *before = s->count ? &s->stretch[s->count - 1] : NULL;
    bool frees = change->bytes < 0;
    if (!before || before->number != number) {
        struct stretch fresh = {change->time,
                                number,
                                change->allocated,
                                change->reserved,
                                0,
                                0,
                                before ? before->sum_allocated : 0,
                                before ? before->sum_freed : 0};
        s->stretch = mem_grow(s->stretch, &s->capacity, s->count + 1, sizeof *s->stretch);
        s->stretch[s->count++] = fresh;
    }
    struct stretch *of = &s->stretch[s->count - 1];
    of->most_allocated = larger(of->most_allocated, change->allocated);
    of->most_reserved = larger(of->most_reserved, change->reserved);
    of->last_allocated = change->allocated;
    of->last_reserved = change->reserved;
    of->sum_allocated += frees ? 0 : (uint64_t)change->bytes;
    of->sum_freed += frees ? 0 - (uint64_t)change->bytes : 0;
}

static void series_end(struct series *s)
{
    s->allocated = mem_zero(2 * s->count, sizeof *s->allocated);
    s->reserved = mem_zero(2 * s->count, sizeof *s->reserved);
    for (size_t i = 0; i < s->count; i++) {
        s->allocated[s->count + i] = s->stretch[i].most_allocated;
        s->reserved[s->count + i] = s->stretch[i].most_reserved;
    }
    for (size_t i = s->count; i-- > 1;) {
        s->allocated[i] = larger(s->allocated[2 * i], s->allocated[2 * i + 1]);
        s->reserved[i] = larger(s->reserved[2 * i], s->reserved[2 * i + 1]);
    }
}

static void series_free(struct series *s)
{
    free(s->stretch);
    free(s->allocated);
    free(s->reserved);
}

/* Returns the number of stretches before `time`, an edge. */
static size_t before(const struct series *s, int64_t time)
{
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->stretch[middle].time < time) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Returns the largest total of the stretches from `from` up to `to`, at least one. */
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
    size_t from = before(s, start), to = before(s, add_ns(end, 1));
    if (from >= to) return false;
    const struct stretch none = {.last_allocated = TOTAL_UNKNOWN, .last_reserved = TOTAL_UNKNOWN};
    const struct stretch *earlier = from ? &s->stretch[from - 1] : &none, *last = &s->stretch[to - 1];
    *f = (struct figures){larger(most(s, s->allocated, from, to), earlier->last_allocated),
                          larger(most(s, s->reserved, from, to), earlier->last_reserved),
                          last->sum_allocated - earlier->sum_allocated, last->sum_freed - earlier->sum_freed};
    return true;
}

/* ---- from changes ---- */

/* The question, and what each pool did. */
struct following {
    struct peak_rows *rows;
    const struct choice *choice;
    const struct selection *chosen;
    uint32_t allocator; /* the name of torch's, or by kind the one that is asked for */
    bool by_kind, recorded;
    struct edges of_run, of_stages;
    struct series *series; /* by pool */
    size_t pools, capacity;
};

static bool is_asked(const struct following *f, size_t range)
{
    const struct ranges *r = &f->choice->process->ranges;
    return is_stage(r, range) && selection_wants(f->chosen, r->name[range]) && choice_stage(f->choice, range);
}

static void find_edges(struct following *f)
{
    const struct ranges *r = &f->choice->process->ranges;
    const struct window *window = &f->choice->window;
    edges_add(&f->of_run, window->from, window->to);
    edges_add(&f->of_stages, window->from, window->to);
    for (size_t i = 0; i < r->table.count; i++)
        if (is_asked(f, i)) edges_add(&f->of_stages, r->start[i], r->end[i]);
    qsort(f->of_run.time, f->of_run.count, sizeof *f->of_run.time, times_in_order);
    qsort(f->of_stages.time, f->of_stages.count, sizeof *f->of_stages.time, times_in_order);
}

static int use_of(const struct following *f, size_t number, const struct memory_pool *pool)
{
    if (!list_has(&f->choice->options->device, pool->device)) return LEFT_OUT;
    if (f->by_kind) return pool->kind != BLOCK_NONE && pool->allocator == f->allocator ? OF_STAGES : LEFT_OUT;
    if (number >= MOST_POOLS) return LEFT_OUT;
    return pool->allocator != f->allocator || !f->recorded ? OF_STAGES : OF_RUN;
}

static void take_change(struct following *f, const struct memory_walk *changes, const struct memory_change *change)
{
    if (changes->pools > f->pools) {
        f->series = mem_grow(f->series, &f->capacity, changes->pools, sizeof *f->series);
        memset(f->series + f->pools, 0, (changes->pools - f->pools) * sizeof *f->series);
        f->pools = changes->pools;
    }
    struct series *s = &f->series[change->pool];
    if (s->use == NOT_SEEN) s->use = use_of(f, change->pool, &changes->pool[change->pool]);
    if (s->use == OF_RUN) series_take(s, change, stretch_at(&f->of_run, change->time));
    if (s->use == OF_STAGES) series_take(s, change, stretch_at(&f->of_stages, change->time));
}

/* Returns 0 for a piece of a call of which another piece is counted already, else 1. Later pieces of a call come behind
 * its first one. */
static unsigned calls_of(const struct process *process, size_t range, struct map *counted)
{
    if (!process->wholes.table.count) return 1;
    bool is_new = map_get(counted, process->ranges.id[range]) == MAP_NONE;
    map_put(counted, process->ranges.id[range], 1);
    return is_new || !(process->ranges.flags[range] & RANGE_CONTINUED);
}

/* A step or a cycle is a part of the run, which then has no row. */
static bool has_run(const struct choice *choice)
{
    return choice->outside_wanted && !choice->by_step && !choice->by_cycle;
}

static void add_pool(struct following *f, struct series *s, const struct memory_pool *pool)
{
    const struct choice *choice = f->choice;
    const struct ranges *r = &choice->process->ranges;
    struct map counted = {0}; /* calls, by their id */
    struct figures figures;
    if (!s->count) return;
    series_end(s);
    if (has_run(choice) && figures_of(s, choice->window.from, choice->window.to, &figures))
        add_figures(row_of(f->rows, NAME_RUN, pool), figures, 1);
    for (size_t i = 0; s->use == OF_STAGES && i < r->table.count; i++)
        if (is_asked(f, i) && figures_of(s, r->start[i], r->end[i], &figures))
            add_figures(row_of(f->rows, r->name[i], pool), figures, calls_of(choice->process, i, &counted));
    map_free(&counted);
}

/* Returns the number of pools. */
static size_t add_pools(struct following *f, struct memory_reading *reading)
{
    struct memory_walk changes;
    const struct memory_change *change;
    find_edges(f);
    memory_walk_init(&changes, reading);
    while ((change = memory_walk_next(&changes)) != NULL) take_change(f, &changes, change);
    for (size_t i = 0; i < f->pools; i++) {
        add_pool(f, &f->series[i], &changes.pool[i]);
        series_free(&f->series[i]);
    }
    size_t pools = changes.pools;
    memory_walk_free(&changes);
    free(f->series);
    free(f->of_run.time);
    free(f->of_stages.time);
    return pools;
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
        add_figures(
            row_of(rows, p->ranges.name[range], &pool),
            (struct figures){m->allocated_peak, is_host ? TOTAL_UNKNOWN : m->reserved_peak, m->allocated, m->freed}, 1);
    }
    map_free(&ranges);
}

static int by_peak(const void *a, const void *b, void *names)
{
    const struct peak_row *x = a, *y = b;
    if ((x->stage == NAME_RUN) != (y->stage == NAME_RUN)) return x->stage == NAME_RUN ? -1 : 1;
    if (x->allocated_peak != y->allocated_peak) return x->allocated_peak > y->allocated_peak ? -1 : 1;
    if (x->stage != y->stage) return names_order(names, x->stage, y->stage);
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->allocator != y->allocator) return names_order(names, x->allocator, y->allocator);
    return by_number(x->kind, y->kind);
}

static void sort(struct peak_rows *rows, const struct memory_reading *reading)
{
    if (rows->count) qsort_r(rows->row, rows->count, sizeof *rows->row, by_peak, reading->names);
}

void memory_peaks(struct peak_rows *rows, const struct choice *choice, const struct selection *chosen,
                  struct memory_reading *reading, uint32_t allocator)
{
    bool recorded = choice->process->stage_memories != 0;
    struct following f = {
        .rows = rows, .choice = choice, .chosen = chosen, .allocator = allocator, .recorded = recorded};
    *rows = (struct peak_rows){0};
    rows->is_partial = add_pools(&f, reading) > MOST_POOLS;
    if (recorded) add_recorded(rows, choice, chosen, allocator);
    sort(rows, reading);
}

void memory_peaks_of_kinds(struct peak_rows *rows, const struct choice *choice, const struct selection *chosen,
                           struct memory_reading *reading, uint32_t allocator)
{
    struct following f = {.rows = rows, .choice = choice, .chosen = chosen, .allocator = allocator, .by_kind = true};
    add_pools(&f, reading);
    sort(rows, reading);
}

void memory_peaks_free(struct peak_rows *rows)
{
    free(rows->row);
    map_free(&rows->of);
    *rows = (struct peak_rows){0};
}
