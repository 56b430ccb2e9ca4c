/* findings.c - asks the rules of advise.def about each rank, and names what could not be judged. */
#include "advise/findings.h"

#include <stdlib.h>
#include <string.h>

#include "advise/rules/rule_facts.h"
#include "advise/rules/not_judged.h"

const char *const severity_names[] = {"note", "finding", "problem"};

#define LEAF_OF(leaf) judge_leaf, LEAF_##leaf
#define FACT(function) function, NR_LEAVES
static const struct rule rules[] = {
#define RULE(id, how, least, keeps, confidence, finding, cause, fix, confirm)                                          \
    {id, how, least, keeps, confidence, finding, cause, fix, confirm},
#include "advise/advise.def"
};

struct needs advise_needs(const struct options *options)
{
    struct needs rules_need = {.machine = true,
                               .samples = true,
                               .copied = true,
                               .filling = true,
                               .collectives = true,
                               .memory = true,
                               .stages_of_spans = true,
                               .stage_names = true,
                               .stream = STREAM_HELD};
    return needs_union(needs_union(wall_needs(options), roofline_needs(options)), rules_need);
}

/* ---- all ---- */

static int findings_by_headroom(const void *a, const void *b)
{
    const struct finding *x = a, *y = b;
    if (x->headroom != y->headroom) return by_number(y->headroom, x->headroom);
    return x->severity != y->severity ? by_number(y->severity, x->severity) : strcmp(x->id, y->id);
}

/* Puts a rule's findings about other ranks behind the first finding of each rule. Further lines of the same rank are
 * findings of their own. */
static void put_repeats_last(struct advice *a)
{
    struct finding *sorted = mem_zero(a->findings, sizeof *sorted);

    const struct finding *first[ARRAY_SIZE(rules)] = {0};
    size_t count = 0;
    for (size_t i = 0; i < a->findings; i++) {
        size_t rule = 0;
        while (rules[rule].id != a->finding[i].id) rule++;
        struct finding *f = &a->finding[i];
        bool is_line = f->headroom && f->file && f->where == NAME_NONE;
        if (!first[rule]) first[rule] = f;
        f->is_repeat = first[rule] != f && !(is_line && f->rank == first[rule]->rank);
    }
    for (int repeats = 0; repeats < 2; repeats++)
        for (size_t i = 0; i < a->findings; i++)
            if (a->finding[i].is_repeat == repeats) sorted[count++] = a->finding[i];
    a->firsts = 0;
    while (a->firsts < count && !sorted[a->firsts].is_repeat) a->firsts++;
    free(a->finding);
    a->finding = sorted;
}

static void find_ranks(struct rule_facts *j)
{
    j->rank = mem_zero(j->walls->count, sizeof *j->rank);
    for (size_t i = 0; i < j->walls->count; i++) {
        const struct wall_part *part = wall_judged(&j->walls->wall[i]);
        if (!part) continue;
        struct rank_facts *rank = &j->rank[j->ranks++];
        rank->wall = &j->walls->wall[i];
        rank->part = part;
        rank->work = wall_work(part);
        rank->device = rank->wall->works > 0;
        memcpy(rank->left, part->time, sizeof rank->left);
    }
}

static void add_facts(struct rule_facts *j)
{
    for (size_t i = 0; i < j->chosen->processes; i++) {
        struct rank_facts *rank = facts_of_rank(j, j->chosen->process[i]->rank);
        if (!rank || !counts_for(j, j->chosen->process[i], rank)) continue;
        struct scope *scope = scope_begin(j->chosen, i);
        op_facts_add(&rank->facts, scope, rank->wall);
        scope_end(scope);
    }
}

void advise(struct advice *advice, const struct selection *chosen, const struct walls *walls,
            const struct roofline *roofline)
{
    struct rule_facts j = {.advice = advice, .chosen = chosen, .walls = walls, .roofline = roofline};
    *advice = (struct advice){0};
    find_ranks(&j);
    add_facts(&j);
    for (size_t i = 0; i < ARRAY_SIZE(rules) && j.ranks; i++) rules[i].judge(&j, &rules[i]);
    find_unjudged(&j);
    if (advice->findings) qsort(advice->finding, advice->findings, sizeof *advice->finding, findings_by_headroom);
    put_repeats_last(advice);
    for (size_t i = 0; i < j.ranks; i++) op_facts_free(&j.rank[i].facts);
    free(j.late);
    free(j.rank);
}

void advice_free(struct advice *advice)
{
    for (size_t i = 0; i < advice->findings; i++) {
        struct finding *f = &advice->finding[i];
        free(f->text);
        free(f->words);
        free(f->file);
        free(f->function);
        for (size_t k = 0; k < f->evidences; k++) {
            free(f->evidence[k].what);
            free(f->evidence[k].command);
        }
    }
    for (size_t i = 0; i < advice->unjudged; i++) free(advice->not_judged[i].why);
    free(advice->finding);
    free(advice->not_judged);
    *advice = (struct advice){0};
}
