/* judge.c - finds the stages that each entry of a budget means, and compares their counts with it. */
#include "ask/budget/judge.h"

#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "pattern.h"

const char *const verdict_names[NR_VERDICTS] = {[WITHIN] = "within",
                                                [EXCEEDED] = "exceeded",
                                                [STAGE_ABSENT] = "stage absent",
                                                [NOT_RECORDED] = "not recorded",
                                                [TRACE_INCOMPLETE] = "trace incomplete",
                                                [RANK_ABSENT] = "rank absent"};

char *budget_name(const struct model *model, uint32_t stage)
{
    const struct name *name = names_get(&model->names, stage);
    struct text text = {0};
    text_utf8(&text, name->text, name->length);
    if (!text.data) return string_format("%s", "");
    for (size_t i = 0; i < text.length; i++) /* jansson refuses a zero in a text */
        if (!text.data[i]) text.data[i] = ' ';
    return text.data;
}

/* ---- the stages of the run by their names in a budget ---- */

/* Different names of the run may be one in a budget, and each rank has a row of its own. */
struct named {
    struct names names; /* as a budget has them */
    uint32_t *of_row;   /* number in `names`, by row */
    size_t *row;        /* the rows, by that number, then by rank */
    size_t *first;      /* index in `row`, by number, with one more at the end */
    size_t count;       /* of numbers */
};

static int by_rank(const void *a, const void *b, void *rows)
{
    const struct stage_counts *row = rows, *x = &row[*(const size_t *)a], *y = &row[*(const size_t *)b];
    return x->rank != y->rank ? by_number(x->rank, y->rank) : by_number((int64_t)x->stage, (int64_t)y->stage);
}

static void named_init(struct named *named, const struct counts *counts, const struct model *model)
{
    *named = (struct named){0};
    names_init(&named->names);
    named->of_row = mem_zero(counts->count, sizeof *named->of_row);
    named->row = mem_zero(counts->count, sizeof *named->row);
    for (size_t i = 0; i < counts->count; i++) {
        char *name = budget_name(model, counts->row[i].stage);
        named->of_row[i] = names_add(&named->names, name, strlen(name));
        free(name);
    }
    named->count = named->names.count;
    named->first = mem_zero(named->count + 2, sizeof *named->first);
    for (size_t i = 0; i < counts->count; i++) named->first[named->of_row[i] + 2]++;
    for (size_t i = 2; i < named->count + 2; i++) named->first[i] += named->first[i - 1];
    for (size_t i = 0; i < counts->count; i++) named->row[named->first[named->of_row[i] + 1]++] = i;
    for (size_t i = 0; i < named->count; i++)
        qsort_r(named->row + named->first[i], named->first[i + 1] - named->first[i], sizeof *named->row, by_rank,
                counts->row);
}

static void named_free(struct named *named)
{
    names_free(&named->names);
    free(named->of_row);
    free(named->row);
    free(named->first);
}

/* ---- judging ---- */

static enum verdict verdict_of(const struct budget_entry *entry, const struct stage_counts *row, enum call_kind kind,
                               bool whole)
{
    if (row->count[kind] > entry->most[kind]) return EXCEEDED;
    if (!row->recorded || row->partly) return NOT_RECORDED;
    if (!whole) return TRACE_INCOMPLETE; /* calls that a cut file lacks may have been recorded */
    return counts_are_known(row, kind) ? WITHIN : NOT_RECORDED;
}

/* `without_row`: the verdict if no rank has a row. */
static void add_judgement(struct judgements *j, const struct budget_entry *entry, const struct stage_counts *row,
                          bool whole, enum verdict without_row)
{
    for (enum call_kind kind = 0; kind < NR_CALL_KINDS; kind++) {
        if (!entry->has[kind]) continue;
        enum verdict verdict = row ? verdict_of(entry, row, kind, whole) : without_row;
        j->judgement = mem_grow(j->judgement, &j->capacity, j->count + 1, sizeof *j->judgement);
        j->judgement[j->count++] = (struct judgement){entry, row, kind, verdict};
        j->of_verdict[verdict]++;
    }
}

void judge(struct judgements *judgements, const struct budget *budget, const struct counts *counts,
           const struct model *model, bool whole, bool absent)
{
    struct named named;
    named_init(&named, counts, model);
    *judgements = (struct judgements){0};
    for (size_t i = 0; i < budget->count; i++) {
        const struct budget_entry *entry = &budget->entry[i];
        uint32_t exact = names_find(&named.names, entry->stage, strlen(entry->stage));
        bool known = exact < named.count && named.first[exact] < named.first[exact + 1], found = false;
        for (size_t n = known ? exact : 0; n < (known ? exact + 1 : named.count); n++) {
            const struct name *name = names_get(&named.names, (uint32_t)n);
            if (!known && (!budget_is_glob(entry->stage) || !tfi_glob(entry->stage, name->text, name->length, false)))
                continue;
            for (size_t k = named.first[n]; k < named.first[n + 1]; k++) {
                add_judgement(judgements, entry, &counts->row[named.row[k]], whole, WITHIN);
                found = true;
            }
        }
        if (!found || absent) add_judgement(judgements, entry, NULL, whole, absent ? RANK_ABSENT : STAGE_ABSENT);
    }
    named_free(&named);
}

bool all_within(const struct judgements *judgements)
{
    return judgements->of_verdict[WITHIN] == judgements->count;
}

void judgements_free(struct judgements *judgements)
{
    free(judgements->judgement);
    *judgements = (struct judgements){0};
}

/* ---- making a budget ---- */

void budget_of(struct budget *budget, const struct counts *counts, const struct model *model)
{
    struct named named;
    named_init(&named, counts, model);
    *budget = (struct budget){.entry = mem_zero(named.count, sizeof *budget->entry)};
    for (size_t n = 0; n < named.count; n++) {
        struct budget_entry entry = {0};
        bool known[NR_CALL_KINDS], any = false;
        memset(known, named.first[n] < named.first[n + 1], sizeof known);
        for (size_t i = named.first[n]; i < named.first[n + 1]; i++) {
            const struct stage_counts *row = &counts->row[named.row[i]];
            for (int kind = 0; kind < NR_CALL_KINDS; kind++) {
                known[kind] &= counts_are_known(row, (enum call_kind)kind);
                entry.most[kind] = MAX(entry.most[kind], row->count[kind]);
            }
        }
        for (int kind = 0; kind < NR_CALL_KINDS; kind++) any |= entry.has[kind] = known[kind];
        if (!any) continue;
        entry.stage = string_format("%s", names_get(&named.names, (uint32_t)n)->text);
        budget->entry[budget->count++] = entry;
    }
    named_free(&named);
}
