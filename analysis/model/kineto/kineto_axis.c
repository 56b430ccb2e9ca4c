/* kineto_axis.c - puts the times of a loaded Kineto trace on the axis that all traces share. */
#include "model/kineto/kineto_axis.h"

static void move(int64_t *times, size_t count, int64_t by)
{
    for (size_t i = 0; i < count; i++) times[i] += by;
}

static void move_all(struct process *p, int64_t by)
{
    p->profile_start += p->has_profile_start ? by : 0;
    p->earliest += by;
    move(p->ranges.start, p->ranges.table.count, by);
    move(p->ranges.end, p->ranges.table.count, by);
    move(p->spans.start, p->spans.table.count, by);
    move(p->spans.end, p->spans.table.count, by);
    move(p->works.start, p->works.table.count, by);
    move(p->works.end, p->works.table.count, by);
    for (size_t i = 0; i < p->counters.count; i++) {
        p->counters.range[i].start += by;
        p->counters.range[i].end += by;
    }
    move(&p->numbers.first, p->numbers.has_first, by);
    move(p->forwards.time, p->forwards.table.count, by);
    move(p->blocks.time, p->blocks.table.count, by);
    collectives_move(&p->collectives, by);
    for (size_t i = 0; i < p->threads; i++) {
        move(&p->thread[i].first, p->thread[i].has_time, by);
        move(&p->thread[i].last, p->thread[i].has_time, by);
    }
    move(&p->first, p->has_time, by);
    move(&p->last, p->has_time, by);
}

/* Builds the clock. Newer traces name a base time. A trace without a base normally counts from 1970. If its first time
 * lies before 1979, it counts from boot instead and has no place on the calendar (`has_axis` is false). */
static void set_clock(struct process *p, bool has_base)
{
    static const int64_t UNIX_SINCE = 300000000000000000; /* 1979 */
    p->clock.is_nanoseconds = true;
    clock_build(&p->clock);
    p->clock.has_axis = has_base || (p->has_time && p->first >= UNIX_SINCE);
}

void kineto_set_axis(struct process *process, int64_t base)
{
    move_all(process, base);
    set_clock(process, base != 0);
}
