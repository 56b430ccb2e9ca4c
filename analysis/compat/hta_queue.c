/* hta_queue.c - computes the depth of each stream's launch queue, as get_queue_length_summary of HTA 0.5.0.
 *
 * HTA counts only the calls that it knows as launches, and only device rows with the correlation id of such a call. It
 * joins both and then asserts that the join has as many rows as there are device rows. So it fails for a rank in which
 * a launch has no device row before the last step, or in which several launches share a correlation id.
 */
#include <stdlib.h>
#include <string.h>

#include "commands/device/answers.h"
#include "compat/hta_answer.h"
#include "compat/hta_calls.h"

enum { MOST_ROWS = 1 << 30 }; /* device rows of one correlation id that count; only a hostile trace has more */

struct taking {
    const struct hta_frame *frame;
    const struct names *names;
    struct hta_calls calls;
    struct map linked;   /* by correlation id: number of the last device row's event; the step filter does not matter */
    struct map launches; /* by correlation id: the launch, an index in calls.call */
    uint64_t joined;     /* rows of HTA's join */
    uint64_t started;    /* device rows of launches */
};

static uint64_t correlation_of(const struct hta_frame *frame, const struct hta_row *row)
{
    return row->work == NO_PLACE ? NO_ID : frame->process->works.correlation[row->work];
}

static void find_linked(struct taking *t)
{
    const struct process *p = t->frame->process;
    for (size_t i = 0; i < p->works.table.count; i++)
        if (p->works.correlation[i] != NO_ID && hta_is_device(p, i, t->names))
            map_put(&t->linked, p->works.correlation[i], p->numbers.work ? p->numbers.work[i] : 1);
}

/* Adds the numbers of device rows by correlation id. */
static void count_rows(struct map *rows, const struct hta_frame *frame, const struct hta_row *row, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t correlation = correlation_of(frame, &row[i]);
        uint32_t before = correlation == NO_ID ? MAP_NONE : map_get(rows, correlation);
        uint64_t sum = (before == MAP_NONE ? 0 : before) + (uint64_t)row[i].times;
        if (correlation != NO_ID) map_put(rows, correlation, (uint32_t)MIN(sum, MOST_ROWS));
    }
}

/* Finds the launches and compares the sizes of HTA's join and of its device rows, whatever filters choose. Returns false
 * if HTA fails. */
static bool find_launches(struct taking *t)
{
    struct map rows = {0};
    count_rows(&rows, t->frame, t->frame->row, t->frame->count);
    count_rows(&rows, t->frame, t->frame->hidden, t->frame->hidden_count);
    for (size_t i = 0; i < t->calls.count; i++) {
        const struct hta_call *call = &t->calls.call[i];
        uint32_t link = map_get(&t->linked, call->correlation), works = map_get(&rows, call->correlation);
        if (!call->kept || link == MAP_NONE || link == 0 || !hta_is_launch(names_get(t->names, call->name)->text))
            continue;
        works = works == MAP_NONE ? 0 : works;
        t->joined += MAX(works, 1u);
        if (map_get(&t->launches, call->correlation) == MAP_NONE) t->started += works;
        map_put(&t->launches, call->correlation, (uint32_t)i);
    }
    map_free(&rows);
    return t->joined == t->started;
}

struct streamed {
    int64_t stream;
    uint32_t row;
};

static int by_stream(const void *a, const void *b)
{
    const struct streamed *x = a, *y = b;
    return x->stream != y->stream ? by_number(x->stream, y->stream) : by_number(x->row, y->row);
}

static void take_rows(struct queue_rows *rows, const struct taking *t)
{
    struct streamed *list = mem_zero(t->frame->count, sizeof *list);
    size_t count = 0;
    for (size_t i = 0; i < t->frame->count; i++) {
        uint64_t correlation = correlation_of(t->frame, &t->frame->row[i]);
        if (correlation != NO_ID && map_get(&t->launches, correlation) != MAP_NONE)
            list[count++] = (struct streamed){hta_stream(t->frame->process, t->frame->row[i].work), (uint32_t)i};
    }
    if (count) qsort(list, count, sizeof *list, by_stream);
    for (size_t first = 0, end; first < count; first = end) {
        struct queue_changes changes = {0};
        for (end = first; end < count && list[end].stream == list[first].stream; end++) {
            const struct hta_row *row = &t->frame->row[list[end].row];
            uint32_t call = map_get(&t->launches, correlation_of(t->frame, row));
            for (uint32_t times = MIN(row->times, HTA_MOST_TIMES); times; times--) {
                queue_change(&changes, (struct queue_change){t->calls.call[call].start, 1, true});
                queue_change(&changes, (struct queue_change){row->start, -1, true});
            }
        }
        queue_add(rows, (struct queue_row){.rank = t->frame->rank, .device = -1, .stream = list[first].stream},
                  &changes, (struct window){INT64_MIN, INT64_MAX});
        free(changes.change);
    }
    free(list);
}

static void take_frames(struct queue_rows *rows, const struct hta_frames *frames, const struct names *names)
{
    for (size_t i = 0; i < frames->count; i++) {
        struct taking t = {.frame = &frames->frame[i], .names = names};
        hta_calls(&t.calls, t.frame, names);
        find_linked(&t);
        if (find_launches(&t)) {
            take_rows(rows, &t);
        } else {
            rows->row = mem_grow(rows->row, &rows->capacity, rows->count + 1, sizeof *rows->row);
            rows->row[rows->count++] = (struct queue_row){.rank = t.frame->rank, .device = -1, .stream = -1};
            complain(t.frame->path,
                     "HTA's rules give no queue lengths: %llu launches and device rows meet %llu device rows",
                     (unsigned long long)t.joined, (unsigned long long)t.started);
        }
        hta_calls_free(&t.calls);
        map_free(&t.linked);
        map_free(&t.launches);
    }
    queue_sort(rows);
}

void hta_queue(struct session *session)
{
    struct queue_rows rows = {0};
    if (!hta_begin(session)) return;
    take_frames(&rows, hta_frames(&session->chosen), &session->model.names);
    queue_answer(session, &rows);
    queue_free(&rows);
}
