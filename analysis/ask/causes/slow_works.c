/* slow_works.c - finds the ranks whose kernels, or copies, take longer than the same ones on other ranks.
 *
 * A rank's ratio is the median, weighted by time, of its times over the norms of the same kernels. A slow device is slow
 * in both halves of the run, and in three quarters of the time of its kernels: else it has other work, not less speed.
 */
#include <stdlib.h>

#include "ask/causes/judging.h"
#include "ask/causes/norm.h"

/* Shares by which a rank has to be slower. */
static const double LEAST_OF_KERNELS = 0.04, LEAST_OF_COPIES = 0.25;

/* The fact of a rank. */
struct alike_fact {
    const struct work_fact *fact;
    int64_t rank;
};

/* A rank's time for one kind of work over the norm, in both halves of the run. */
struct relative {
    int64_t rank;
    double ratio[2], weight;
};

struct relatives {
    struct relative *relative;
    size_t count, capacity;
};

/* ---- the same work on all ranks ---- */

static int by_work(const void *a, const void *b)
{
    const struct work_fact *x = ((const struct alike_fact *)a)->fact, *y = ((const struct alike_fact *)b)->fact;
    int order = by_number(x->name, y->name);
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

static struct alike_fact *facts_of_kind(const struct fleet *fleet, bool is_copy, size_t *count)
{
    struct alike_fact *all = NULL;
    size_t capacity = 0;
    *count = 0;
    for (size_t i = 0; i < fleet->chosen->processes; i++) {
        const struct rank_facts *facts = fleet_facts(fleet, i);
        for (size_t k = 0; k < facts->works; k++) {
            if (facts->work[k].is_copy != is_copy) continue;
            all = mem_grow(all, &capacity, *count + 1, sizeof *all);
            all[(*count)++] = (struct alike_fact){&facts->work[k], fleet->chosen->process[i]->rank};
        }
    }
    if (*count) qsort(all, *count, sizeof *all, by_work);
    return all;
}

/* Compares one kind of work over the ranks. */
static void compare_alike(struct relatives *to, const struct alike_fact *alike, size_t count)
{
    double *time = mem_zero(count, sizeof *time), norm[2];
    for (int half = 0; half < 2; half++) {
        for (size_t i = 0; i < count; i++) time[i] = (double)alike[i].fact->median[half];
        norm[half] = norm_of(time, count).middle;
    }
    for (size_t i = 0; i < count && norm[0] > 0 && norm[1] > 0; i++) {
        const struct work_fact *fact = alike[i].fact;
        to->relative = mem_grow(to->relative, &to->capacity, to->count + 1, sizeof *to->relative);
        to->relative[to->count++] = (struct relative){
            .rank = alike[i].rank,
            .ratio = {(double)fact->median[0] / norm[0], (double)fact->median[1] / norm[1]},
            .weight = (norm[0] + norm[1]) / 2 * (double)fact->calls,
        };
    }
    free(time);
}

/* ---- the speed of a rank ---- */

struct speed {
    int64_t rank;
    double ratio[2];
    bool is_even; /* it is slower in most of its work */
};

static int by_rank_of_relative(const void *a, const void *b)
{
    return by_number(((const struct relative *)a)->rank, ((const struct relative *)b)->rank);
}

static struct speed speed_of(const struct relative *relative, size_t count)
{
    struct speed speed = {.rank = relative->rank};
    struct weighted *weighted = mem_zero(count, sizeof *weighted);
    double all = 0, slow = 0;
    for (int half = 0; half < 2; half++) {
        for (size_t i = 0; i < count; i++) weighted[i] = (struct weighted){relative[i].ratio[half], relative[i].weight};
        speed.ratio[half] = weighted_median(weighted, count);
    }
    double between = (1 + (speed.ratio[0] + speed.ratio[1]) / 2) / 2;
    for (size_t i = 0; i < count; i++) {
        all += relative[i].weight;
        if ((relative[i].ratio[0] + relative[i].ratio[1]) / 2 > between) slow += relative[i].weight;
    }
    speed.is_even = slow >= 0.75 * all;
    free(weighted);
    return speed;
}

/* Judges the speeds of all ranks. */
static struct verdict *verdicts_of_speeds(const struct speed *speed, size_t count, double least)
{
    struct verdict *verdict = mem_zero(count, sizeof *verdict);
    double *ratio = mem_zero(count, sizeof *ratio);
    for (size_t i = 0; i < count; i++) verdict[i] = (struct verdict){.rank = speed[i].rank, .is_bad = speed[i].is_even};
    for (int half = 0; half < 2; half++) {
        for (size_t i = 0; i < count; i++) ratio[i] = speed[i].ratio[half];
        struct norm norm = norm_of(ratio, count);
        for (size_t i = 0; i < count; i++) {
            double more = speed[i].ratio[half] / norm.middle - 1;
            verdict[i].amount += more / 2;
            verdict[i].is_bad &= more > norm_limit(&norm, least);
        }
    }
    free(ratio);
    return verdict;
}

/* Returns the speeds of all ranks with work that others have too. */
static struct speed *speeds_of(const struct fleet *fleet, bool is_copy, size_t *count)
{
    struct relatives relatives = {0};
    size_t facts;
    struct alike_fact *alike = facts_of_kind(fleet, is_copy, &facts);
    for (size_t first = 0, end; first < facts; first = end) {
        for (end = first; end < facts && by_work(&alike[first], &alike[end]) == 0;) end++;
        if (end - first >= LEAST_RANKS) compare_alike(&relatives, alike + first, end - first);
    }
    struct relative *r = relatives.relative;
    struct speed *speed = mem_zero(relatives.count, sizeof *speed);
    *count = 0;
    if (relatives.count) qsort(r, relatives.count, sizeof *r, by_rank_of_relative);
    for (size_t first = 0, end; first < relatives.count; first = end) {
        for (end = first; end < relatives.count && r[end].rank == r[first].rank;) end++;
        speed[(*count)++] = speed_of(r + first, end - first);
    }
    free(r);
    free(alike);
    return speed;
}

/* ---- the judges ---- */

void judge_kernels(struct causes *causes, const struct fleet *fleet)
{
    size_t count;
    struct speed *speed = speeds_of(fleet, false, &count);
    struct verdict *verdict = NULL;
    if (count >= LEAST_RANKS) {
        verdict = verdicts_of_speeds(speed, count, LEAST_OF_KERNELS);
        for (size_t i = 0; i < count; i++)
            if (verdict[i].is_bad) cause_add(causes, CAUSE_SLOW_GPU, &verdict[i].rank, 1, verdict[i].amount, count);
    } else {
        cause_not_judged(causes, CAUSE_SLOW_GPU,
                         "no kernel of the same size ran 16 times on each of 4 ranks with one device",
                         "record more steps, on more ranks");
    }
    free(speed);
    free(verdict);
}

void judge_copies(struct causes *causes, const struct fleet *fleet)
{
    size_t count;
    struct speed *speed = speeds_of(fleet, true, &count);
    struct verdict *verdict = NULL;
    if (count >= LEAST_RANKS) {
        verdict = verdicts_of_speeds(speed, count, LEAST_OF_COPIES);
        causes_of_verdicts(causes, fleet, verdict, count, CAUSE_SLOW_HOST_LINK, CAUSE_SLOW_HOST_LINK);
    } else {
        cause_not_judged(causes, CAUSE_SLOW_HOST_LINK,
                         "no copy of the same 64 KiB or more between host and device ran 16 times on each of 4 ranks",
                         "record more steps, on more ranks");
    }
    free(speed);
    free(verdict);
}
