/* copy_bandwidth.c - adds up copies and sets by kind.
 *
 * The kind is the name without its part in brackets. The mean speed is all bytes by all time, so a long copy weighs
 * more than a short one. A copy of unknown size counts, and the speeds leave it out. The greatest speed also leaves out
 * copies without duration.
 */
#include "ask/device/copy_bandwidth.h"

#include <stdlib.h>
#include <string.h>

#include "ask/scope.h"

const struct copied *copied_of(const struct process *process, size_t work)
{
    size_t low = 0, high = process->copied_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (process->copied[middle].work < work) low = middle + 1;
        else high = middle;
    }
    return low < process->copied_count && process->copied[low].work == work ? &process->copied[low] : NULL;
}

struct adding {
    struct copy_rows *rows;
    struct names *names;
    struct map kind_of; /* by name */
};

static struct copy_row *row_of(struct adding *a, int64_t rank, uint32_t name)
{
    uint32_t kind = map_get(&a->kind_of, name);
    if (kind == MAP_NONE) {
        const struct name *whole = names_get(a->names, name);
        const char *bracket = strstr(whole->text, " (");
        kind = names_add(a->names, whole->text, bracket ? (size_t)(bracket - whole->text) : whole->length);
        map_put(&a->kind_of, name, kind);
    }
    const struct copy_row key = {.rank = rank, .kind = kind};
    return keyed_row(&a->rows->keyed, &key, offsetof(struct copy_row, kind) + sizeof kind, sizeof key);
}

static void add_copy(struct adding *a, const struct process *process, size_t work, struct interval when)
{
    struct copy_row *row = row_of(a, process->rank, process->works.name[work]);
    int64_t time = when.end - when.start;
    const struct copied *copied = copied_of(process, work);
    row->count++;
    a->rows->copies++;
    row->time = add_ns(row->time, time);
    if (!copied || !copied->has_bytes) return;
    row->has_bytes = true;
    row->bytes += copied->bytes;
    row->sized_time = add_ns(row->sized_time, time);
    if (time <= 0) return;
    double gbs = (double)copied->bytes / (double)time;
    row->max = row->has_max ? MAX(row->max, gbs) : gbs;
    row->has_max = true;
}

static void add_process(struct adding *a, struct scope *scope)
{
    const struct works *w = &scope->process->works;
    const struct belonging *at = scope_attribute(scope)->work;
    const struct choice *choice = &scope->choice;
    struct interval when;
    for (size_t i = 0; i < w->table.count; i++) {
        bool is_copy = w->event_class[i] == CLASS_MEMCPY || w->event_class[i] == CLASS_MEMSET;
        if (is_copy && choice_work(choice, i, &when) && choice_in_stage(choice, &at[i]))
            add_copy(a, scope->process, i, (struct interval){w->start[i], w->end[i]});
    }
    scope_left_rows(scope, &a->rows->left);
    scope_end(scope);
}

static int copies_by_time(const void *a, const void *b, void *names)
{
    const struct copy_row *x = a, *y = b;
    return x->rank != y->rank   ? by_number(x->rank, y->rank)
           : x->time != y->time ? by_number(y->time, x->time)
                                : names_order(names, x->kind, y->kind);
}

void bandwidth_of(struct copy_rows *rows, const struct selection *chosen, struct names *names)
{
    struct adding a = {.rows = rows, .names = names};
    *rows = (struct copy_rows){0};
    for (size_t i = 0; i < chosen->processes; i++) add_process(&a, scope_begin(chosen, i));
    if (rows->count) qsort_r(rows->row, rows->count, sizeof *rows->row, copies_by_time, names);
    map_free(&a.kind_of);
}

void bandwidth_free(struct copy_rows *rows)
{
    keyed_free(&rows->keyed);
    left_rows_free(&rows->left);
    *rows = (struct copy_rows){0};
}
