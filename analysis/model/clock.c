/* clock.c - builds the conversion from the clock records of a process, and converts times. */
#include "model/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "tfi_trace.h"

enum { STEP_NS = 1000000 };
static const double LARGEST = 4e18; /* nanoseconds: all results and their differences fit an int64_t */

static int64_t clamp(double ns)
{
    return (int64_t)(ns > LARGEST ? LARGEST : ns < -LARGEST ? -LARGEST : ns);
}

static int64_t nearest_whole(double ns)
{
    int64_t whole = clamp(ns);
    double rest = ns - (double)whole;
    return whole + (rest >= 0.5) - (rest < -0.5);
}

void clock_add(struct clock *clock, uint32_t which, uint64_t ticks, uint64_t value, uint64_t error)
{
    struct clock_points *points = which == TFI_CLOCK_MONOTONIC  ? &clock->monotonic
                                  : which == TFI_CLOCK_REALTIME ? &clock->realtime
                                  : which == TFI_CLOCK_DEVICE   ? &clock->device
                                                                : NULL;
    if (!points || value > (uint64_t)LARGEST / 2) return;
    points->point = mem_grow(points->point, &points->capacity, points->count + 1, sizeof *points->point);
    points->point[points->count++] = (struct clock_point){ticks, (int64_t)value, error};
}

static int by_ticks(const void *a, const void *b)
{
    const struct clock_point *x = a, *y = b;
    return (x->ticks > y->ticks) - (x->ticks < y->ticks);
}

/* Sorts the readings, and drops interrupted ones: their bracket is far wider than the best one. */
static void tidy(struct clock_points *points)
{
    uint64_t best = UINT64_MAX;
    size_t kept = 0;
    if (!points->count) return;
    qsort(points->point, points->count, sizeof *points->point, by_ticks);
    for (size_t i = 0; i < points->count; i++) best = MIN(best, points->point[i].error);
    for (size_t i = 0; i < points->count; i++) {
        const struct clock_point *point = &points->point[i];
        bool again = kept && points->point[kept - 1].ticks == point->ticks;
        if (!again && (point->error - best <= best + 1000)) points->point[kept++] = *point;
    }
    points->count = kept;
}

/* Returns the rate between two points; 0 if it is impossible for a counter (outside 0.001 to 1000 ns per tick), or if
 * `b` is not later than `a`. */
static double rate_between(const struct clock_point *a, const struct clock_point *b)
{
    double rate = (double)(b->value - a->value) / (double)(b->ticks - a->ticks);
    return b->ticks > a->ticks && rate > 1e-3 && rate < 1e3 ? rate : 0;
}

/* Keeps the points that advance at a possible rate. */
static void keep_forward(struct clock_points *line)
{
    size_t kept = line->count ? 1 : 0;
    for (size_t i = 1; i < line->count; i++)
        if (rate_between(&line->point[kept - 1], &line->point[i]) > 0) line->point[kept++] = line->point[i];
    line->count = kept;
}

/* Returns the last point that is not after `ticks`, or the first point. */
static size_t point_before(const struct clock_points *line, uint64_t ticks)
{
    size_t low = 0, high = line->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (line->point[middle].ticks <= ticks) low = middle + 1;
        else high = middle;
    }
    return low ? low - 1 : 0;
}

static int64_t add_clamped(int64_t a, int64_t b)
{
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) sum = b > 0 ? (int64_t)LARGEST : -(int64_t)LARGEST;
    return MAX(MIN(sum, (int64_t)LARGEST), -(int64_t)LARGEST);
}

/* Returns the signed distance between two readings of the counter, saturated to an int64_t. */
static int64_t ticks_between(uint64_t from, uint64_t to)
{
    return to >= from ? (int64_t)MIN(to - from, (uint64_t)INT64_MAX) : -(int64_t)MIN(from - to, (uint64_t)INT64_MAX);
}

/* Converts ticks to nanoseconds of the line, as a rule those of CLOCK_MONOTONIC. */
static int64_t ticks_to_line_ns(struct clock *clock, uint64_t ticks)
{
    const struct clock_points *line = &clock->line;
    size_t i = clock->hint;
    if (ticks < line->point[i].ticks || (i + 1 < line->count && ticks >= line->point[i + 1].ticks)) {
        i = clock->hint = point_before(line, ticks);
        clock->hint_rate = i + 1 < line->count ? rate_between(&line->point[i], &line->point[i + 1]) : clock->rate;
    }
    const struct clock_point *from = &line->point[i];
    int64_t away = ticks_between(from->ticks, ticks);
    if (clock->rate == 1) return add_clamped(from->value, away);
    return add_clamped(from->value, nearest_whole((double)away * (away >= 0 ? clock->hint_rate : clock->rate)));
}

int64_t clock_shifted(const struct clock_shift *shift, int64_t time)
{
    if (!shift->offset && shift->drift == 0) return time;
    int64_t drifted = llround(shift->drift * (double)add_ns(time, -shift->origin));
    return add_clamped(add_clamped(time, shift->offset), drifted);
}

int64_t clock_ns(struct clock *clock, uint64_t ticks)
{
    return clock_shifted(&clock->shift, add_clamped(ticks_to_line_ns(clock, ticks), clock->offset));
}

