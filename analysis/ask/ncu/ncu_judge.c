/* ncu_judge.c - says what bounds a kernel that Nsight Compute measured, and from which facts that follows.
 *
 * No single percentage decides. A unit is busy from 60 % of its peak on (the level of ncu's own rule). A kernel is bound by
 * memory or by compute if that unit is busy and the other one is at least 10 points below it; by both if they are
 * nearer. If neither is busy, warps wait: it is bound by latency, and at least one fact about waiting must have been
 * measured too (waves, occupancy, cycles in which a warp can issue, reasons to wait). Without it nothing is said.
 */
#include <math.h>

#include "ask/ncu/ncu_kernels.h"

static const double BUSY = 60, APART = 10, NEARER = 5, LOW = 50;

const char *const ncu_bounds[NR_BOUNDS] = {[BOUND_MEMORY] = "memory",
                                           [BOUND_COMPUTE] = "compute",
                                           [BOUND_BOTH] = "memory and compute",
                                           [BOUND_LATENCY] = "latency"};

static const struct {
    enum ncu_metric metric;
    const char *name;
} levels[] = {{NCU_DRAM, "DRAM"}, {NCU_L2, "L2"}, {NCU_L1, "L1"}};

/* How near the memory system is to its peak: ncu's own figure, else that of the busiest level. */
static double memory_of(const struct ncu_kernel *k)
{
    double memory = k->metric[NCU_MEMORY];
    for (size_t i = 0; isnan(k->metric[NCU_MEMORY]) && i < ARRAY_SIZE(levels); i++)
        memory = fmax(memory, k->metric[levels[i].metric]); /* fmax leaves out what is unknown */
    return memory;
}

static void say_levels(const struct ncu_kernel *k, struct text *e)
{
    const char *busiest = NULL;
    double most = -1;
    struct text list = {0};
    for (size_t i = 0; i < ARRAY_SIZE(levels); i++) {
        double value = k->metric[levels[i].metric];
        if (isnan(value)) continue;
        text_format(&list, "%s%s %.1f %%", list.length ? ", " : "", levels[i].name, value);
        busiest = value > most ? levels[i].name : busiest;
        most = fmax(most, value);
    }
    if (busiest) text_format(e, "of the memory system, %s is nearest to its peak: %s\n", busiest, list.data);
    if (!isnan(k->metric[NCU_DRAM_SPEED])) text_format(e, "DRAM moves %.1f GB/s\n", k->metric[NCU_DRAM_SPEED] / 1e9);
    if (!isnan(k->metric[NCU_L2_HIT]))
        text_format(e, "L2 answers %.1f %% of what it is asked for\n", k->metric[NCU_L2_HIT]);
    text_free(&list);
}

/* Adds the facts about waiting. Returns how many there are. */
static unsigned say_waiting(const struct ncu_kernel *k, struct text *e)
{
    const double *m = k->metric;
    unsigned facts = 0;
    if (!isnan(m[NCU_WAVES])) {
        text_format(e,
                    m[NCU_WAVES] < 1 ? "the grid fills only %.2f of a wave: some SMs have no block\n"
                                     : "the grid is %.2f waves\n",
                    m[NCU_WAVES]);
        facts++;
    }
    if (!isnan(m[NCU_ISSUING])) {
        text_format(e, "a scheduler issues an instruction in %.1f %% of its cycles%s\n", m[NCU_ISSUING],
                    m[NCU_ISSUING] < LOW ? ": in the others no warp is ready" : "");
        facts++;
    }
    if (!isnan(m[NCU_OCCUPANCY])) {
        text_format(e, "occupancy is %.1f %%", m[NCU_OCCUPANCY]);
        if (!isnan(m[NCU_POSSIBLE_OCCUPANCY])) text_format(e, " of %.1f %% possible", m[NCU_POSSIBLE_OCCUPANCY]);
        text_puts(e, "\n");
        facts++;
    }
    if (k->first->stall) {
        text_format(e, "warps wait most for %s (%.3g)\n", k->first->stall, k->first->stall_value);
        facts++;
    }
    return facts;
}

static void say_nearer(const struct ncu_kernel *k, double compute, double memory, struct text *e, const char **nearer)
{
    double dram = k->metric[NCU_DRAM];
    *nearer = memory - compute >= NEARER ? "memory" : compute - memory >= NEARER ? "compute" : NULL;
    if (*nearer) text_format(e, "of the two, %s is nearer to its peak\n", *nearer);
    if (!isnan(dram) && (dram < compute) != (memory < compute) && memory != compute)
        text_format(e, "by DRAM alone (%.1f %%) it would be %s\n", dram, dram < compute ? "compute" : "memory");
}

static enum ncu_bound missing(const struct ncu_kernel *k, double compute, double memory, struct text *e)
{
    if (isnan(compute)) text_puts(e, "not judged: how busy the SMs were was not measured (`--section SpeedOfLight`)\n");
    if (isnan(memory)) text_puts(e, "not judged: how busy memory was was not measured (`--section SpeedOfLight`)\n");
    say_waiting(k, e);
    return BOUND_UNKNOWN;
}

enum ncu_bound ncu_judge(const struct ncu_kernel *k, struct text *e, const char **nearer)
{
    double compute = k->metric[NCU_COMPUTE], memory = memory_of(k);
    bool computes = compute >= BUSY, moves = memory >= BUSY;
    *nearer = NULL;
    if (isnan(compute) || isnan(memory)) return missing(k, compute, memory, e);
    text_format(e, "the SMs reach %.1f %% of their peak, memory %.1f %%%s\n", compute, memory,
                computes || moves ? "" : ": neither is busy (60 %)");
    say_levels(k, e);
    say_nearer(k, compute, memory, e, nearer);
    unsigned facts = say_waiting(k, e);
    if (k->first->says) text_format(e, "ncu says: %s\n", k->first->says);
    if (isnan(k->metric[NCU_MEMORY]) && (isnan(k->metric[NCU_L2]) || isnan(k->metric[NCU_L1])))
        text_puts(e, "doubtful: how busy L2 and L1 were was not measured, and either may be busier than DRAM\n");
    if (moves && memory - compute >= APART) return BOUND_MEMORY;
    if (computes && compute - memory >= APART) return BOUND_COMPUTE;
    if (moves || computes) return BOUND_BOTH;
    if (facts) return BOUND_LATENCY;
    text_puts(e, "not judged: nothing about waiting was measured (`--section SchedulerStats --section Occupancy "
                 "--section LaunchStats`)\n");
    return BOUND_UNKNOWN;
}
