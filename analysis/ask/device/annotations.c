/* annotations.c - adds up kernels by the stack of annotations they were launched in.
 *
 * The stack of an annotation is that of the moment it was opened on its thread. Annotations may nest a hundred thousand
 * deep, so a stack is a path of links: equal stacks are the same path, and a longer one shares its beginning.
 */
#include "ask/device/annotations.h"

#include <stdlib.h>

#include "ask/choice.h"
#include "ask/stages/order.h"
#include "base/hash.h"
#include "base/sets/by_rank.h"

struct adding {
    struct annotation_rows *rows;
    struct by_rank place; /* index of a row, by rank and path */
};

/* ---- paths ---- */

static uint32_t path_of(struct annotation_paths *paths, uint32_t parent, uint32_t name, bool is_outside)
{
    uint64_t key = hash_numbers((uint64_t)parent << 1 | is_outside, name);
    uint32_t place;
    for (; (place = map_get(&paths->place, key)) != MAP_NONE; key += 0x9e3779b97f4a7c15u) {
        const struct annotation_path *path = &paths->path[place];
        if (path->parent == parent && path->name == name && path->is_outside == is_outside) return place;
    }
    paths->path = mem_grow(paths->path, &paths->capacity, paths->count + 1, sizeof *paths->path);
    paths->path[paths->count] = (struct annotation_path){name, parent, is_outside};
    map_put(&paths->place, key, (uint32_t)paths->count);
    return (uint32_t)paths->count++;
}

/* Returns the path of each range of a process; the caller frees it. A later piece of a range has the path that it would
 * have if it was opened there, until `join_pieces`. */
static uint32_t *paths_of_ranges(struct annotation_paths *paths, const struct attribution *a)
{
    const struct ranges *r = &a->process->ranges;
    uint32_t *path = no_places(r->table.count);
    for (size_t i = 0; i < a->stages; i++) { /* the outer ones come first */
        size_t range = a->order[i];
        uint32_t outer = a->paths.outer[range];
        path[range] = path_of(paths, outer == NO_PLACE ? NO_PLACE : path[outer], r->name[range], false);
    }
    return path;
}

/* Gives the pieces of a range that left its thread the path of the first piece. */
static void join_pieces(uint32_t *path, const struct process *process)
{
    const struct ranges *r = &process->ranges;
    struct map first = {0};
    bool has_pieces = false;
    for (size_t i = 0; i < r->table.count; i++) has_pieces |= (r->flags[i] & RANGE_CONTINUED) != 0;
    if (!has_pieces) return;
    ranges_by_id(&first, process);
    for (size_t i = 0; i < r->table.count; i++) {
        uint32_t whole = r->flags[i] & RANGE_CONTINUED ? map_get(&first, r->id[i]) : MAP_NONE;
        if (whole != MAP_NONE && path[whole] != NO_PLACE) path[i] = path[whole];
    }
    map_free(&first);
}

/* ---- rows ---- */

static struct annotation_row *row_of(struct adding *a, int64_t rank, uint32_t path)
{
    struct annotation_rows *rows = a->rows;
    struct map *places = by_rank_map(&a->place, rank);
    uint32_t place = map_get(places, path);
    if (place == MAP_NONE) {
        place = (uint32_t)rows->count;
        map_put(places, path, place);
        rows->row = mem_grow(rows->row, &rows->capacity, rows->count + 1, sizeof *rows->row);
        rows->row[rows->count++] = (struct annotation_row){.rank = rank, .path = path};
    }
    return &rows->row[place];
}

static void add_process(struct adding *a, const struct selection *chosen, const struct process *process)
{
    const struct works *w = &process->works;
    struct attribution attribution;
    struct choice choice;
    struct interval when;
    attribute(&attribution, process, 0);
    choice_init(&choice, chosen, process, &attribution);
    uint32_t *path = paths_of_ranges(&a->rows->paths, &attribution);
    join_pieces(path, process);
    for (size_t i = 0; i < w->table.count; i++) {
        const struct belonging *at = &attribution.work[i];
        if (!choice_work(&choice, i, &when) || !choice_in_stage(&choice, at)) continue;
        uint32_t of =
            at->stage == NO_PLACE ? path_of(&a->rows->paths, NO_PLACE, choice.outside, true) : path[at->stage];
        struct annotation_row *row = row_of(a, process->rank, of);
        bool is_kernel = w->event_class[i] == CLASS_KERNEL;
        row->kernels += is_kernel;
        row->copies += !is_kernel;
        int64_t *sum = is_kernel ? &row->kernel_time : &row->copy_time;
        *sum = add_ns(*sum, when.end - when.start);
        a->rows->works++;
    }
    free(path);
    choice_free(&choice);
    attribution_free(&attribution);
}

static int by_rank_and_time(const void *a, const void *b)
{
    const struct annotation_row *x = a, *y = b;
    return x->rank != y->rank                 ? by_number(x->rank, y->rank)
           : x->kernel_time != y->kernel_time ? by_number(y->kernel_time, x->kernel_time)
           : x->copy_time != y->copy_time     ? by_number(y->copy_time, x->copy_time)
                                              : by_number(x->path, y->path);
}

void annotations_of(struct annotation_rows *rows, const struct selection *chosen)
{
    struct adding a = {.rows = rows};
    *rows = (struct annotation_rows){0};
    for (size_t i = 0; i < chosen->processes; i++) add_process(&a, chosen, chosen->process[i]);
    if (rows->count) qsort(rows->row, rows->count, sizeof *rows->row, by_rank_and_time);
    by_rank_free(&a.place);
}

void annotations_free(struct annotation_rows *rows)
{
    map_free(&rows->paths.place);
    free(rows->paths.path);
    free(rows->row);
    *rows = (struct annotation_rows){0};
}