static bool is_within(int64_t value, int64_t limit)
{
    return -limit <= value && value <= limit;
}

/* No sum in a stretch needs a clamp: even a tick of 1000 ns keeps the times below LARGEST. */
int64_t clock_ns_outside(struct clock *clock, struct clock_stretch *stretch, uint64_t ticks)
{
    static const uint64_t most = 100000000000000; /* ticks */
    static const int64_t far = 2000000000000000000;
    int64_t ns = clock_ns(clock, ticks);
    const struct clock_point *from = &clock->line.point[clock->hint];
    bool is_last = clock->hint + 1 == clock->line.count;
    bool is_moved = clock->shift.offset || clock->shift.drift != 0;
    bool is_near =
        is_within(from->value, far) && is_within(clock->offset, far) && is_within(from->value + clock->offset, far);
    *stretch = (struct clock_stretch){0};
    if (is_moved || !is_near || ticks < from->ticks) return ns;
    uint64_t end = is_last ? UINT64_MAX : from[1].ticks;
    *stretch = (struct clock_stretch){from->ticks, MIN(end - from->ticks, most),
                                      clock->rate == 1 ? 1 : clock->hint_rate, from->value + clock->offset};
    return ns;
}

/* Builds the line that is interpolated. */
static void build_line(struct clock *clock)
{
    static const struct clock_point zero;
    struct clock_points *from = clock->monotonic.count || !clock->realtime.count ? &clock->monotonic : &clock->realtime;
    size_t wanted = MAX(from->count, 1);
    clock->line.point = mem_grow(NULL, &clock->line.capacity, wanted, sizeof *clock->line.point);
    clock->line.count = wanted;
    memcpy(clock->line.point, from->count ? from->point : &zero, wanted * sizeof zero);
    keep_forward(&clock->line);
    const struct clock_point *first = clock->line.point, *last = first + clock->line.count - 1;
    clock->rate = rate_between(first, last);
    clock->has_rate = clock->rate > 0;
    if (clock->is_nanoseconds || !clock->has_rate) {
        clock->line.count = 1;
        clock->rate = 1;
        clock->has_rate = clock->is_nanoseconds;
    }
    if (clock->is_nanoseconds) /* the counter is the clock itself: a reading adds only its own delay */
        clock->line.point[0] = (struct clock_point){first->ticks, (int64_t)MIN(first->ticks, (uint64_t)LARGEST), 0};
    const struct clock_point *point = clock->line.point;
    clock->hint_rate = clock->line.count > 1 ? rate_between(&point[0], &point[1]) : clock->rate;
}

static void find_steps(struct clock *clock)
{
    int64_t last = 0;
    for (size_t i = 0; i < clock->realtime.count; i++) {
        const struct clock_point *point = &clock->realtime.point[i];
        int64_t offset = point->value - ticks_to_line_ns(clock, point->ticks);
        int64_t by = i ? offset - last : 0;
        if (by > STEP_NS || by < -STEP_NS) {
            clock->step = mem_grow(clock->step, &clock->step_capacity, clock->steps + 1, sizeof *clock->step);
            clock->step[clock->steps++] = (struct clock_step){clock_ns(clock, point->ticks), by};
        }
        last = offset;
    }
}

/* Replaces each reading of the device's clock by two numbers: its time by that clock, and how far the axis is ahead of it. */
static void build_device(struct clock *clock)
{
    struct clock_points *device = &clock->device;
    for (size_t i = 0; i < device->count; i++) {
        struct clock_point *p = &device->point[i];
        int64_t ahead = add_clamped(clock_ns(clock, p->ticks), -p->value);
        *p = (struct clock_point){(uint64_t)p->value, ahead, p->error};
    }
    if (device->count) qsort(device->point, device->count, sizeof *device->point, by_ticks);
}

/* Between two readings the axis is ahead by a number that is interpolated; outside of them by that of the nearest reading. */
int64_t clock_device_ns(const struct clock *clock, uint64_t ns)
{
    const struct clock_points *device = &clock->device;
    int64_t time = (int64_t)MIN(ns, (uint64_t)LARGEST);
    if (!device->count) return clock_shifted(&clock->shift, time);
    size_t i = point_before(device, ns);
    const struct clock_point *from = &device->point[i];
    int64_t ahead = from->value;
    if (ns > from->ticks && i + 1 < device->count) {
        const struct clock_point *to = from + 1;
        double share = (double)(ns - from->ticks) / (double)(to->ticks - from->ticks);
        ahead += nearest_whole(share * (double)(to->value - from->value));
    }
    return add_clamped(time, ahead);
}

void clock_build(struct clock *clock)
{
    tidy(&clock->monotonic);
    tidy(&clock->realtime);
    tidy(&clock->device);
    build_line(clock);
    clock->has_axis = clock->realtime.count > 0;
    if (clock->has_axis) {
        const struct clock_point *first = &clock->realtime.point[0];
        clock->offset = add_clamped(first->value, -ticks_to_line_ns(clock, first->ticks));
    }
    if (clock->has_rate) find_steps(clock);
    build_device(clock);
}

void clock_free(struct clock *clock)
{
    free(clock->monotonic.point);
    free(clock->realtime.point);
    free(clock->device.point);
    free(clock->line.point);
    free(clock->step);
    *clock = (struct clock){0};
}
