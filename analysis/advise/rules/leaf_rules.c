/* leaf_rules.c - rules that look at one leaf of the budget, or at the operator furthest from the device's peaks. */
#include <stdlib.h>
#include <string.h>

#include "advise/rules/rule_facts.h"

/* The rank with the largest share of a leaf, as earlier rules left it. */
static struct rank_facts *worst_rank(const struct rule_facts *j, enum leaf leaf)
{
    struct rank_facts *worst = NULL;
    for (size_t i = 0; i < j->ranks; i++) {
        struct rank_facts *rank = &j->rank[i];
        if (!worst || percent(rank->left[leaf], rank->work) > percent(worst->left[leaf], worst->work)) worst = rank;
    }
    return worst;
}

/* Adds the operators that launched most of a leaf's kernels, as the roofline has them. */
static void add_launchers(struct rule_facts *j, struct finding *f, enum leaf leaf)
{
    const struct roofline *r = j->roofline;
    enum { SHOWN = 2 };
    bool *used = mem_zero(r->count, sizeof *used);
    for (size_t n = 0; n < SHOWN; n++) {
        size_t most = SIZE_MAX;
        for (size_t i = 0; i < r->count; i++) {
            bool fits = r->row[i].key.rank == f->rank && !used[i] && r->row[i].key.name != NAME_OUTSIDE &&
                        operator_leaf(names_get(&j->chosen->model->names, r->row[i].key.name)) == leaf;
            if (fits && (most == SIZE_MAX || r->row[i].device_ns > r->row[most].device_ns)) most = i;
        }
        if (most == SIZE_MAX) break;
        const struct roof_row *row = &r->row[most];
        used[most] = true;
        if (!n) f->where = row->key.name;
        add_evidence(f,
                     string_format("%s of one shape: %llu calls, %.3f ms of kernels", named(j, row->key.name),
                                   (unsigned long long)row->calls, ms(row->device_ns)),
                     "roofline");
    }
    free(used);
}

/* The same of operators that computed on the host. */
static void add_host_operators(struct rule_facts *j, struct finding *f, const struct rank_facts *rank, enum leaf leaf)
{
    const struct op_fact *most = NULL;
    for (size_t i = 0; i < rank->facts.ops.count; i++) {
        const struct op_fact *op = &rank->facts.ops.row[i];
        bool fits = operator_leaf(names_get(&j->chosen->model->names, op->name)) == leaf;
        if (fits && (!most || op->own > most->own)) most = op;
    }
    if (!most) return;
    f->where = most->name;
    set_line(j, f, most->stack);
    add_evidence(f,
                 string_format("%s %s: %llu calls, %.3f ms", named(j, most->name), named(j, most->shapes),
                               (unsigned long long)most->calls, ms(most->own)),
                 "ops --group-by name,shapes");
}

/* Names the leaf, and of work that computes the operators. */
static void explain_leaf(struct rule_facts *j, struct finding *f, const struct rank_facts *rank, enum leaf leaf)
{
    bool computes = LEAF_BIT(leaf) & COMPUTING;
    add_evidence(f, string_format("leaf `%s`: %.3f ms", leaf_rows[leaf].path[rank->device], ms(rank->part->time[leaf])),
                 "budget");
    if (computes && rank->device) add_launchers(j, f, leaf);
    else if (computes) add_host_operators(j, f, rank, leaf);
}

void judge_leaf(struct rule_facts *j, const struct rule *rule)
{
    struct rank_facts *rank = worst_rank(j, rule->leaf);
    int64_t time = rank->left[rule->leaf];
    if (!leaf_rows[rule->leaf].path[rank->device]) return;
    struct finding *f = claim(j, rule, rank, LEAF_BIT(rule->leaf), time, string_format("%s", rule->finding));
    if (f) explain_leaf(j, f, rank, rule->leaf);
}

