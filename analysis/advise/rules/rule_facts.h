/* rule_facts.h - what the rules share: the ranks with their budgets and facts, and how a rule makes a finding.
 *
 * A rule claims time of a rank. The headroom of its finding is taken out of the leaves of the rank's budget that it names,
 * so that no time is promised twice: the rules are asked in the order of advise.def, those that know a cause before those
 * that only know a leaf. Percentages are those of the rank's work, its time without that of its start.
 */
#ifndef TFA_RULE_FACTS_H
#define TFA_RULE_FACTS_H

#include "advise/findings.h"
#include "advise/rules/op_facts.h"

struct rule;
struct rule_facts;
typedef void judge(struct rule_facts *rule_facts, const struct rule *rule);

struct rule {
    const char *id;
    judge *judge;
    enum leaf leaf; /* of rules about a leaf */
    double least;   /* percent of the work: below it the rule is silent */
    double keeps;   /* percent of the claimed time that the fix can't remove */
    const char *confidence, *finding, *cause, *fix, *confirm;
};

/* A rank that can be judged, and what is known of it. */
struct rank_facts {
    const struct wall *wall;
    const struct wall_part *part;
    int64_t work;
    int64_t left[NR_LEAVES]; /* what earlier rules left of each leaf */
    bool device;
    struct op_facts facts;
};

struct rule_facts {
    struct advice *advice;
    const struct selection *chosen;
    const struct walls *walls;
    const struct roofline *roofline;
    struct rank_facts *rank;
    size_t ranks;
    struct late_rank *late; /* of rank_rules.c; NULL: not looked for yet */
};

#define LEAF_BIT(leaf) (1u << (leaf))
/* All computing leaves. */
#define COMPUTING                                                                                                      \
    (LEAF_BIT(LEAF_MATRIX) | LEAF_BIT(LEAF_ATTENTION) | LEAF_BIT(LEAF_CONVOLUTION) | LEAF_BIT(LEAF_NORMALISATION) |    \
     LEAF_BIT(LEAF_ELEMENTWISE) | LEAF_BIT(LEAF_LAYOUT) | LEAF_BIT(LEAF_OTHER))
/* The leaves of the host's own time, while no operator computes. */
#define HOST_ALONE_LEAVES (LEAF_BIT(LEAF_PYTHON) | LEAF_BIT(LEAF_SYSTEM) | LEAF_BIT(LEAF_UNKNOWN))
/* Where the time of host operators is: beside device work in launching. */
static inline unsigned host_leaves(const struct rank_facts *rank)
{
    return (rank->device ? LEAF_BIT(LEAF_LAUNCH) | LEAF_BIT(LEAF_SYNC) : COMPUTING) | HOST_ALONE_LEAVES;
}

double percent(int64_t time, int64_t of);
double ms(int64_t time);
/* Makes a finding about `time` of a rank: headroom is what the fix can remove of it, out of `leaves`. `text` goes on behind
 * "N ms, M % of the work of rank R: " and is freed. Returns NULL where the time is below what the rule asks for. */
struct finding *claim(struct rule_facts *j, const struct rule *rule, struct rank_facts *rank, unsigned leaves,
                      int64_t time, char *text);
/* The same with its own headroom. */
struct finding *claim_some(struct rule_facts *j, const struct rule *rule, struct rank_facts *rank, unsigned leaves,
                           int64_t time, int64_t headroom, char *text);
/* Makes a finding that promises no time. */
struct finding *remark(struct rule_facts *j, const struct rule *rule, struct rank_facts *rank, enum severity severity,
                       char *text);
/* Adds a value and the command that shows it. `what` is freed. */
void add_evidence(struct finding *f, char *what, const char *command);
/* Sets file and line of a finding from the program's own line in a recorded stack (model/frames.h). */
void set_line(struct rule_facts *j, struct finding *f, uint32_t stack);
struct rank_facts *facts_of_rank(const struct rule_facts *j, int64_t rank);
/* True if a process belongs to a judged rank and makes its time. */
bool counts_for(const struct rule_facts *j, const struct process *process, const struct rank_facts *rank);
/* Visits the processes that make the time of a rank. */
#define EACH_PROCESS(j, rank, p)                                                                                       \
    for (size_t each_ = 0; each_ < (j)->chosen->processes; each_++)                                                    \
        for (const struct process *p = (j)->chosen->process[each_]; p && counts_for(j, p, rank); p = NULL)
/* The name of a fact's operator. */
const char *named(const struct rule_facts *j, uint32_t name);

judge judge_leaf, judge_chains, judge_weakest;
judge judge_loop, judge_sync, judge_double, judge_autograd, judge_conversions, judge_attention, judge_host_operators;
judge judge_alignment, judge_engines, judge_grids, judge_pageable, judge_small_copies;
judge judge_late_work, judge_late_speed, judge_late_host, judge_small_collectives, judge_clocks;
judge judge_slow_batch, judge_small_reads, judge_small_writes, judge_repeated_reads;
judge judge_threads, judge_recompiled, judge_graph_breaks, judge_first_calls, judge_start, judge_own_cost;
judge judge_repeated_part, judge_kept_memory, judge_near_limit, judge_python_line, judge_coroutine, judge_system_call;
judge judge_dispatches;

#endif
