/* comm_clock.c - fits clocks to each other by the ends of collectives.
 *
 * The offset is the median of the differences of the ends, and the drift the difference of its medians in the last and
 * the first third of the collectives. Differences far from that line are left out, more than OUTLIER times the median
 * distance; a line of least squares through the rest is the fit. A clock needs LEAST_POINTS collectives, and
 * LEAST_FOR_DRIFT for a drift.
 */
#include "ask/comm/comm_clock.h"

#include <math.h>
#include <stdlib.h>

#include "base/statistics.h"

enum { LEAST_POINTS = 3, LEAST_FOR_DRIFT = 12, OUTLIER = 5, MOST_PASSES = 16 };

/* End of a collective on one clock: the last of its ranks there. */
struct clock_end {
    uint32_t clock;
    int64_t time;
};

/* A difference between a clock that is not aligned and one that is. */
struct point {
    uint32_t clock;
    int64_t time, difference;
};

struct aligning {
    struct clock_fits *fits;
    struct clock_end *end;
    size_t ends, end_capacity;
    size_t *meeting; /* index in `end` of each collective's first one */
    size_t meetings, meeting_capacity;
    struct point *point;
    size_t points, point_capacity;
};

/* ---- ends ---- */

/* Between these the differences of two differences fit into 64 bits. */
static const int64_t FIRST_END = -((int64_t)1 << 60), LAST_END = (int64_t)1 << 61;

static bool is_usable(const struct comm_part *part, size_t parts)
{
    bool usable = parts > 1 && collective_kinds[part->op].meets;
    for (size_t i = 0; i < parts; i++)
        usable &= part[i].op == part->op && part[i].start != UNKNOWN_TIME && part[i].end >= FIRST_END &&
                  part[i].end <= LAST_END;
    return usable;
}

static void add_meeting(struct aligning *a, const struct comm_part *part, size_t parts, struct map *place)
{
    size_t first = a->ends;
    for (size_t i = 0; i < parts; i++) {
        uint32_t at = map_get(place, part[i].clock);
        if (at != MAP_NONE && at >= first) {
            a->end[at].time = MAX(a->end[at].time, part[i].end);
            continue;
        }
        a->end = mem_grow(a->end, &a->end_capacity, a->ends + 1, sizeof *a->end);
        map_put(place, part[i].clock, (uint32_t)a->ends);
        a->end[a->ends++] = (struct clock_end){part[i].clock, part[i].end};
    }
    if (a->ends - first < 2) {
        a->ends = first;
        return;
    }
    a->meeting = mem_grow(a->meeting, &a->meeting_capacity, a->meetings + 1, sizeof *a->meeting);
    a->meeting[a->meetings++] = first;
}

static void find_meetings(struct aligning *a, const struct comm_summary *s)
{
    struct map place = {0};
    for (size_t first = 0, end; first < s->count; first = end) {
        end = comm_key_end(s, first);
        if (is_usable(&s->part[first], end - first)) add_meeting(a, &s->part[first], end - first, &place);
    }
    map_free(&place);
}

/* ---- one clock ---- */

static int64_t corrected(const struct clock_fit *fit, int64_t time)
{
    return MAX(clock_shifted(&fit->shift, time), INT64_MIN + 1); /* INT64_MIN is unknown */
}

static int64_t median(struct values *values)
{
    values_sort(values);
    return values_percentile(values, 0.5);
}

/* Returns the median difference of some neighbouring points, and the median of their times. */
static int64_t middle_of(const struct point *point, size_t count, int64_t *time)
{
    struct values differences = {0}, times = {0};
    for (size_t i = 0; i < count; i++) {
        values_add(&differences, point[i].difference);
        values_add(&times, point[i].time);
    }
    int64_t difference = median(&differences);
    *time = median(&times);
    values_free(&differences);
    values_free(&times);
    return difference;
}

/* No clock of a machine is off by more than a hundredth: another number comes from a damaged trace. */
static double likely_drift(double drift)
{
    return fabs(drift) < 0.01 ? drift : 0;
}

/* Returns how far a point is from the fit. */
static int64_t distance(const struct clock_fit *fit, const struct point *point)
{
    return add_ns(point->difference, -add_ns(corrected(fit, point->time), -point->time));
}

/* Moves the fit to the line of least squares through the points that are near to it. */
static void refine(struct clock_fit *fit, const struct point *point, size_t count, bool drifts)
{
    struct values far = {0};
    for (size_t i = 0; i < count; i++) values_add(&far, llabs(distance(fit, &point[i])));
    double limit = (double)(OUTLIER * MAX(median(&far), 1)), n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (size_t i = 0; i < count; i++) {
        double at = (double)(point[i].time - fit->shift.origin), by = (double)distance(fit, &point[i]);
        if (fabs(by) > limit) continue;
        n++;
        x += at;
        y += by;
        xx += at * at;
        xy += at * by;
    }
    double width = n * xx - x * x, slope = drifts && width > 0 ? (n * xy - x * y) / width : 0;
    fit->shift.offset = add_ns(fit->shift.offset, llround((y - slope * x) / n));
    fit->shift.drift = likely_drift(fit->shift.drift + slope);
    values_free(&far);
}

