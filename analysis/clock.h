/* clock.h - turns a process's counter into nanoseconds on the axis that all processes share.
 *
 * CLOCK_MONOTONIC gives the rate, as nobody steps it: between two readings the conversion is a straight line, outside
 * them the line through the first and the last one. CLOCK_REALTIME at its first reading gives the axis. When realtime
 * less monotonic changes by more than a millisecond between two readings, somebody has set the clock: a step.
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

struct clock {
    struct clock_points monotonic, realtime;
    struct clock_points device; /* of the device library's clock; once built, `ticks` are its nanoseconds and `value`
                                   how much the axis is ahead of it */
    struct clock_points line;   /* what is interpolated; at least one point once it is built */
    bool is_nanoseconds;        /* the counter is CLOCK_MONOTONIC itself */
    bool has_rate;              /* false: a tick is taken for a nanosecond */
    bool has_axis;              /* false: the axis begins where the counter does */
    double rate;                /* nanoseconds a tick, over all */
    int64_t offset;             /* realtime less monotonic */
    struct clock_step *step;
    size_t steps, step_capacity;
    size_t hint; /* the line last used */
};

void clock_add(struct clock *clock, uint32_t which, uint64_t ticks, uint64_t value, uint64_t error);
void clock_build(struct clock *clock);
int64_t clock_ns(struct clock *clock, uint64_t ticks);
/* A moment of the device library's clock on the axis; without readings of it that clock is taken for the axis itself. */
int64_t clock_device_ns(const struct clock *clock, uint64_t ns);
void clock_free(struct clock *clock);

#endif
