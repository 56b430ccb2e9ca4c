/* timeline.c - collects the device work of each rank as sets of intervals by kind.
 *
 * TraceLens adds ts and dur as doubles of microseconds, whose last place is 0.2 to 2 ns in a real trace, and does so
 * thousands of times. --rules tracelens uses the same doubles to get equal results. They are exact in units of 2^-20
 * us, or in larger units in a trace of months.
 */
#include "ask/timeline.h"

#include <math.h>
#include <stdlib.h>

#include "ask/choice.h"

unsigned timeline_wants(const struct options *options)
{
    unsigned want = WANT_DEVICE;
    if (options->step.count || options->cycle.count || options->stage.count)
        want |= WANT_RANGES | WANT_LAUNCHES | WANT_OPERATORS;
    return options->rules == RULES_TRACELENS ? want | WANT_LAUNCHES : want;
}

int64_t timeline_ns(const struct timeline *timeline, int64_t time)
{
    return timeline->ns == 1 ? time : llround((double)time * timeline->ns);
}

double file_us(const struct process *process, int64_t ns)
{
    /* Nanoseconds since 1970 do not fit into a double. With a long double only the result is rounded. */
    return (double)((long double)(ns - kineto_base(process)) / 1000);
}

static struct rank_time *rank_of(struct timeline *timeline, int64_t rank)
{
    for (size_t i = 0; i < timeline->count; i++)
        if (timeline->rank[i].rank == rank) return &timeline->rank[i];
    timeline->rank = mem_grow(timeline->rank, &timeline->capacity, timeline->count + 1, sizeof *timeline->rank);
    timeline->rank[timeline->count] = (struct rank_time){.rank = rank};
    return &timeline->rank[timeline->count++];
}

static void add(struct rank_time *rank, enum work_kind kind, int64_t start, int64_t end)
{
    rank->first = rank->in_piece ? MIN(rank->first, start) : start;
    rank->last = rank->in_piece ? MAX(rank->last, end) : end;
    rank->in_piece++;
    rank->works++;
    intervals_add(&rank->kind[kind], start, end);
}

static void end_piece(struct rank_time *rank)
{
    if (rank->in_piece) intervals_add(&rank->pieces, rank->first, rank->last);
    rank->in_piece = 0;
}

/* Returns the correlation ids of calls. TraceLens counts only device events whose id has a runtime or driver call. */
static struct map called(const struct process *process)
{
    const struct spans *s = &process->spans;
    struct map map = {0};
    for (size_t i = 0; i < s->table.count; i++)
        if (s->event_class[i] == CLASS_API && s->id[i] != NO_ID) map_put(&map, s->id[i], 1);
    return map;
}

/* Moves a file's time to the axis that all ranks share; each file has its own base. */
static double from_start(const struct selection *chosen, const struct process *process, double us)
{
    return us - file_us(process, chosen->model->start);
}

/* Returns the number of units per microsecond: as many as fit. */
static double units_for(const struct selection *chosen)
{
    double units = 1 << 20, far = 0;
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct process *p = chosen->process[i];
        far = MAX(far, p->has_time ? from_start(chosen, p, file_us(p, p->last)) : 0);
    }
    while (far * units > 0x1p62) units /= 2;
    return units;
}

static void collect_process(struct timeline *timeline, const struct selection *chosen, struct work_kinds *kinds,
                            const struct process *process)
{
    const struct works *w = &process->works;
    bool tracelens = kinds->rules == RULES_TRACELENS, by_launch = choice_needs_launches(chosen->options, process);
    struct map calls = tracelens ? called(process) : (struct map){0};
    struct rank_time *rank = rank_of(timeline, process->rank);
    struct attribution attribution;
    struct choice choice;
    struct interval when;
    if (by_launch) attribute(&attribution, process, false);
    choice_init(&choice, chosen, process, by_launch ? &attribution : NULL);
    for (size_t i = 0; i < w->table.count; i++) {
        if (!choice_work(&choice, i, &when) || (by_launch && !choice_in_stage(&choice, &attribution.work[i])) ||
            (tracelens && map_get(&calls, w->correlation[i]) == MAP_NONE))
            continue;
        enum work_kind kind = work_kind(kinds, w->event_class[i], w->name[i]);
        if (tracelens) {
            double us = file_us(process, when.start), units = 1000 / timeline->ns;
            double start = from_start(chosen, process, us);
            double end = from_start(chosen, process, us + (double)(when.end - when.start) / 1000);
            add(rank, kind, llround(start * units), llround(end * units));
        } else {
            add(rank, kind, when.start, when.end);
        }
    }
    if (is_of_kineto(process)) /* the time between two traces of a rank is unknown */
        end_piece(rank);
    choice_free(&choice);
    if (by_launch) attribution_free(&attribution);
    map_free(&calls);
}

static int by_rank(const void *a, const void *b)
{
    const struct rank_time *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

void timeline_collect(struct timeline *timeline, const struct selection *chosen)
{
    struct work_kinds kinds;
    *timeline = (struct timeline){.ns = 1};
    if (chosen->options->rules == RULES_TRACELENS) timeline->ns = 1000 / units_for(chosen);
    work_kinds_init(&kinds, chosen->options->rules, &chosen->model->names);
    for (size_t i = 0; i < chosen->processes; i++) collect_process(timeline, chosen, &kinds, chosen->process[i]);
    work_kinds_free(&kinds);
    if (timeline->count) qsort(timeline->rank, timeline->count, sizeof *timeline->rank, by_rank);
    for (size_t i = 0; i < timeline->count; i++) {
        for (int kind = 0; kind < NR_WORK_KINDS; kind++) intervals_merge(&timeline->rank[i].kind[kind]);
        end_piece(&timeline->rank[i]);
        intervals_merge(&timeline->rank[i].pieces);
        timeline->rank[i].total = intervals_total(&timeline->rank[i].pieces);
        timeline->works += timeline->rank[i].works;
    }
}

void timeline_free(struct timeline *timeline)
{
    for (size_t i = 0; i < timeline->count; i++) {
        for (int kind = 0; kind < NR_WORK_KINDS; kind++) intervals_free(&timeline->rank[i].kind[kind]);
        intervals_free(&timeline->rank[i].pieces);
    }
    free(timeline->rank);
    *timeline = (struct timeline){0};
}
