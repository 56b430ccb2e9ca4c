/* hta_idle.c - divides the idle time of each stream by its cause, as get_idle_time_breakdown of HTA 0.5.0.
 *
 * The definitions are those of idle_gaps.c, on HTA's rows and with HTA's faults. A gap is the time from the end of the row
 * before, in the order of starts, and may be negative. A row with a correlation id but without a call is linked to the
 * first event of the file, whatever that is, and is in the table as often as that event is in the frame.
 */
#include <stdlib.h>

#include "commands/device/answers.h"
#include "compat/hta.h"
#include "compat/hta_answer.h"
#include "compat/hta_calls.h"

enum { SHORT_GAP = 30000 }; /* ns */

struct streamed {
    int64_t stream;
    const struct hta_row *row;
};

static int rows_by_start(const void *a, const void *b)
{
    const struct streamed *x = a, *y = b;
    return x->stream != y->stream           ? by_number(x->stream, y->stream)
           : x->row->start != y->row->start ? by_number(x->row->start, y->row->start)
                                            : (x->row > y->row) - (x->row < y->row);
}

/* Returns how often HTA's link of a row leads to a row of the frame, and sets that row's start. */
static uint32_t links_of(const struct hta_frame *frame, const struct hta_calls *calls, const struct names *names,
                         const struct hta_row *row, int64_t *start)
{
    const struct process *p = frame->process;
    uint64_t correlation = p->works.correlation[row->work];
    if (correlation == NO_ID) return 0;
    uint32_t place = hta_is_device(p, row->work, names) ? map_get(&calls->last, correlation) : MAP_NONE;
    if (place == MAP_NONE) {
        *start = hta_times(p, p->numbers.first, p->numbers.first).start;
        return frame->first_times;
    }
    *start = calls->call[place].start;
    return calls->call[place].kept;
}

static __int128 *sum_for(__int128 sum[NR_IDLE_CAUSES], bool has_launch, int64_t launched, int64_t until, int64_t gap)
{
    return &sum[has_launch && launched > until ? IDLE_HOST : gap < SHORT_GAP ? IDLE_KERNEL : IDLE_OTHER];
}

/* Adds a row, which is in HTA's table once for each time it is in the frame and for each link. */
static void add_idle_cause(__int128 sum[NR_IDLE_CAUSES], const struct hta_row *row, uint32_t links, int64_t launched,
                           const int64_t *until)
{
    int64_t after_itself = row->start - row->end;
    uint64_t again = (uint64_t)row->times * MAX(links, 1u) - 1;
    if (until) *sum_for(sum, links, launched, *until, row->start - *until) += row->start - *until;
    if (again) *sum_for(sum, links, launched, row->end, after_itself) += (__int128)after_itself * again;
}

static void take_stream(struct idle_rows *rows, const struct hta_frame *frame, const struct hta_calls *calls,
                        const struct names *names, const struct streamed *list, size_t count)
{
    __int128 sum[NR_IDLE_CAUSES] = {0};
    struct idle_row row = {.rank = frame->rank, .device = -1, .stream = list->stream};
    for (size_t i = 0; i < count; i++) {
        int64_t launched = 0;
        uint32_t links = links_of(frame, calls, names, list[i].row, &launched);
        add_idle_cause(sum, list[i].row, links, launched, i ? &list[i - 1].row->end : NULL);
        row.works += list[i].row->times;
    }
    for (int cause = 0; cause < NR_IDLE_CAUSES; cause++) row.time[cause] = hta_fitting(sum[cause]);
    rows->row = mem_grow(rows->row, &rows->capacity, rows->count + 1, sizeof *rows->row);
    rows->row[rows->count++] = row;
    rows->works += row.works;
}

static void take_frame(struct idle_rows *rows, const struct hta_frame *frame, const struct names *names)
{
    const struct process *p = frame->process;
    struct streamed *list = mem_zero(frame->count, sizeof *list);
    struct hta_calls calls;
    size_t count = 0;
    hta_calls(&calls, frame, names);
    for (size_t i = 0; i < frame->count; i++) {
        uint32_t work = frame->row[i].work;
        if (work != NO_PLACE && IS_WORK(p->works.event_class[work]))
            list[count++] = (struct streamed){hta_stream(p, work), &frame->row[i]};
    }
    if (count) qsort(list, count, sizeof *list, rows_by_start);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && list[end].stream == list[first].stream;) end++;
        take_stream(rows, frame, &calls, names, &list[first], end - first);
    }
    hta_calls_free(&calls);
    free(list);
}

static double rounded(double share)
{
    return hta_round(share, 2);
}

void hta_idle(struct session *session)
{
    struct idle_rows rows = {0};
    if (!hta_begin(session)) return;
    const struct hta_frames *frames = hta_frames(&session->chosen);
    for (size_t i = 0; i < frames->count; i++) take_frame(&rows, &frames->frame[i], &session->model.names);
    idle_answer(session, &rows, rounded);
    idle_free(&rows);
}
