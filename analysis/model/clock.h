/* clock.h - converts a process's counter to nanoseconds on the axis that all processes share.
 *
 * CLOCK_MONOTONIC gives the rate, because nobody steps it. The conversion is linear between two readings; outside of
 * them it follows the line through the first and the last reading. The first reading of CLOCK_REALTIME gives the
 * axis. If realtime minus monotonic changes by more than a millisecond between two readings, somebody has set the
 * clock: a step.
 */
#ifndef TFA_CLOCK_H
#define TFA_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct clock_point {
    uint64_t ticks;
    int64_t value;  /* nanoseconds */
    uint64_t error; /* ticks */
};

struct clock_points {
    struct clock_point *point;
    size_t count, capacity;
};

struct clock_step {
    int64_t at; /* nanoseconds on the axis */
    int64_t by;
};

/* Moves the times of one clock to those of another. All zero: times stay. */
struct clock_shift {
    int64_t origin, offset; /* at the moment `origin`, `offset` is added */
    double drift;           /* and so much per unit of time after it */
};

struct clock {
    struct clock_points monotonic, realtime;
    struct clock_points device; /* of the device library's clock; clock_build sets `ticks` to nanoseconds of that
                                   clock, and `value` to the time by which the axis is ahead of it */
    struct clock_points line;   /* the interpolated line; at least one point after clock_build */
    bool is_nanoseconds;        /* the counter is CLOCK_MONOTONIC itself */
    bool has_rate;              /* false: a tick counts as a nanosecond */
    bool has_axis;              /* false: the axis starts with the counter */
    double rate;                /* nanoseconds per tick, over the whole line */
    int64_t offset;             /* realtime minus monotonic */
    struct clock_shift shift;   /* of all converted times; set before clock_build */
    struct clock_step *step;
    size_t steps, step_capacity;
    size_t hint;      /* index of the point last used */
    double hint_rate; /* from it to the next point, or `rate` behind the last one */
};

/* Readings `from` up to `from` + `ticks` of the counter, which convert without a look at the line. Zero: none. */
struct clock_stretch {
    uint64_t from, ticks;
    double rate;
    int64_t start; /* nanoseconds on the axis at `from` */
};

void clock_add(struct clock *clock, uint32_t which, uint64_t ticks, uint64_t value, uint64_t error);
void clock_build(struct clock *clock);
int64_t clock_ns(struct clock *clock, uint64_t ticks);
/* Converts a reading outside the stretch, and makes the stretch the one around it. */
int64_t clock_ns_outside(struct clock *clock, struct clock_stretch *stretch, uint64_t ticks);
/* Returns what clock_ns returns, faster for many readings that are near each other. */
static inline int64_t clock_ns_near(struct clock *clock, struct clock_stretch *stretch, uint64_t ticks)
{
    if (ticks - stretch->from >= stretch->ticks) return clock_ns_outside(clock, stretch, ticks);
    double ns = (double)(int64_t)(ticks - stretch->from) * stretch->rate;
    int64_t whole = (int64_t)ns;
    return stretch->start + whole + (ns - (double)whole >= 0.5);
}
/* Converts a time of the device library's clock to the axis; without readings that clock counts as the axis itself. */
int64_t clock_device_ns(const struct clock *clock, uint64_t ns);
/* Returns a shifted time. Shifts keep the order of times, if the drift is above -1. */
int64_t clock_shifted(const struct clock_shift *shift, int64_t time);
void clock_free(struct clock *clock);

#endif
