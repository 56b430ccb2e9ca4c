/* judge.h - compares the counts of stages with a budget. */
#ifndef TFA_BUDGET_JUDGE_H
#define TFA_BUDGET_JUDGE_H

#include "ask/budget/budget_file.h"
#include "ask/budget/counts.h"

/* Only WITHIN keeps the budget. A count above it is EXCEEDED, whatever else is missing; the others cannot be judged. */
enum verdict {
    WITHIN,
    EXCEEDED,
    STAGE_ABSENT,     /* no rank has the stage */
    NOT_RECORDED,     /* the stage was open, its calls were not recorded */
    TRACE_INCOMPLETE, /* more calls may be lost */
    RANK_ABSENT,      /* a rank has no trace */
    NR_VERDICTS
};
extern const char *const verdict_names[NR_VERDICTS];

/* One count of one stage and rank. */
struct judgement {
    const struct budget_entry *entry;
    const struct stage_counts *row; /* NULL: STAGE_ABSENT, RANK_ABSENT */
    enum call_kind kind;
    enum verdict verdict;
};

struct judgements {
    struct judgement *judgement; /* in the order of the budget, then by rank */
    size_t count, capacity;
    size_t of_verdict[NR_VERDICTS];
};

/* Judges each rank by itself. A rank without a stage keeps its budget if another rank has the stage. `whole`: all
 * traces are whole. A trace that is cut may lack a stage altogether, so no rank keeps the budget if one is. `absent`:
 * some ranks have no trace, and no count can be judged for them. The judgements point into `budget` and `counts`. */
void judge(struct judgements *judgements, const struct budget *budget, const struct counts *counts,
           const struct model *model, bool whole, bool absent);
void judgements_free(struct judgements *judgements);
/* True if each stage keeps its budget and all could be judged. */
bool all_within(const struct judgements *judgements);

/* The stage's name as the file of a budget has it: UTF-8, with U+FFFD for invalid bytes. The caller frees it. */
char *budget_name(const struct model *model, uint32_t stage);

/* The budget that a run keeps exactly: the most of any rank, by name. A count that some rank does not know is left out,
 * and so is a stage that was not recorded. Free it with budget_free. */
void budget_of(struct budget *budget, const struct counts *counts, const struct model *model);

#endif
