/* start_times.c - finds the time that a process took to start, apart from its work. */
#include "ask/stages/start_times.h"

#include <stdlib.h>

#include "ask/stages/order.h"
#include "base/hash.h"
#include "base/statistics.h"

enum { FEWEST_CALLS = 3, TIMES_THE_MEDIAN = 2 };

/* A call of a stage, from entry to exit. */
struct call {
    uint32_t name;
    int64_t start, end;
};

static int call_by_name(const void *a, const void *b)
{
    const struct call *x = a, *y = b;
    if (x->name != y->name) return x->name < y->name ? -1 : 1;
    return x->start != y->start ? by_number(x->start, y->start) : by_number(y->end, x->end);
}

static int first_by_start(const void *a, const void *b)
{
    const struct first_call *x = a, *y = b;
    return by_number(x->start, y->start);
}

/* Returns all calls of stages that have ended. */
static struct call *all_calls(const struct process *p, size_t *count)
{
    const struct ranges *r = &p->ranges;
    struct call *calls = mem_zero(r->table.count, sizeof *calls);
    struct map whole_of = {0};
    *count = 0;
    wholes_by_id(&whole_of, p);
    for (size_t i = 0; i < r->table.count; i++) {
        if (!is_stage(r, i) || r->flags[i] & (RANGE_CONTINUED | RANGE_UNFINISHED)) continue;
        calls[(*count)++] = (struct call){r->name[i], r->start[i], call_time(p, i, map_get(&whole_of, r->id[i])).end};
    }
    map_free(&whole_of);
    if (*count) qsort(calls, *count, sizeof *calls, call_by_name);
    return calls;
}

/* Judges the calls of one stage, sorted by start. */
static bool is_slow_first(const struct call *calls, size_t count, struct first_call *first)
{
    struct values others = {0};
    if (count < FEWEST_CALLS) return false;
    for (size_t i = 1; i < count; i++) values_add(&others, calls[i].end - calls[i].start);
    values_sort(&others);
    *first = (struct first_call){calls[0].name, calls[0].start, calls[0].end - calls[0].start,
                                 values_percentile(&others, 0.5), count - 1};
    values_free(&others);
    return first->time > TIMES_THE_MEDIAN * first->median;
}

struct first_calls first_calls_find(const struct process *p)
{
    struct first_calls found = {0};
    size_t count, capacity = 0;
    struct call *calls = all_calls(p, &count);
    for (size_t i = 0, end; i < count; i = end) {
        struct first_call first;
        for (end = i + 1; end < count && calls[end].name == calls[i].name;) end++;
        if (!is_slow_first(&calls[i], end - i, &first)) continue;
        found.call = mem_grow(found.call, &capacity, found.count + 1, sizeof *found.call);
        found.call[found.count++] = first;
    }
    if (found.count) qsort(found.call, found.count, sizeof *found.call, first_by_start);
    free(calls);
    return found;
}

int64_t startup_begin(const struct process *p)
{
    return p->startup.pieces ? MIN(p->startup.piece[0].start, p->first) : p->first;
}

void startup_times(const struct process *p, struct intervals *set)
{
    const struct startup *s = &p->startup;
    if (!has_startup(p)) return;
    for (size_t i = 0; i < s->pieces; i++)
        if (!s->piece[i].depth) intervals_add(set, s->piece[i].start, s->piece[i].end);
    for (size_t i = 0; i < s->phases; i++) intervals_add(set, s->phase[i].start, s->phase[i].end);
    struct first_calls first = first_calls_find(p);
    for (size_t i = 0; i < first.count; i++)
        intervals_add(set, first.call[i].start, first.call[i].start + first.call[i].time - first.call[i].median);
    free(first.call);
    intervals_merge(set);
}

/* The start of a rank is that of the process that began first: its workers start beside the work. */
static const struct process *first_started(const struct selection *chosen, int64_t rank)
{
    const struct process *first = NULL;
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct process *p = chosen->process[i];
        if (p->rank != rank || !p->has_time || !has_startup(p)) continue;
        if (!first || startup_begin(p) < startup_begin(first)) first = p;
    }
    return first;
}

/* Adds the times of the stages of a rank; those of a process without stages are all of it, if no other has some. */
static void add_work_of_rank(const struct selection *chosen, int64_t rank, struct intervals *set)
{
    bool any = false;
    for (size_t i = 0; i < chosen->processes; i++)
        any |= chosen->process[i]->rank == rank && has_stages(chosen->process[i]);
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct process *p = chosen->process[i];
        if (p->rank != rank || !p->has_time) continue;
        if (!any) intervals_add(set, p->first, p->last);
        for (size_t k = 0; k < p->ranges.table.count; k++)
            if (is_stage(&p->ranges, k)) intervals_add_merging(set, p->ranges.start[k], p->ranges.end[k]);
    }
}

/* Cuts a merged set to an interval. */
static void cut_set(struct intervals *set, struct interval to)
{
    size_t kept = 0;
    for (size_t i = 0; i < set->count; i++) {
        struct interval part = {MAX(set->interval[i].start, to.start), MIN(set->interval[i].end, to.end)};
        if (part.start < part.end) set->interval[kept++] = part;
    }
    set->count = kept;
}

struct startup_share startup_share_of(const struct selection *chosen, int64_t rank, struct interval window)
{
    struct startup_share share = {0};
    struct intervals start = {0}, work = {0};
    const struct process *first = first_started(chosen, rank);
    if (!first) return share;
    struct interval run = {startup_begin(first), first->last};
    for (size_t i = 0; i < chosen->processes; i++)
        if (chosen->process[i]->rank == rank && chosen->process[i]->has_time)
            run.end = MAX(run.end, chosen->process[i]->last);
    run = (struct interval){MAX(run.start, window.start), MIN(run.end, window.end)};
    startup_times(first, &start);
    add_work_of_rank(chosen, rank, &work);
    intervals_merge(&work);
    cut_set(&start, run);
    cut_set(&work, run);
    share.run = MAX(run.end - run.start, 0);
    share.start_up = intervals_total(&start);
    share.work = intervals_total(&work) - intervals_overlap(&work, &start);
    share.unexplained = share.run - share.start_up - share.work;
    share.known = true;
    intervals_free(&start);
    intervals_free(&work);
    return share;
}
