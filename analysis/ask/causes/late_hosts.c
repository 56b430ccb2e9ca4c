/* late_hosts.c - finds the ranks whose devices wait for the host before collectives, longer than those of other ranks.
 *
 * The ranks leave a collective together. A rank comes late to the next one if its device works longer in between, or if
 * it is idle longer. Only the second is the host's doing. The same collective of all ranks, by its place in the step, is
 * compared, also if each group of ranks has one of its own. A rank is late by the median over the steps of what it is
 * idle beyond the norm. A trace without steps is cut into PERIODS parts with equal numbers of collectives.
 */
#include <stdlib.h>

#include "ask/causes/judging.h"
#include "ask/causes/norm.h"
#include "base/statistics.h"

enum { PERIODS = 16 };
/* A rank that is late by less, as a share of a step, is not named. */
static const double LEAST_OF_STEP = 0.01;

struct gap {
    const struct gap_fact *fact;
    int64_t rank;
};

/* What a rank was idle beyond the norm in a step. */
struct lateness {
    int64_t rank, period;
    double idle;
    int64_t time;
};

struct latenesses {
    struct lateness *lateness;
    size_t count, capacity;
    int64_t block; /* collectives in a period, of traces without steps */
};

static int by_place_in_step(const void *a, const void *b)
{
    const struct gap_fact *x = ((const struct gap *)a)->fact, *y = ((const struct gap *)b)->fact;
    int order = by_number(x->step, y->step);
    if (!order) order = by_number(x->place, y->place);
    if (!order) order = by_number(x->op, y->op);
    if (!order) order = by_number((int64_t)x->bytes, (int64_t)y->bytes);
    return order ? order : by_number(x->size, y->size);
}

static int by_rank_and_period(const void *a, const void *b)
{
    const struct lateness *x = a, *y = b;
    int order = by_number(x->rank, y->rank);
    return order ? order : by_number(x->period, y->period);
}

/* Returns all gaps in steps, or all gaps if no trace has steps. */
static struct gap *gaps_of(const struct fleet *fleet, size_t *count, int64_t *block)
{
    struct gap *gap = NULL;
    size_t capacity = 0;
    int64_t places = 1;
    bool has_steps = false;
    *count = 0;
    for (size_t i = 0; i < fleet->chosen->processes; i++) has_steps |= fleet_facts(fleet, i)->has_steps;
    for (size_t i = 0; i < fleet->chosen->processes; i++) {
        const struct rank_facts *facts = fleet_facts(fleet, i);
        for (size_t k = 0; k < facts->gaps; k++) {
            if (has_steps && facts->gap[k].step == UNKNOWN_NUMBER) continue;
            gap = mem_grow(gap, &capacity, *count + 1, sizeof *gap);
            gap[(*count)++] = (struct gap){&facts->gap[k], fleet->chosen->process[i]->rank};
            places = MAX(places, facts->gap[k].place + 1);
        }
    }
    *block = (places + PERIODS - 1) / PERIODS;
    if (*count) qsort(gap, *count, sizeof *gap, by_place_in_step);
    return gap;
}

/* Compares one collective over the ranks. */
static void compare_gaps(struct latenesses *to, const struct gap *gap, size_t count)
{
    double *idle = mem_zero(count, sizeof *idle);
    for (size_t i = 0; i < count; i++) idle[i] = (double)gap[i].fact->idle;
    double norm = norm_of(idle, count).middle;
    for (size_t i = 0; i < count; i++) {
        const struct gap_fact *fact = gap[i].fact;
        int64_t period = fact->step != UNKNOWN_NUMBER ? fact->step : fact->place / to->block;
        to->lateness = mem_grow(to->lateness, &to->capacity, to->count + 1, sizeof *to->lateness);
        to->lateness[to->count++] = (struct lateness){gap[i].rank, period, (double)fact->idle - norm, fact->time};
    }
    free(idle);
}

/* Joins what belongs to the same rank and period. */
static void join_periods(struct latenesses *l)
{
    size_t kept = 0;
    if (l->count) qsort(l->lateness, l->count, sizeof *l->lateness, by_rank_and_period);
    for (size_t i = 0; i < l->count; i++) {
        struct lateness *last = kept ? &l->lateness[kept - 1] : NULL;
        if (last && by_rank_and_period(last, &l->lateness[i]) == 0) {
            last->idle += l->lateness[i].idle;
            last->time = add_ns(last->time, l->lateness[i].time);
        } else {
            l->lateness[kept++] = l->lateness[i];
        }
    }
    l->count = kept;
}

/* Sums up the periods of one rank: `amount` is its lateness, `least` what it has to exceed. */
static struct verdict verdict_of_rank(const struct lateness *lateness, size_t count, double *least)
{
    struct weighted *idle = mem_zero(count, sizeof *idle), *time = mem_zero(count, sizeof *time);
    for (size_t i = 0; i < count; i++) {
        idle[i] = (struct weighted){lateness[i].idle, 1};
        time[i] = (struct weighted){(double)lateness[i].time, 1};
    }
    struct verdict verdict = {.rank = lateness->rank, .amount = weighted_median(idle, count)};
    *least = LEAST_OF_STEP * weighted_median(time, count);
    free(idle);
    free(time);
    return verdict;
}

static void judge_ranks(struct verdict *verdict, const double *least, size_t count)
{
    double *amount = mem_zero(count, sizeof *amount);
    for (size_t i = 0; i < count; i++) amount[i] = verdict[i].amount;
    struct norm norm = norm_of(amount, count);
    for (size_t i = 0; i < count; i++) {
        verdict[i].amount -= norm.middle;
        verdict[i].is_bad = verdict[i].amount > norm_limit(&norm, least[i]);
    }
    free(amount);
}

void judge_lateness(struct causes *causes, const struct fleet *fleet)
{
    struct latenesses all = {0};
    size_t gaps, ranks = 0;
    struct gap *gap = gaps_of(fleet, &gaps, &all.block);
    for (size_t first = 0, end; first < gaps; first = end) {
        for (end = first; end < gaps && by_place_in_step(&gap[first], &gap[end]) == 0;) end++;
        if (end - first >= LEAST_RANKS) compare_gaps(&all, gap + first, end - first);
    }
    join_periods(&all);
    struct verdict *verdict = mem_zero(all.count, sizeof *verdict);
    double *least = mem_zero(all.count, sizeof *least);
    for (size_t first = 0, end; first < all.count; first = end) {
        for (end = first; end < all.count && all.lateness[end].rank == all.lateness[first].rank;) end++;
        if (end - first < LEAST_PERIODS) continue;
        verdict[ranks] = verdict_of_rank(&all.lateness[first], end - first, &least[ranks]);
        ranks++;
    }
    if (ranks >= LEAST_RANKS) {
        judge_ranks(verdict, least, ranks);
        causes_of_verdicts(causes, fleet, verdict, ranks, CAUSE_LATE_HOST, CAUSE_LATE_PROCESS);
    } else {
        cause_not_judged(causes, CAUSE_LATE_HOST,
                         "4 ranks do not have the same collectives with known kernels in 4 steps or parts of the run",
                         "record more steps, on more ranks");
    }
    free(verdict);
    free(least);
    free(all.lateness);
    free(gap);
}
