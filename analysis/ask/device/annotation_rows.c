/* annotation_rows.c - adds up kernels by the stack of annotations they were launched in.
 *
 * The stack of an annotation is that of the moment it was opened on its thread. Annotations may nest a hundred thousand
 * deep, so a stack is a path of links: equal stacks are the same path, and a longer one shares its beginning.
 */
#include "ask/device/annotation_rows.h"

#include <stdlib.h>

#include "ask/scope.h"
#include "ask/stages/order.h"

/* ---- paths ---- */

static uint32_t path_of(struct annotation_paths *paths, uint32_t parent, uint32_t name, bool is_outside)
{
    const struct annotation_path key = {name, parent, is_outside};
    const struct annotation_path *path = keyed_row(&paths->keyed, &key, sizeof key, sizeof key);
    return (uint32_t)(path - paths->row);
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

static struct annotation_row *row_of(struct annotation_rows *rows, int64_t rank, uint32_t path)
{
    const struct annotation_row key = {.rank = rank, .path = path};
    return keyed_row(&rows->keyed, &key, offsetof(struct annotation_row, path) + sizeof path, sizeof key);
}

static void add_process(struct annotation_rows *rows, struct scope *scope)
{
    const struct process *process = scope->process;
    const struct works *w = &process->works;
    const struct attribution *a = scope_attribute(scope);
    const struct choice *choice = &scope->choice;
    struct interval when;
    uint32_t *path = paths_of_ranges(&rows->paths, a);
    join_pieces(path, process);
    for (size_t i = 0; i < w->table.count; i++) {
        const struct belonging *at = &a->work[i];
        if (!choice_work(choice, i, &when) || !choice_in_stage(choice, at)) continue;
        uint32_t of = at->stage == NO_PLACE ? path_of(&rows->paths, NO_PLACE, choice->outside, true) : path[at->stage];
        struct annotation_row *row = row_of(rows, process->rank, of);
        bool is_kernel = w->event_class[i] == CLASS_KERNEL;
        row->kernels += is_kernel;
        row->copies += !is_kernel;
        int64_t *sum = is_kernel ? &row->kernel_time : &row->copy_time;
        *sum = add_ns(*sum, when.end - when.start);
        rows->works++;
    }
    free(path);
    scope_left_rows(scope, &rows->left);
    scope_end(scope);
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
    *rows = (struct annotation_rows){0};
    for (size_t i = 0; i < chosen->processes; i++) add_process(rows, scope_begin(chosen, i));
    if (rows->count) qsort(rows->row, rows->count, sizeof *rows->row, by_rank_and_time);
}

void annotations_free(struct annotation_rows *rows)
{
    keyed_free(&rows->paths.keyed);
    keyed_free(&rows->keyed);
    left_rows_free(&rows->left);
    *rows = (struct annotation_rows){0};
}
