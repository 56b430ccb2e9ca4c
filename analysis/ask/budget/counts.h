/* counts.h - the calls of each stage that a budget limits, and whether they can be known.
 *
 * A count of 0 may mean that a stage made no call. It may also mean that its calls were not recorded: the stage is not
 * in ENABLE_PROFILER_NAMES, recording was off, or TFI_ACTIVITIES leaves the calls out. Only a stage that made no call
 * keeps a budget. A part of the calls keeps none either: the stage around selects some entries of the stage and not
 * others, or a trigger or a time switched recording off. A schedule, and cudaProfilerStart and Stop, choose the same
 * part each time.
 */
#ifndef TFA_BUDGET_COUNTS_H
#define TFA_BUDGET_COUNTS_H

#include "ask/scope.h"
#include "ask/device/call_kinds.h"
#include "base/sets/rows_by_key.h"

struct stage_counts {
    int64_t rank;
    uint32_t stage; /* a name, also NAME_RUN and NAME_OUTSIDE; with the rank the key */
    bool recorded;  /* the calls in at least one entry were recorded */
    bool partly;    /* those in some entry were not, though the schedule was on */
    bool unknown[NR_CALL_KINDS];
    uint64_t count[NR_CALL_KINDS];
};

struct counts {
    KEYED_ROWS(struct stage_counts); /* by order of appearance */
};

/* Returns the row of a stage; creates it if needed, which may move the other rows. */
struct stage_counts *counts_row(struct counts *counts, int64_t rank, uint32_t stage);
/* Adds the stages of a process, with counts of 0. `calls`: it has at least one call of a kind; `operators`: it has
 * operator records. */
void counts_add_stages(struct counts *counts, const struct scope *scope, bool calls, bool operators);
/* True if the counts are those of the stage. */
bool counts_are_known(const struct stage_counts *row, enum call_kind kind);
void counts_free(struct counts *counts);

#endif