/* Elementwise work of a rank that stands in chains; one operator between two products has nothing to be fused with. */
static int64_t chained(const struct rank_facts *rank)
{
    return MIN(rank->facts.chains.time, rank->left[LEAF_ELEMENTWISE]);
}

void judge_chains(struct rule_facts *j, const struct rule *rule)
{
    struct rank_facts *rank = &j->rank[0];
    for (size_t i = 1; i < j->ranks; i++)
        if (percent(chained(&j->rank[i]), j->rank[i].work) > percent(chained(rank), rank->work)) rank = &j->rank[i];
    const struct chains *chains = &rank->facts.chains;
    const struct chain_kind *most = chains_heaviest(chains);
    struct text which = {0};
    if (most) text_format(&which, "; most of it in %llu of ", (unsigned long long)most->count);
    for (uint64_t i = 0; most && i < MIN(most->links, (uint64_t)CHAIN_NAMES); i++)
        text_format(&which, "%s%.40s", i ? ", " : "", named(j, most->first[i]));
    if (most && most->links > CHAIN_NAMES) text_puts(&which, ", ...");
    struct finding *f =
        claim(j, rule, rank, LEAF_BIT(LEAF_ELEMENTWISE), chained(rank),
              string_format("elementwise work in %llu chains, which memory bounds: %.1f %s each%s",
                            (unsigned long long)chains->count, (double)chains->links / (double)MAX(chains->count, 1u),
                            rank->device ? "kernels" : "operators", which.data ? which.data : ""));
    text_free(&which);
    if (f) explain_leaf(j, f, rank, LEAF_ELEMENTWISE);
}

/* True if another rule has a finding about the operator. */
static bool has_finding(const struct rule_facts *j, const struct rank_facts *rank, uint32_t name)
{
    for (size_t i = 0; i < j->advice->findings; i++)
        if (j->advice->finding[i].where == name && j->advice->finding[i].rank == rank->wall->rank) return true;
    return false;
}

/* True for operators that the units for matrices compute. Memory bounds the others, and rules of their own look at them. */
static bool is_of_units(const struct rule_facts *j, uint32_t name)
{
    enum leaf leaf = operator_leaf(names_get(&j->chosen->model->names, name));
    return leaf == LEAF_MATRIX || leaf == LEAF_CONVOLUTION || leaf == LEAF_ATTENTION || strstr(named(j, name), "moe");
}

/* The time of a rank's device work that computes. */
static int64_t computing_time(const struct rank_facts *rank)
{
    int64_t time = 0;
    for (int leaf = LEAF_MATRIX; leaf <= LEAF_OTHER; leaf++) time = add_ns(time, rank->part->time[leaf]);
    return time;
}

/* The operator with the largest headroom, where it takes a tenth of the computing and twice the time that it must. Its
 * kernels may have names of another leaf: a convolution is computed as a product of matrices. */
void judge_weakest(struct rule_facts *j, const struct rule *rule)
{
    for (size_t i = 0; i < j->roofline->count; i++) {
        const struct roof_row *row = &j->roofline->row[i];
        struct rank_facts *rank = facts_of_rank(j, row->key.rank);
        if (!is_of_units(j, row->key.name) || !row->bound || !rank || has_finding(j, rank, row->key.name)) continue;
        int64_t headroom = roof_headroom(row);
        if (10 * row->device_ns < computing_time(rank) || 10 * headroom < 4 * row->device_ns) continue;
        struct finding *f =
            claim_some(j, rule, rank, COMPUTING, row->device_ns, headroom, string_format("%s", rule->finding));
        if (!f) return;
        f->where = row->key.name;
        add_evidence(f,
                     string_format("%s %s: %llu calls, bound by %s, %.1f %% of the peak", named(j, row->key.name),
                                   named(j, row->key.shapes), (unsigned long long)row->calls, row->bound,
                                   percent((int64_t)row->bound_ns, row->device_ns)),
                     "roofline");
        return;
    }
}
