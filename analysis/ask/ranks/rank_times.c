/* rank_times.c - collects the device work of each rank as sets of intervals by kind. */
#include "ask/ranks/rank_times.h"

#include <math.h>
#include <stdlib.h>

int64_t timeline_ns(const struct timeline *timeline, int64_t time)
{
    return timeline->ns == 1 ? time : llround((double)time * timeline->ns);
}

/* ---- one process ---- */

struct taking {
    struct rank_time *time;
    struct scope *scope;
    const struct process *process;
    const struct time_rules *rules;
    void *context; /* of `rules` */
    struct work_kinds kinds;
    int64_t first, last; /* bounds of the work; first is above last: none */
    struct interval ran; /* the same on the axis of the process, whatever times the rules count in */
};

static void add_work(struct taking *t, size_t work, struct interval when)
{
    enum work_kind kind = work_kind_of(&t->kinds, t->process, work);
    t->ran = (struct interval){MIN(t->ran.start, when.start), MAX(t->ran.end, when.end)};
    if (t->rules) when = t->rules->times(t->context, when);
    t->first = MIN(t->first, when.start);
    t->last = MAX(t->last, when.end);
    t->time->works++;
    intervals_add(&t->time->kind[kind], when.start, when.end);
}

static void add_works(struct taking *t)
{
    const struct process *p = t->process;
    const struct works *w = &p->works;
    const struct choice *choice = &t->scope->choice;
    bool by_launch = choice_needs_launches(choice->options, p);
    const struct attribution *a = by_launch ? scope_attribute(t->scope) : NULL;
    struct interval when;
    for (size_t i = 0; i < w->table.count; i++)
        if (choice_work(choice, i, &when) && (!a || choice_in_stage(choice, &a->work[i])) &&
            (!t->rules || t->rules->counts(t->context, i)))
            add_work(t, i, when);
}

struct rank_time *rank_time_of(struct scope *scope, const struct time_rules *rules, void *context)
{
    const struct process *process = scope->process;
    struct rank_time *time = mem_zero(1, sizeof *time);
    struct taking t = {
        time, scope, process, rules, context, .first = INT64_MAX, .last = INT64_MIN, .ran = {INT64_MAX, INT64_MIN}};
    work_kinds_init(&t.kinds, rules ? rules->kinds : &exact_kinds, &scope->chosen->model->names);
    add_works(&t);
    work_kinds_free(&t.kinds);
    time->rank = process->rank;
    time->unknown = left_out_of(scope_left_out(scope), t.ran, NO_PLACE);
    time->first = is_of_kineto(process) ? INT64_MAX : t.first;
    time->last = is_of_kineto(process) ? INT64_MIN : t.last;
    if (is_of_kineto(process) && time->works) intervals_add(&time->pieces, t.first, t.last);
    for (int kind = 0; kind < NR_WORK_KINDS; kind++) intervals_merge(&time->kind[kind]);
    for (int kind = 0; kind < NR_WORK_KINDS; kind++) intervals_fit(&time->kind[kind]);
    return time;
}

void rank_time_drop(void *rank)
{
    rank_time_free(rank);
    free(rank);
}

static void *reduce_timeline(struct scope *scope)
{
    return rank_time_of(scope, NULL, NULL);
}

struct needs timeline_needs(const struct options *options)
{
    bool by_launch = options->step.count || options->cycle.count || options->stage.count;
    return by_launch ? work_needs(options) : (struct needs){.device = true};
}

const struct reduction timeline_reduction = {without_window, reduce_timeline, rank_time_drop, NULL};

/* ---- ranks ---- */

static void unite(struct intervals *a, struct intervals *b)
{
    struct intervals both = intervals_union(a, b);
    intervals_free(a);
    intervals_free(b);
    *a = both;
}

void rank_time_merge(struct rank_time *a, struct rank_time *b)
{
    a->works += b->works;
    a->unknown |= b->unknown;
    a->first = MIN(a->first, b->first);
    a->last = MAX(a->last, b->last);
    unite(&a->pieces, &b->pieces);
    for (int kind = 0; kind < NR_WORK_KINDS; kind++) unite(&a->kind[kind], &b->kind[kind]);
    *b = (struct rank_time){.rank = b->rank, .first = INT64_MAX, .last = INT64_MIN};
}

void rank_time_free(struct rank_time *rank)
{
    for (int kind = 0; kind < NR_WORK_KINDS; kind++) intervals_free(&rank->kind[kind]);
    intervals_free(&rank->pieces);
}

static int by_rank(const void *a, const void *b)
{
    const struct rank_time *x = a, *y = b;
    return by_number(x->rank, y->rank);
}

static void set_total(struct rank_time *rank)
{
    struct intervals own = {0};
    if (rank->first < rank->last) intervals_add(&own, rank->first, rank->last);
    unite(&rank->pieces, &own);
    rank->total = intervals_total(&rank->pieces);
}

/* Unites neighbours of the same rank in pairs, so that each interval is moved log N times. Returns how many ranks are
 * left. */
static size_t join_intervals(struct rank_time *rank, size_t count)
{
    size_t kept = 0;
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && rank[end].rank == rank[first].rank;) end++;
        for (size_t step = 1; step < end - first; step *= 2)
            for (size_t i = first; i + step < end; i += 2 * step) rank_time_merge(&rank[i], &rank[i + step]);
        rank[kept++] = rank[first];
    }
    return kept;
}

void timeline_collect(struct timeline *timeline, const struct selection *chosen, void *const *taken)
{
    size_t count = chosen->processes;
    *timeline = (struct timeline){.ns = 1};
    timeline->rank = mem_zero(count, sizeof *timeline->rank);
    for (size_t i = 0; i < count; i++) {
        struct rank_time *of_process = taken[i];
        timeline->rank[i] = *of_process;
        *of_process = (struct rank_time){.rank = of_process->rank};
    }
    if (count) qsort(timeline->rank, count, sizeof *timeline->rank, by_rank);
    timeline->count = join_intervals(timeline->rank, count);
    for (size_t i = 0; i < timeline->count; i++) {
        set_total(&timeline->rank[i]);
        timeline->works += timeline->rank[i].works;
        timeline->unknown |= timeline->rank[i].unknown;
    }
}

void timeline_of_model(struct timeline *timeline, const struct selection *chosen)
{
    void **taken = mem_zero(chosen->processes, sizeof *taken);
    for (size_t i = 0; i < chosen->processes; i++) taken[i] = reduce_timeline(scope_begin(chosen, i));
    timeline_collect(timeline, chosen, taken);
    for (size_t i = 0; i < chosen->processes; i++) rank_time_drop(taken[i]);
    free(taken);
}

void timeline_free(struct timeline *timeline)
{
    for (size_t i = 0; i < timeline->count; i++) rank_time_free(&timeline->rank[i]);
    free(timeline->rank);
    *timeline = (struct timeline){0};
}
