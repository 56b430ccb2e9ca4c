/* queue_lengths.c - computes the depth of each stream's launch queue.
 *
 * A work is in the queue of its stream from the start of its launch to its own start. So the call of a CUDA graph adds
 * all nodes of the graph. Statistics are over the depths after each change, as HTA's. At equal times launches come
 * first. A queue is full at 1024, where the driver makes a launch wait. Filters choose changes, and so the time after
 * each, but the work of all others waits in the same queue.
 */
#include "ask/device/queue_lengths.h"

#include <math.h>
#include <stdlib.h>

#include "ask/device/lane_works.h"

enum { FULL = 1024 };

void queue_change(struct queue_changes *changes, struct queue_change change)
{
    changes->change = mem_grow(changes->change, &changes->capacity, changes->count + 1, sizeof *changes->change);
    changes->change[changes->count++] = change;
}

static int changes_by_time(const void *a, const void *b)
{
    const struct queue_change *x = a, *y = b;
    return x->time != y->time ? by_number(x->time, y->time) : by_number(y->by, x->by);
}

static int by_depth(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return by_number(*x, *y);
}

/* Interpolates linearly between the two neighbours, as pandas does. */
static double quantile(const int64_t *depth, size_t count, double share)
{
    double place = share * (double)(count - 1), low = floor(place);
    size_t at = (size_t)low, next = MIN(at + 1, count - 1);
    return (double)depth[at] + ((double)depth[next] - (double)depth[at]) * (place - low);
}

static void take_statistics(struct queue_row *row, int64_t *depth, size_t count)
{
    double sum = 0, squares = 0;
    qsort(depth, count, sizeof *depth, by_depth);
    for (size_t i = 0; i < count; i++) sum += (double)depth[i];
    row->count = count;
    row->mean = sum / (double)count;
    for (size_t i = 0; i < count; i++) squares += ((double)depth[i] - row->mean) * ((double)depth[i] - row->mean);
    row->std = count > 1 ? sqrt(squares / (double)(count - 1)) : NAN;
    row->min = depth[0];
    row->max = depth[count - 1];
    row->q1 = quantile(depth, count, 0.25);
    row->median = quantile(depth, count, 0.5);
    row->q3 = quantile(depth, count, 0.75);
}

static struct queue_row *new_row(struct queue_rows *rows, const struct queue_row *row)
{
    rows->row = mem_grow(rows->row, &rows->capacity, rows->count + 1, sizeof *rows->row);
    rows->row[rows->count] = *row;
    return &rows->row[rows->count++];
}

void queue_add(struct queue_rows *rows, struct queue_row row, struct queue_changes *changes, struct window window)
{
    size_t taken = 0;
    int64_t now = 0, *depth = mem_zero(changes->count, sizeof *depth);
    if (changes->count) qsort(changes->change, changes->count, sizeof *changes->change, changes_by_time);
    for (size_t i = 0; i < changes->count; i++) {
        const struct queue_change *change = &changes->change[i];
        now += change->by;
        if (!change->chosen) continue;
        if (now >= FULL && i + 1 < changes->count) {
            int64_t from = MAX(change->time, window.from), to = MIN(change[1].time, window.to);
            row.blocked = add_ns(row.blocked, MAX(to - from, 0));
        }
        if (change->time < window.from || change->time >= window.to) continue;
        depth[taken++] = now;
        rows->works += change->by < 0;
    }
    if (taken) {
        row.known = true;
        take_statistics(&row, depth, taken);
        new_row(rows, &row);
    }
    free(depth);
}

static int by_stream(const void *a, const void *b)
{
    const struct queue_row *x = a, *y = b;
    return x->rank != y->rank       ? by_number(x->rank, y->rank)
           : x->device != y->device ? by_number(x->device, y->device)
                                    : by_number(x->stream, y->stream);
}

void queue_sort(struct queue_rows *rows)
{
    if (rows->count) qsort(rows->row, rows->count, sizeof *rows->row, by_stream);
}

/* ---- one process ---- */

/* The length of a queue is unknown if some of its work is not in the trace. */
static void find_unknown(struct queue_rows *rows, size_t before, struct scope *scope, const struct lane_works *works,
                         size_t first, size_t end)
{
    struct interval when = {works->work[first].start, works->work[end - 1].start};
    for (size_t i = first; i < end; i++)
        if (works->work[i].has_launch) when.start = MIN(when.start, works->work[i].launched);
    const struct left_out *left = scope_left_out(scope);
    if (rows->count > before && (left_out_during(left, when) || left_out_of(left, when, works->work[first].lane)))
        rows->row[before].known = false;
}

static void *reduce_queue(struct scope *scope)
{
    const struct process *process = scope->process;
    struct queue_rows *rows = mem_zero(1, sizeof *rows);
    struct lane_works works;
    lane_works_init(&works, scope);
    for (size_t first = 0, end; first < works.count; first = end) {
        const struct lane *lane = &process->lane[works.work[first].lane];
        struct queue_changes changes = {0};
        size_t before = rows->count;
        for (end = first; end < works.count && works.work[end].lane == works.work[first].lane; end++) {
            const struct lane_work *w = &works.work[end];
            if (!w->has_launch) continue;
            queue_change(&changes, (struct queue_change){MIN(w->launched, w->start), 1, w->at_any_time});
            queue_change(&changes, (struct queue_change){w->start, -1, w->at_any_time});
        }
        queue_add(rows, (struct queue_row){.rank = process->rank, .device = lane->device, .stream = lane->stream},
                  &changes, works.window);
        find_unknown(rows, before, scope, &works, first, end);
        free(changes.change);
    }
    rows->unknown = !rows->count && scope_left_out(scope)->count;
    lane_works_free(&works);
    return rows;
}

static void free_taken(void *summary)
{
    queue_free(summary);
    free(summary);
}

const struct reduction queue_reduction = {without_window, reduce_queue, free_taken, NULL};

/* ---- all processes ---- */

void queue_collect(struct queue_rows *rows, void *const *taken, size_t count)
{
    *rows = (struct queue_rows){0};
    for (size_t i = 0; i < count; i++) {
        const struct queue_rows *of_process = taken[i];
        for (size_t k = 0; k < of_process->count; k++) new_row(rows, &of_process->row[k]);
        rows->works += of_process->works;
        rows->unknown |= of_process->unknown;
    }
    queue_sort(rows);
}

void queue_free(struct queue_rows *rows)
{
    free(rows->row);
    *rows = (struct queue_rows){0};
}
