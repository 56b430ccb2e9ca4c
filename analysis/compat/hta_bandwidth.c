/* hta_bandwidth.c - computes the speeds of copies as get_memory_bw_summary of HTA 0.5.0.
 *
 * HTA takes the speed that the trace tells of each copy, adds it at the copy's start, and subtracts it at its end. Its
 * statistics are over the points of this sum that are above 0. The sums here have the same order and the same doubles,
 * because their last digits decide whether a point is above 0.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/device/copy_bandwidth.h"
#include "ask/work_kinds.h"
#include "compat/hta_answer.h"

/* The points of the sum of the speeds of all copies of a kind, without those at 0. */
struct speed {
    uint32_t kind;
    uint64_t count;
    double mean, std, min, q1, median, q3, max;
};

struct speeds {
    struct speed *speed;
    size_t count, capacity;
};

struct point {
    int64_t time;
    uint32_t kind;
    size_t place; /* in HTA's order: all starts, then all ends */
    double gbs;
};

struct points {
    struct point *point;
    size_t count, capacity;
};

/* get_memory_kernel_type */
static uint32_t kind_of(struct names *names, const struct name *name)
{
    enum { KIND = 11 }; /* "Memcpy DtoH" */
    static const char set[] = "Memset", unknown[] = "Memcpy Unknown";
    if (strncmp(name->text, set, sizeof set - 1) == 0) return names_add(names, set, sizeof set - 1);
    if (strncmp(name->text, "Memcpy", 6) != 0) return names_add(names, unknown, sizeof unknown - 1);
    return names_add(names, name->text, MIN(name->length, (size_t)KIND));
}

static void add_point(struct points *points, int64_t time, uint32_t kind, double gbs)
{
    points->point = mem_grow(points->point, &points->capacity, points->count + 1, sizeof *points->point);
    points->point[points->count] = (struct point){time, kind, points->count, gbs};
    points->count++;
}

/* Adds the starts (sign 1) or the ends (sign -1) of all copies. */
static void add_all(struct points *points, const struct hta_frame *frame, struct names *names, int sign)
{
    for (size_t i = 0; i < frame->count; i++) {
        const struct hta_row *row = &frame->row[i];
        if (row->kind != WORK_MEMORY) continue;
        const struct copied *copied = row->work == NO_PLACE ? NULL : copied_of(frame->process, row->work);
        uint32_t kind = kind_of(names, names_get(names, row->name));
        int64_t end = row->end == row->start ? row->end + 1000 : row->end;
        for (uint32_t times = MIN(row->times, HTA_MOST_TIMES); times; times--)
            add_point(points, sign > 0 ? row->start : end, kind, copied ? sign * copied->gbs : 0);
    }
}

static int by_kind(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    return x->kind != y->kind   ? by_number(x->kind, y->kind)
           : x->time != y->time ? by_number(x->time, y->time)
                                : (x->place > y->place) - (x->place < y->place);
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double quantile(const double *value, size_t count, double share)
{
    double place = share * (double)(count - 1), low = floor(place);
    size_t at = (size_t)low, next = MIN(at + 1, count - 1);
    return value[at] + (value[next] - value[at]) * (place - low);
}

static void describe(struct speeds *speeds, uint32_t kind, double *value, size_t count)
{
    struct speed s = {.kind = kind, .count = count};
    double squares = 0;
    if (!count) return;
    qsort(value, count, sizeof *value, by_value);
    for (size_t i = 0; i < count; i++) s.mean += value[i];
    s.mean /= (double)count;
    for (size_t i = 0; i < count; i++) squares += (value[i] - s.mean) * (value[i] - s.mean);
    s.std = count > 1 ? sqrt(squares / (double)(count - 1)) : NAN;
    s.min = value[0];
    s.max = value[count - 1];
    s.q1 = quantile(value, count, 0.25);
    s.median = quantile(value, count, 0.5);
    s.q3 = quantile(value, count, 0.75);
    speeds->speed = mem_grow(speeds->speed, &speeds->capacity, speeds->count + 1, sizeof *speeds->speed);
    speeds->speed[speeds->count++] = s;
}

static void take_frame(struct speeds *speeds, const struct hta_frame *frame, struct names *names)
{
    struct points points = {0};
    *speeds = (struct speeds){0};
    add_all(&points, frame, names, 1);
    add_all(&points, frame, names, -1);
    if (points.count) qsort(points.point, points.count, sizeof *points.point, by_kind);
    double *value = mem_zero(points.count, sizeof *value);
    for (size_t first = 0, end; first < points.count; first = end) {
        size_t count = 0;
        double sum = 0;
        for (end = first; end < points.count && points.point[end].kind == points.point[first].kind; end++) {
            sum += points.point[end].gbs;
            if (sum > 0) value[count++] = sum;
        }
        describe(speeds, points.point[first].kind, value, count);
    }
    free(value);
    free(points.point);
}

/* ---- the answer ---- */

static void emit_speed(struct session *session, int64_t rank, const struct speed *s)
{
    struct emit *e = &session->emit;
    emit_row(e);
    emit_known(e, "rank", rank);
    emit_text(e, "kind", model_name(&session->model, s->kind));
    emit_count(e, "count", s->count);
    emit_double(e, "mean_gbs", s->mean);
    emit_double(e, "std_gbs", s->std);
    emit_double(e, "min_gbs", s->min);
    emit_double(e, "q1_gbs", s->q1);
    emit_double(e, "median_gbs", s->median);
    emit_double(e, "q3_gbs", s->q3);
    emit_double(e, "max_gbs", s->max);
    emit_row_end(e);
}

void hta_bandwidth(struct session *session)
{
    uint64_t points = 0, top = session->options.top, shown = 0;
    if (!hta_begin(session)) return;
    emit_keys(&session->emit, "rank,kind,count,mean_gbs,std_gbs,min_gbs,q1_gbs,median_gbs,q3_gbs,max_gbs");
    const struct hta_frames *frames = hta_frames(&session->chosen);
    for (size_t i = 0; i < frames->count; i++) {
        struct speeds speeds;
        take_frame(&speeds, &frames->frame[i], &session->model.names);
        for (size_t k = 0; k < speeds.count; k++) {
            points += speeds.speed[k].count;
            if (!top || shown++ < top) emit_speed(session, frames->frame[i].rank, &speeds.speed[k]);
        }
        free(speeds.speed);
    }
    emit_totals(&session->emit);
    emit_count(&session->emit, "count", points);
    emit_end(&session->emit);
    if (!points && !is_filtered(&session->options))
        complain(NULL, "HTA's rules need copies with the argument `memory bandwidth (GB/s)`, and the trace has none; "
                       "--rules exact goes by bytes and times");
    session_end(session, points || !is_filtered(&session->options));
}
