/* walls.c - unites the summaries of processes by rank, and gives each moment of a rank's time to one leaf. */
#include <stdlib.h>

#include "advise/budget/wall.h"
#include "base/sets/measure.h"

const struct leaf_row leaf_rows[NR_LEAVES] = {
#define LEAF(id, on_device, on_host, command, host_command, meaning)                                                   \
    [LEAF_##id] = {{on_host, on_device}, {host_command, command}},
#include "advise/budget/leaves.def"
};

static const enum leaf order_on_device[] = {
#define BESIDE_DEVICE(leaf) LEAF_##leaf,
#include "advise/budget/leaves.def"
};

static const enum leaf order_on_host[] = {
#define HOST_ALONE(leaf) LEAF_##leaf,
#include "advise/budget/leaves.def"
};

static void unite_sets(struct intervals *a, struct intervals *b)
{
    struct intervals both = intervals_union(a, b);
    intervals_free(a);
    intervals_free(b);
    *a = both;
}

/* ---- windows ---- */

static int by_part(const void *a, const void *b)
{
    const struct wall_part *x = a, *y = b;
    return x->stage != y->stage ? by_number(x->stage, y->stage) : by_number(x->step, y->step);
}

/* Adds the windows of `b`, which are then empty. */
static void unite_parts(struct wall *a, struct wall *b)
{
    a->part = mem_grow(a->part, &a->part_capacity, a->parts + b->parts, sizeof *a->part);
    for (size_t i = 0; i < b->parts; i++) a->part[a->parts++] = b->part[i];
    b->parts = 0;
    if (a->parts) qsort(a->part, a->parts, sizeof *a->part, by_part);
    size_t kept = 0;
    for (size_t i = 0; i < a->parts; i++) {
        if (!kept || by_part(&a->part[kept - 1], &a->part[i])) {
            a->part[kept++] = a->part[i];
            continue;
        }
        struct wall_part *to = &a->part[kept - 1];
        struct intervals *window = &a->part[i].window;
        for (size_t k = 0; k < window->count; k++)
            intervals_add_merging(&to->window, window->interval[k].start, window->interval[k].end);
        to->unknown |= a->part[i].unknown;
        intervals_free(window);
    }
    a->parts = kept;
}

/* Adds the part that is all parts together. */
static void add_all_parts(struct wall *wall)
{
    struct wall_part all = {.stage = wall->parts == 1 ? wall->part[0].stage : NAME_NONE, .step = NO_PLACE};
    for (size_t i = 0; i < wall->parts; i++) {
        const struct wall_part *part = &wall->part[i];
        all.unknown |= part->unknown;
        for (size_t k = 0; k < part->window.count; k++)
            intervals_add_merging(&all.window, part->window.interval[k].start, part->window.interval[k].end);
    }
    intervals_merge(&all.window);
    wall->part = mem_grow(wall->part, &wall->part_capacity, wall->parts + 1, sizeof *wall->part);
    wall->part[wall->parts] = all;
    wall->has_all = true;
}

const struct wall_part *wall_judged(const struct wall *wall)
{
    const struct wall_part *part = wall->has_all ? &wall->part[wall->parts] : NULL;
    return part && !part->unknown && part->total > 0 ? part : NULL;
}

static void finish_windows(struct wall *wall)
{
    for (size_t i = 0; i < wall->parts; i++) {
        struct wall_part *part = &wall->part[i];
        bool is_whole = part->stage == NAME_NONE;
        if (is_whole && wall->first < wall->last) intervals_add(&part->window, wall->first, wall->last);
        intervals_merge(&part->window);
    }
}

/* ---- ranks ---- */

static int walls_by_rank(const void *a, const void *b)
{
    const struct wall *x = a, *y = b;
    return by_number(x->rank, y->rank);
}

/* Moves the work of `b` into `a`. The host's time of a process that only serves others is left out. */
static void unite_walls(struct wall *a, struct wall *b, bool of_host)
{
    for (int leaf = 0; leaf < NR_LEAVES; leaf++)
        if (of_host) unite_sets(&a->happens[leaf], &b->happens[leaf]);
    a->works += b->works;
    a->waits |= b->waits;
    a->first = MIN(a->first, b->first);
    a->last = MAX(a->last, b->last);
    unite_parts(a, b);
    wall_free(b);
}

/* Beside device work the time of operators is time of launching. */
static void operators_launch(struct wall *wall)
{
    for (int leaf = LEAF_MATRIX; leaf <= LEAF_OTHER; leaf++)
        unite_sets(&wall->happens[LEAF_LAUNCH], &wall->happens[leaf]);
}

/* Unites the `count` processes of one rank. */
static struct wall unite_rank(struct wall *of, size_t count)
{
    struct wall all = {.rank = of->rank, .first = INT64_MAX, .last = INT64_MIN};
    bool leads = false, device = false;
    for (size_t i = 0; i < count; i++) {
        leads |= of[i].works || of[i].waits;
        device |= of[i].works > 0;
    }
    for (size_t i = 0; i < count; i++)
        if (device && !of[i].works) operators_launch(&of[i]);
    for (size_t i = 0; i < count; i++) unite_walls(&all, &of[i], !leads || of[i].works || of[i].waits);
    finish_windows(&all);
    return all;
}

/* ---- leaves ---- */

/* Sets what samples need not explain: the moments above Python, and those of calls on files in which nothing runs Python. */
static void explain(struct wall *wall, const struct intervals *above)
{
    const struct intervals *python = &wall->happens[LEAF_PYTHON];
    if (!python->count && !wall->happens[LEAF_SYSTEM].count) return;
    struct intervals files = intervals_without(&wall->happens[LEAF_FILE_IO], python);
    wall->explained = intervals_union(above, &files);
    intervals_free(&files);
}

/* Gives each moment to the first leaf, in their order, that has it: a leaf gets what it adds to the union of those before. */
static void divide(struct wall *wall)
{
    bool device = wall->works > 0;
    const enum leaf *order = device ? order_on_device : order_on_host;
    size_t count = device ? ARRAY_SIZE(order_on_device) : ARRAY_SIZE(order_on_host);
    struct intervals all = {0};
    struct measure measure;
    const struct intervals none = {0};
    wall->loading = intervals_union(&wall->happens[LEAF_LOADER], &none);
    for (size_t i = 0; i < wall->parts + wall->has_all; i++)
        wall->part[i].total = wall->part[i].time[LEAF_UNKNOWN] = intervals_total(&wall->part[i].window);
    for (size_t n = 0; n < count; n++) {
        if (order[n] == LEAF_PYTHON) explain(wall, &all);
        unite_sets(&all, &wall->happens[order[n]]);
        measure_init(&measure, &all);
        for (size_t i = 0; i < wall->parts + wall->has_all; i++) {
            struct wall_part *part = &wall->part[i];
            int64_t left = part->total - measure_overlap(&measure, &part->window);
            part->time[order[n]] = part->time[LEAF_UNKNOWN] - left;
            part->time[LEAF_UNKNOWN] = left;
        }
        measure_free(&measure);
    }
    intervals_free(&all);
}

/* Times of a rank's parts come in the order of the names, then of the steps. */
static int parts_by_text(const void *a, const void *b, void *context)
{
    const struct wall_part *x = a, *y = b;
    int order = x->stage == y->stage ? 0 : names_order(context, x->stage, y->stage);
    return order ? order : by_number(x->step, y->step);
}

void walls_collect(struct walls *walls, const struct selection *chosen, void *const *taken)
{
    size_t count = chosen->processes, kept = 0;
    struct wall *wall = mem_zero(count, sizeof *wall);
    *walls = (struct walls){.wall = wall};
    for (size_t i = 0; i < count; i++) {
        struct wall *of_process = taken[i];
        wall[i] = *of_process;
        *of_process = (struct wall){.rank = of_process->rank};
    }
    if (count) qsort(wall, count, sizeof *wall, walls_by_rank);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && wall[end].rank == wall[first].rank;) end++;
        struct wall all = unite_rank(&wall[first], end - first);
        add_all_parts(&all);
        if (all.parts) qsort_r(all.part, all.parts, sizeof *all.part, parts_by_text, &chosen->model->names);
        divide(&all);
        for (size_t i = 0; i < all.parts; i++) walls->unknown |= all.part[i].unknown;
        wall[kept++] = all;
    }
    walls->count = kept;
}

void walls_free(struct walls *walls)
{
    for (size_t i = 0; i < walls->count; i++) wall_free(&walls->wall[i]);
    free(walls->wall);
    *walls = (struct walls){0};
}
