/* finish.c - completes a process after its records are read: matches its ranges, and converts ticks to nanoseconds. */
#include "model/beginnings.h"
#include "model/range_pieces.h"
#include "model/ranges/lost_ends.h"

static void convert(struct clock *clock, int64_t *times, size_t count)
{
    for (size_t i = 0; i < count; i++) times[i] = clock_ns(clock, (uint64_t)times[i]);
}

/* No time is later, including those of clock.h, so the difference of any two fits an int64_t. */
#define LATEST ((int64_t)4000000000000000000)

/* Converts the start and keeps the duration of the device, cut to end at LATEST. */
static void convert_device(struct clock *clock, int64_t *start, int64_t *end, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t duration = (uint64_t)end[i] - (uint64_t)start[i];
        start[i] = clock_device_ns(clock, (uint64_t)start[i]);
        end[i] = start[i] + (int64_t)MIN(duration, (uint64_t)(LATEST - start[i]));
    }
}

static int64_t converted_duration(struct clock *clock, int64_t start, int64_t duration)
{
    uint64_t end;
    if (duration < 0 || __builtin_add_overflow((uint64_t)start, (uint64_t)duration, &end)) return IO_UNKNOWN;
    return clock_ns(clock, end) - clock_ns(clock, (uint64_t)start);
}

/* Converts the durations of sums, before the times at which they begin. */
static void convert_io_sums(struct clock *clock, struct ios *ios)
{
    for (size_t i = 0; i < ios->table.count && ios->sum_count; i++) {
        if (ios->sum[i] == IO_ONE_CALL) continue;
        struct io_sum *sum = &ios->sums[ios->sum[i]];
        sum->total = converted_duration(clock, ios->start[i], sum->total);
        sum->longest = converted_duration(clock, ios->start[i], sum->longest);
    }
}

static void convert_tables(struct clock *clock, struct process *process)
{
    convert(clock, process->ranges.start, process->ranges.table.count);
    convert(clock, process->ranges.end, process->ranges.table.count);
    convert(clock, process->looks.start, process->looks.table.count);
    convert(clock, process->looks.end, process->looks.table.count);
    convert(clock, process->marks.time, process->marks.table.count);
    convert(clock, process->calls.start, process->calls.table.count);
    convert(clock, process->calls.end, process->calls.table.count);
    convert_io_sums(clock, &process->ios);
    convert(clock, process->ios.start, process->ios.table.count);
    convert(clock, process->ios.end, process->ios.table.count);
    convert(clock, process->messages.time, process->messages.table.count);
    convert(clock, process->wholes.start, process->wholes.table.count);
    convert(clock, process->wholes.end, process->wholes.table.count);
    convert(clock, process->blocks.time, process->blocks.table.count);
    convert(clock, process->ooms.time, process->ooms.table.count);
    convert(clock, process->grants.time, process->grants.table.count);
    convert(clock, process->forwards.time, process->forwards.table.count);
    convert(clock, process->spans.start, process->spans.table.count);
    convert(clock, process->spans.end, process->spans.table.count);
}

static void convert_lists(struct clock *clock, struct process *process)
{
    for (size_t i = 0; i < process->lost_ends.count; i++) convert(clock, &process->lost_ends.stage[i].start, 1);
    for (size_t i = 0; i < process->switchings; i++) convert(clock, &process->switching[i].time, 1);
    for (size_t i = 0; i < process->elsewheres; i++) convert(clock, &process->elsewhere[i].from, 1);
    for (size_t i = 0; i < process->samples; i++) convert(clock, &process->sample[i].time, 1);
    for (size_t i = 0; i < process->machine.samples; i++) convert(clock, &process->machine.sample[i].time, 1);
    for (size_t i = 0; i < process->machine.pools; i++) convert(clock, &process->machine.pool[i].time, 1);
    for (size_t i = 0; i < process->signatures; i++) convert(clock, &process->signature[i].time, 1);
    for (size_t i = 0; i < process->tensors.uses; i++) convert(clock, &process->tensors.use[i].time, 1);
    for (size_t i = 0; i < process->tensors.ops; i++) {
        convert(clock, &process->tensors.op[i].start, 1);
        convert(clock, &process->tensors.op[i].end, 1);
    }
    for (size_t i = 0; i < process->graphs.nodes; i++) convert(clock, &process->graphs.node[i].time, 1);
    for (size_t i = 0; i < process->graphs.sources; i++) convert(clock, &process->graphs.source[i].time, 1);
    for (size_t i = 0; i < process->threads; i++) {
        convert(clock, &process->thread[i].first, process->thread[i].has_time);
        convert(clock, &process->thread[i].last, process->thread[i].has_time);
    }
}

