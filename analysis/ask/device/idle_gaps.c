/* idle_gaps.c - divides the idle time of each stream by its cause: the host, the next launch, or something else.
 *
 * A gap lies between the end of all earlier work of the stream and the start of the next one. It belongs to that next
 * work. The gap is host wait if the next work's launch began after the gap did: the host was late. Other gaps shorter
 * than 30 us are kernel wait: the device takes that long to begin queued work. All other gaps are `other`: queued work
 * waited for an event, another stream, or resources. These are the definitions of HTA, with two corrections: HTA takes
 * the end of the work before, even if still earlier work lasts longer, and adds negative gaps.
 */
#include "ask/device/idle_gaps.h"

#include <stdlib.h>
#include <string.h>

#include "ask/device/lane_works.h"

enum { SHORT_GAP = 30000 }; /* ns */

static struct idle_row *add_row(struct idle_rows *rows, int64_t rank, int64_t device, int64_t stream)
{
    rows->row = mem_grow(rows->row, &rows->capacity, rows->count + 1, sizeof *rows->row);
    rows->row[rows->count] = (struct idle_row){.rank = rank, .device = device, .stream = stream};
    return &rows->row[rows->count++];
}

/* ---- one process ---- */

/* Adds the gaps of one stream, whose works are first to end - 1. */
static void take_lane(struct idle_rows *rows, struct scope *scope, const struct lane_works *works, size_t first,
                      size_t end)
{
    const struct process *process = scope->process;
    const struct lane *lane = &process->lane[works->work[first].lane];
    int64_t until = works->work[first].start, began = until;
    struct idle_row row = {0};
    bool any = false;
    for (size_t i = first; i < end; i++) {
        const struct lane_work *w = &works->work[i];
        int64_t from = MAX(until, works->window.from), to = MIN(w->start, works->window.to);
        if (w->at_any_time && to > from) {
            enum idle_cause cause = w->has_launch && w->launched > until ? IDLE_HOST
                                    : w->start - until < SHORT_GAP       ? IDLE_KERNEL
                                                                         : IDLE_OTHER;
            row.time[cause] = add_ns(row.time[cause], to - from);
            any = true;
        }
        row.works += w->chosen;
        until = MAX(until, w->end);
    }
    if (!row.works && !any) return;
    struct idle_row *added = add_row(rows, process->rank, lane->device, lane->stream);
    added->works = row.works;
    added->unknown = left_out_of(scope_left_out(scope), (struct interval){began, until}, works->work[first].lane);
    memcpy(added->time, row.time, sizeof row.time);
    rows->works += row.works;
}

static void *reduce_idle(struct scope *scope)
{
    struct idle_rows *rows = mem_zero(1, sizeof *rows);
    struct lane_works works;
    lane_works_init(&works, scope);
    for (size_t first = 0, end; first < works.count; first = end) {
        for (end = first + 1; end < works.count && works.work[end].lane == works.work[first].lane;) end++;
        take_lane(rows, scope, &works, first, end);
    }
    lane_works_free(&works);
    rows->unknown = !rows->count && scope_left_out(scope)->count;
    for (size_t i = 0; i < rows->count; i++) rows->unknown |= rows->row[i].unknown;
    return rows;
}

static void free_taken(void *summary)
{
    idle_free(summary);
    free(summary);
}

const struct reduction idle_reduction = {without_window, reduce_idle, free_taken, NULL};

/* ---- all processes ---- */

static int by_stream(const void *a, const void *b)
{
    const struct idle_row *x = a, *y = b;
    return x->rank != y->rank       ? by_number(x->rank, y->rank)
           : x->device != y->device ? by_number(x->device, y->device)
                                    : by_number(x->stream, y->stream);
}

/* Sorts the rows and adds up those of the same stream. */
static void join_idle_rows(struct idle_rows *rows)
{
    size_t kept = 0;
    if (rows->count) qsort(rows->row, rows->count, sizeof *rows->row, by_stream);
    for (size_t i = 0; i < rows->count; i++) {
        if (!kept || by_stream(&rows->row[kept - 1], &rows->row[i])) {
            rows->row[kept++] = rows->row[i];
            continue;
        }
        struct idle_row *to = &rows->row[kept - 1];
        to->works += rows->row[i].works;
        to->unknown |= rows->row[i].unknown;
        for (int c = 0; c < NR_IDLE_CAUSES; c++) to->time[c] = add_ns(to->time[c], rows->row[i].time[c]);
    }
    rows->count = kept;
}

void idle_collect(struct idle_rows *rows, void *const *taken, size_t count)
{
    *rows = (struct idle_rows){0};
    for (size_t i = 0; i < count; i++) {
        const struct idle_rows *of_process = taken[i];
        rows->works += of_process->works;
        rows->unknown |= of_process->unknown;
        for (size_t k = 0; k < of_process->count; k++) {
            const struct idle_row *row = &of_process->row[k];
            *add_row(rows, row->rank, row->device, row->stream) = *row;
        }
    }
    join_idle_rows(rows);
}

void idle_free(struct idle_rows *rows)
{
    free(rows->row);
    *rows = (struct idle_rows){0};
}
