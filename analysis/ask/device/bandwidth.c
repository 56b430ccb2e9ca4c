/* bandwidth.c - adds up copies and sets by kind.
 *
 * The kind is the name without its part in brackets. The mean speed is all bytes by all time, so a long copy weighs
 * more than a short one. A copy of unknown size counts, and the speeds leave it out. The greatest speed also leaves out
 * copies without duration.
 */
#include "ask/device/bandwidth.h"

#include <stdlib.h>
#include <string.h>

#include "ask/choice.h"

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
    struct map place;   /* index of a row, by its kind; of one rank */
    int64_t rank;
};

static struct copy_row *row_of(struct adding *a, uint32_t name)
{
    uint32_t kind = map_get(&a->kind_of, name);
    if (kind == MAP_NONE) {
        const struct name *whole = names_get(a->names, name);
        const char *bracket = strstr(whole->text, " (");
        kind = names_add(a->names, whole->text, bracket ? (size_t)(bracket - whole->text) : whole->length);
        map_put(&a->kind_of, name, kind);
    }
    uint32_t place = map_get(&a->place, kind);
    if (place == MAP_NONE) {
        struct copy_rows *rows = a->rows;
        place = (uint32_t)rows->count;
        rows->row = mem_grow(rows->row, &rows->capacity, rows->count + 1, sizeof *rows->row);
        rows->row[rows->count++] = (struct copy_row){.rank = a->rank, .kind = kind};
        map_put(&a->place, kind, place);
    }
    return &a->rows->row[place];
}

static void add_copy(struct adding *a, const struct process *process, size_t work, struct interval when)
{
    struct copy_row *row = row_of(a, process->works.name[work]);
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

static void add_process(struct adding *a, const struct selection *chosen, const struct process *process)
{
    const struct works *w = &process->works;
    struct attribution attribution;
    struct choice choice;
    struct interval when;
    attribute(&attribution, process, 0);
    choice_init(&choice, chosen, process, &attribution);
    for (size_t i = 0; i < w->table.count; i++) {
        bool is_copy = w->event_class[i] == CLASS_MEMCPY || w->event_class[i] == CLASS_MEMSET;
        if (is_copy && choice_work(&choice, i, &when) && choice_in_stage(&choice, &attribution.work[i]))
            add_copy(a, process, i, (struct interval){w->start[i], w->end[i]});
    }
    choice_free(&choice);
    attribution_free(&attribution);
}

static int by_rank(const void *a, const void *b)
{
    const struct process *const *x = a, *const *y = b;
    return by_number((*x)->rank, (*y)->rank);
}

static int by_time(const void *a, const void *b, void *names)
{
    const struct copy_row *x = a, *y = b;
    return x->rank != y->rank   ? by_number(x->rank, y->rank)
           : x->time != y->time ? by_number(y->time, x->time)
                                : names_order(names, x->kind, y->kind);
}

void bandwidth_of(struct copy_rows *rows, const struct selection *chosen, struct names *names)
{
    struct adding a = {.rows = rows, .names = names};
    const struct process **process = mem_zero(chosen->processes, sizeof *process);
    *rows = (struct copy_rows){0};
    for (size_t i = 0; i < chosen->processes; i++) process[i] = chosen->process[i];
    if (chosen->processes) qsort(process, chosen->processes, sizeof *process, by_rank);
    for (size_t i = 0; i < chosen->processes; i++) {
        if (i == 0 || process[i]->rank != a.rank) {
            map_free(&a.place);
            a.place = (struct map){0};
            a.rank = process[i]->rank;
        }
        add_process(&a, chosen, process[i]);
    }
    if (rows->count) qsort_r(rows->row, rows->count, sizeof *rows->row, by_time, names);
    map_free(&a.kind_of);
    map_free(&a.place);
    free(process);
}

void bandwidth_free(struct copy_rows *rows)
{
    free(rows->row);
    *rows = (struct copy_rows){0};
}