/* Fits one clock to points in the order of their times. */
static void fit_clock(struct clock_fit *fit, const struct point *point, size_t count)
{
    int64_t middle, early, late;
    size_t third = count / 3;
    bool drifts = count >= LEAST_FOR_DRIFT;
    int64_t offset = middle_of(point, count, &middle);
    fit->shift.origin = middle;
    fit->shift.offset = offset;
    if (drifts) {
        int64_t before = middle_of(point, third, &early), after = middle_of(point + count - third, third, &late);
        if (late > early) fit->shift.drift = likely_drift((double)(after - before) / (double)(late - early));
    }
    refine(fit, point, count, drifts);
    fit->collectives = count;
    fit->aligned = true;
}

/* ---- all clocks ---- */

static int by_clock_and_time(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    if (x->clock != y->clock) return x->clock < y->clock ? -1 : 1;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return (x->difference > y->difference) - (x->difference < y->difference);
}

/* Collects the differences between aligned clocks and those that are not. */
static void find_points(struct aligning *a)
{
    a->points = 0;
    for (size_t i = 0; i < a->meetings; i++) {
        size_t first = a->meeting[i], end = i + 1 < a->meetings ? a->meeting[i + 1] : a->ends, known = first;
        while (known < end && !a->fits->clock[a->end[known].clock].aligned) known++;
        if (known == end) continue;
        int64_t time = corrected(&a->fits->clock[a->end[known].clock], a->end[known].time);
        for (size_t k = first; k < end; k++) {
            const struct clock_end *e = &a->end[k];
            if (a->fits->clock[e->clock].aligned) continue;
            a->point = mem_grow(a->point, &a->point_capacity, a->points + 1, sizeof *a->point);
            a->point[a->points++] = (struct point){e->clock, e->time, time - e->time};
        }
    }
}

/* Fits the clocks that have enough points. Returns how many. */
static size_t fit_clocks(struct aligning *a, uint32_t axis)
{
    size_t fitted = 0;
    if (a->points) qsort(a->point, a->points, sizeof *a->point, by_clock_and_time);
    for (size_t first = 0, end; first < a->points; first = end) {
        for (end = first; end < a->points && a->point[end].clock == a->point[first].clock;) end++;
        struct clock_fit *fit = &a->fits->clock[a->point[first].clock];
        if (end - first < LEAST_POINTS) continue;
        fit_clock(fit, a->point + first, end - first);
        fit->axis = axis;
        fitted++;
    }
    return fitted;
}

/* Describes the clocks, and returns the reference. */
static struct clock_fit *find_reference(struct clock_fits *fits, const struct comm_summary *s)
{
    struct clock_fit *reference = NULL;
    for (size_t i = 0; i < fits->count; i++) fits->clock[i].rank = UNKNOWN_NUMBER;
    for (size_t i = 0; i < s->count; i++) {
        struct clock_fit *fit = &fits->clock[s->part[i].clock];
        fit->axis = s->part[i].axis;
        fit->rank = fit->rank == UNKNOWN_NUMBER ? s->part[i].rank : MIN(fit->rank, s->part[i].rank);
    }
    for (size_t i = 0; i < fits->count; i++) {
        struct clock_fit *fit = &fits->clock[i];
        bool better = !reference || (fit->axis == 0 && reference->axis != 0) ||
                      ((fit->axis == 0) == (reference->axis == 0) && fit->rank < reference->rank);
        if (better) reference = fit;
    }
    return reference;
}

static void move(int64_t *time, const struct clock_fit *fit)
{
    if (*time != UNKNOWN_TIME) *time = corrected(fit, *time);
}

void comm_align(struct clock_fits *fits, struct comm_summary *s, size_t clocks)
{
    struct aligning a = {.fits = fits};
    size_t fitted = 1;
    *fits = (struct clock_fits){.clock = mem_zero(clocks, sizeof *fits->clock), .count = clocks};
    if (clocks < 2) return;
    struct clock_fit *reference = find_reference(fits, s);
    reference->aligned = true;
    find_meetings(&a, s);
    for (int pass = 0; pass < MOST_PASSES && fitted; pass++) {
        find_points(&a);
        fitted = fit_clocks(&a, reference->axis);
        fits->aligned += fitted;
    }
    for (size_t i = 0; i < s->count; i++) {
        struct comm_part *part = &s->part[i];
        const struct clock_fit *fit = &fits->clock[part->clock];
        if (!fit->aligned) continue;
        part->axis = reference->axis;
        move(&part->start, fit);
        move(&part->end, fit);
        move(&part->call_start, fit);
    }
    free(a.end);
    free(a.meeting);
    free(a.point);
}

void clock_fits_free(struct clock_fits *fits)
{
    free(fits->clock);
    *fits = (struct clock_fits){0};
}
