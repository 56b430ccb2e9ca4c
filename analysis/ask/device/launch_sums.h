/* launch_sums.h - the sums over calls that start or await work by rank, stage and function. Processes are added in any
 * order.
 */
#ifndef TFA_LAUNCH_SUMS_H
#define TFA_LAUNCH_SUMS_H

#include "ask/budget/counts.h"
#include "ask/row_order.h"

struct launch_sum {
    struct row_head head; /* must be first; its time is host time */
    enum call_kind kind;
    bool has_device, has_operators; /* the traces of its rank have such records */
    bool lacks_links;               /* nothing tells which work a call of it launched */
    uint64_t calls, started, short_kernels, slow, delayed;
    int64_t device, delay;
};

struct launch_sums {
    struct model *model;
    bool wants_counts; /* by rank and stage, for a budget */
    KEYED_ROWS(struct launch_sum);
    struct map kind_of;   /* by name */
    struct map is_native; /* by name: 1 for an operator of another library */
    struct counts counts; /* with wants_counts, after launch_sums_end */
    bool has_operators;   /* a trace has such records */
    struct left_rows left;
};

/* Adds the calls of a process that the filters choose. */
void launch_sums_add(struct launch_sums *sums, struct scope *scope);
/* Sorts the rows and fills the counts. Call it after the last launch_sums_add. */
void launch_sums_end(struct launch_sums *sums);
void launch_sums_free(struct launch_sums *sums);

#endif