static void convert_startup(struct clock *clock, struct startup *s)
{
    for (size_t i = 0; i < s->pieces; i++) {
        convert(clock, &s->piece[i].start, 1);
        convert(clock, &s->piece[i].end, 1);
        convert(clock, &s->piece[i].own, 1);
        s->piece[i].own -= s->piece[i].start;
    }
    for (size_t i = 0; i < s->phases; i++) {
        convert(clock, &s->phase[i].start, 1);
        convert(clock, &s->phase[i].end, 1);
    }
}

static void convert_works(struct clock *clock, struct process *process)
{
    struct works *works = &process->works;
    convert_device(clock, works->start, works->end, works->table.count);
    for (size_t i = 0; works->detail && i < works->table.count; i++)
        if (works->detail[i].queued)
            works->detail[i].queued = clock_device_ns(clock, (uint64_t)works->detail[i].queued);
    convert_device(clock, process->stage_times.start, process->stage_times.end, process->stage_times.table.count);
}

/* Returns the end to show for a range without an end record. As a rule it lasts as long as its process. If records
 * are lost, its end may be among them: then only the last record of its thread is known to lie in or behind it. */
static int64_t unfinished_until(const struct process *process, uint32_t serial)
{
    const struct thread *thread = find_thread(process, serial);
    return process->lost && thread && thread->has_time ? thread->last : process->last;
}

static void add_unfinished(struct process *process, size_t begin, bool details)
{
    const struct begins *from = &process->begins;
    struct ranges *to = &process->ranges;
    size_t at = to->table.count;
    ranges_reserve(to, 1, details);
    to->start[at] = from->time[begin];
    to->end[at] = (int64_t)MAX((uint64_t)unfinished_until(process, from->thread[begin]), (uint64_t)from->time[begin]);
    to->id[at] = from->id[begin];
    to->name[at] = from->name[begin];
    to->thread[at] = from->thread[begin];
    to->domain[at] = from->domain[begin];
    to->flags[at] = from->flags[begin] | RANGE_UNFINISHED;
    to->depth[at] = from->depth[begin];
    to->step[at] = NO_PLACE;
    to->cpu[at] = -1;
    if (details) to->detail[at] = from->detail[begin];
    to->table.count++;
}

/* Matches ranges whose end was read before their beginning. Beginnings that still wait never ended, or lost their end.
 * Times are still ticks. */
static void match_ranges(struct process *process)
{
    struct begins *begins = &process->begins;
    bool details = process->ranges.detail || begins->detail;
    begins_meet_early(process, details);
    lost_ends_leave_out(process);
    for (size_t i = 0; i < begins->table.count; i++)
        if (begins->waits[i]) add_unfinished(process, i, details);
    begins_free(begins);
}

void process_finish(struct process *process)
{
    struct clock *clock = &process->clock;
    match_ranges(process);
    cut_ranges(process);
    convert_tables(clock, process);
    convert_lists(clock, process);
    convert_startup(clock, &process->startup);
    convert_works(clock, process);
    convert(clock, &process->first, process->has_time);
    convert(clock, &process->last, process->has_time);
}
