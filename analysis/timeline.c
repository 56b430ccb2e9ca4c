/* timeline.c - what the devices of each rank did when, by kind.
 *
 * TraceLens adds ts and dur as doubles of microseconds, whose last place is 0.2 to 2 ns in a real trace, and does so a
 * thousand times: to be equal to it, --rules tracelens takes these very doubles. They are exact in units of 2^-20 us,
 * or, in a trace of months, in larger ones.
 */
#include "timeline.h"

#include <math.h>
#include <stdlib.h>

#include "choice.h"

unsigned timeline_wants(const struct session *session)
{
    unsigned want = WANT_DEVICE;
    if (session->options.step.count || session->options.cycle.count || session->options.stage.count) {
        want |= WANT_RANGES | WANT_LAUNCHES | WANT_OPERATORS;
    }
    return session->options.rules == RULES_TRACELENS ? want | WANT_LAUNCHES : want;
}

int64_t timeline_ns(const struct timeline *timeline, int64_t time)
{
    return timeline->ns == 1 ? time : llround((double)time * timeline->ns);
}

double file_us(const struct process *process, int64_t ns)
{
    uint64_t base = 0;
    if (process->metadata && !pairs_number(process->metadata, "baseTimeNanoseconds", &base)) {
        base = 0;
    }
    /* Long, as nanoseconds since 1970 do not fit into a double: the only rounding is that to the result. */
    return (double)((long double)(ns - (int64_t)base) / 1000);
}

static struct rank_time *rank_of(struct timeline *timeline, int64_t rank)
{
    for (size_t i = 0; i < timeline->count; i++) {
        if (timeline->rank[i].rank == rank) {
            return &timeline->rank[i];
        }
    }
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
    if (rank->in_piece) {
        intervals_add(&rank->pieces, rank->first, rank->last);
    }
    rank->in_piece = 0;
}

/* TraceLens: only device events whose correlation id has a runtime or driver call in the trace. */
static struct map called(const struct process *process)
{
    const struct spans *s = &process->spans;
    struct map map = {0};
    for (size_t i = 0; i < s->table.count; i++) {
        if (s->class[i] == CLASS_API && s->id[i] != NO_ID) {
            map_put(&map, s->id[i], 1);
        }
    }
    return map;
}

/* Ranks share an axis, but each file has a base of its own. */
static double from_start(const struct session *session, const struct process *process, double us)
{
    return us - file_us(process, session->model.start);
}

/* How many units a microsecond has: as many as fit. */
static double units_for(const struct session *session)
{
    double units = 1 << 20, far = 0;
    for (size_t i = 0; i < session->processes; i++) {
        const struct process *p = session->process[i];
        far = MAX(far, p->has_time ? from_start(session, p, file_us(p, p->last)) : 0);
    }
    while (far * units > 0x1p62) {
        units /= 2;
    }
    return units;
}

static void collect_process(struct timeline *timeline, const struct session *session, struct work_kinds *kinds,
                            const struct process *process)
{
    const struct works *w = &process->works;
    bool tracelens = kinds->rules == RULES_TRACELENS, by_launch = choice_needs_launches(session, process);
    struct map calls = tracelens ? called(process) : (struct map){0};
    struct rank_time *rank = rank_of(timeline, process->rank);
    struct attribution attribution;
    struct choice choice;
    struct interval when;
    if (by_launch) {
        attribute(&attribution, process, false);
    }
    choice_init(&choice, session, process, by_launch ? &attribution : NULL);
    for (size_t i = 0; i < w->table.count; i++) {
        if (!choice_work(&choice, i, &when) || (by_launch && !choice_in_stage(&choice, &attribution.work[i])) ||
            (tracelens && map_get(&calls, w->correlation[i]) == MAP_NONE)) {
            continue;
        }
        enum work_kind kind = work_kind(kinds, w->class[i], w -> name[i]);
        if (tracelens) {
            double us = file_us(process, when.start), units = 1000 / timeline->ns;
            double start = from_start(session, process, us);
            double end = from_start(session, process, us + (double)(when.end - when.start) / 1000);
            add(rank, kind, llround(start * units), llround(end * units));
        } else {
            add(rank, kind, when.start, when.end);
        }
    }
    if (is_of_kineto(process)) { /* nobody knows what happened between two traces of a rank */
        end_piece(rank);
    }
    choice_free(&choice);
    if (by_launch) {
        attribution_free(&attribution);
    }
    map_free(&calls);
}

static int by_rank(const void *a, const void *b)
{
    const struct rank_time *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

void timeline_collect(struct timeline *timeline, const struct session *session)
{
    struct work_kinds kinds;
    *timeline = (struct timeline){.ns = 1};
    if (session->options.rules == RULES_TRACELENS) {
        timeline->ns = 1000 / units_for(session);
    }
    work_kinds_init(&kinds, session->options.rules, &session->model.names);
    for (size_t i = 0; i < session->processes; i++) {
        collect_process(timeline, session, &kinds, session->process[i]);
    }
    work_kinds_free(&kinds);
    if (timeline->count) {
        qsort(timeline->rank, timeline->count, sizeof *timeline->rank, by_rank);
    }
    for (size_t i = 0; i < timeline->count; i++) {
        for (int kind = 0; kind < NR_WORK_KINDS; kind++) {
            intervals_merge(&timeline->rank[i].kind[kind]);
        }
        end_piece(&timeline->rank[i]);
        intervals_merge(&timeline->rank[i].pieces);
        timeline->rank[i].total = intervals_total(&timeline->rank[i].pieces);
        timeline->works += timeline->rank[i].works;
    }
}

void timeline_free(struct timeline *timeline)
{
    for (size_t i = 0; i < timeline->count; i++) {
        for (int kind = 0; kind < NR_WORK_KINDS; kind++) {
            intervals_free(&timeline->rank[i].kind[kind]);
        }
        intervals_free(&timeline->rank[i].pieces);
    }
    free(timeline->rank);
    *timeline = (struct timeline){0};
}

void timeline_hint(const struct timeline *timeline, const struct session *session)
{
    size_t without = 0;
    for (size_t i = 0; i < timeline->count; i++) {
        without += timeline->rank[i].works == 0;
    }
    if (without && (timeline->works || !is_filtered(session))) {
        complain(NULL, "no device work%s in %zu of %zu ranks; `tfanalyze info` shows what there is",
                 is_filtered(session) ? " that matches" : "", without, timeline->count);
    }
}

void timeline_answer(struct session *session,
                     void (*emit_rank)(struct emit *, const struct timeline *, const struct rank_time *))
{
    struct timeline timeline = {0};
    if (!session_load(session, timeline_wants(session), false) || !session_begin(session, STYLE_TABLE)) {
        return;
    }
    timeline_collect(&timeline, session);
    for (size_t i = 0; i < timeline.count; i++) {
        emit_rank(&session->emit, &timeline, &timeline.rank[i]);
    }
    emit_totals(&session->emit);
    emit_count(&session->emit, "ranks", timeline.count);
    emit_count(&session->emit, "works", timeline.works);
    emit_end(&session->emit);
    timeline_hint(&timeline, session);
    session_end(session, timeline.works || !is_filtered(session));
    timeline_free(&timeline);
}
