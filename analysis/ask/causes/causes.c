/* causes.c - takes the facts of each process and asks each judge. */
#include "ask/causes/causes.h"

#include <stdlib.h>

#include "ask/causes/judging.h"
#include "ask/comm/comm_saved.h"

const char *const cause_names[NR_CAUSE_KINDS] = {[CAUSE_SLOW_GPU] = "slow_gpu",
                                                 [CAUSE_LATE_HOST] = "late_host",
                                                 [CAUSE_LATE_PROCESS] = "late_process",
                                                 [CAUSE_SLOW_LINK] = "slow_link",
                                                 [CAUSE_SLOW_HOST_LINK] = "slow_host_link"};

/* ---- the facts of a process ---- */

static void *take_with_facts(struct scope *scope)
{
    struct comm_taken *taken = stragglers_reduction.take(scope);
    taken->facts = facts_take(scope, &taken->parts);
    return taken;
}

static void taken_with_facts_free(void *taken)
{
    facts_free(((struct comm_taken *)taken)->facts);
    stragglers_reduction.free(taken);
}

static void *restore_with_facts(struct names *names, int64_t rank, struct unpacking *from)
{
    return comm_restore(from, names, rank, true);
}

const struct reduction causes_reduction = {without_window, take_with_facts, taken_with_facts_free, restore_with_facts};

struct needs causes_needs(const struct options *options)
{
    return needs_union(stragglers_needs(options), (struct needs){.copied = true, .filling = true});
}

/* ---- all judges ---- */

static int by_kind_and_rank(const void *a, const void *b)
{
    const struct cause *x = a, *y = b;
    int order = by_number(x->kind, y->kind);
    for (size_t i = 0; !order && i < MIN(x->ranks, y->ranks); i++) order = by_number(x->rank[i], y->rank[i]);
    return order ? order : by_number((int64_t)x->ranks, (int64_t)y->ranks);
}

static int by_rank_number(const void *a, const void *b)
{
    return by_number(*(const int64_t *)a, *(const int64_t *)b);
}

static size_t distinct_ranks(const struct fleet *fleet)
{
    size_t count = fleet->chosen->processes, distinct = 0;
    int64_t *rank = mem_zero(count, sizeof *rank);
    for (size_t i = 0; i < count; i++) rank[i] = fleet->chosen->process[i]->rank;
    if (count) qsort(rank, count, sizeof *rank, by_rank_number);
    for (size_t i = 0; i < count; i++) distinct += !i || rank[i] != rank[i - 1];
    free(rank);
    return distinct;
}

/* Returns the largest number of profiler steps of a rank; SIZE_MAX: no trace has steps. */
static size_t most_steps(const struct fleet *fleet)
{
    size_t most = SIZE_MAX;
    for (size_t i = 0; i < fleet->chosen->processes; i++) {
        const struct rank_facts *facts = fleet_facts(fleet, i);
        size_t steps = 0;
        for (size_t k = 0; k < facts->gaps; k++) steps += !k || facts->gap[k].step != facts->gap[k - 1].step;
        if (facts->has_steps) most = most == SIZE_MAX ? steps : MAX(most, steps);
    }
    return most;
}

static void judge_nothing(struct causes *causes, const char *why, const char *how)
{
    for (int kind = 0; kind < NR_CAUSE_KINDS; kind++)
        if (kind != CAUSE_LATE_PROCESS) cause_not_judged(causes, (enum cause_kind)kind, why, how);
}

void causes_find(struct causes *causes, const struct fleet *fleet)
{
    *causes = (struct causes){0};
    if (distinct_ranks(fleet) < LEAST_RANKS) {
        judge_nothing(causes, "fewer than 4 ranks are compared", "give the traces of more ranks");
    } else if (fleet->runs > 1) {
        judge_nothing(causes, "the traces are of separate times", "give the traces of one run");
    } else if (most_steps(fleet) < LEAST_PERIODS) {
        judge_nothing(causes, "the traces have fewer than 4 steps with collectives", "record more steps");
    } else {
        judge_kernels(causes, fleet);
        judge_lateness(causes, fleet);
        judge_links(causes, fleet);
        judge_copies(causes, fleet);
        if (causes->count) qsort(causes->cause, causes->count, sizeof *causes->cause, by_kind_and_rank);
    }
}

void causes_free(struct causes *causes)
{
    for (size_t i = 0; i < causes->count; i++) free(causes->cause[i].rank);
    free(causes->cause);
    *causes = (struct causes){0};
}
