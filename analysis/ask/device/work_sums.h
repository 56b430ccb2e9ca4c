/* work_sums.h - the sums over device work by rank, stage and kernel, operator or category. Processes are added in any order. */
#ifndef TFA_WORK_SUMS_H
#define TFA_WORK_SUMS_H

#include "ask/row_order.h"
#include "ask/scope.h"
#include "ask/work_kinds.h"
#include "base/sets/rows_by_key.h"
#include "base/statistics.h"

/* Rules of ours or of another tool. */
struct breakdown_rules {
    const struct kind_rules *kinds;
    bool launched; /* by operator only work that an operator launched counts, and captures are not known */
};

struct work_sum {
    struct row_head head; /* must be first; its time is the total of the values */
    int kind;             /* enum work_kind, SEVERAL, or NOT_YET */
    int64_t of_rank;      /* total time of all rows of its rank */
    struct values values;
    bool of_whole_run;             /* by sums of the library: of `values` only the total is known */
    const struct whole_sum *whole; /* then of single calls; NULL: there are several sums */
    uint64_t calls;                /* then */
};
enum { SEVERAL = -1, NOT_YET = -2 };

struct work_sums {
    const struct breakdown_rules *rules;
    struct names *names;
    KEYED_ROWS(struct work_sum);
    struct work_kinds kinds;
    int64_t kernel_time;
    uint64_t launches, via[NR_VIAS], unlinked, replayed, uncaptured, by_order;
    struct map kernels; /* by name */
    struct left_rows left;
    bool of_whole_run; /* some rows are sums of the whole run */
    uint64_t others;   /* kernels that are in no row, as the library had no room for their sums */
};

void work_sums_init(struct work_sums *sums, const struct breakdown_rules *rules, struct names *names);
/* Adds the work of a process that the filters choose. */
void work_sums_add(struct work_sums *sums, struct scope *scope);
/* Sorts the rows, and sets `of_rank`. */
void work_sums_sort(struct work_sums *sums);
void work_sums_free(struct work_sums *sums);

#endif
