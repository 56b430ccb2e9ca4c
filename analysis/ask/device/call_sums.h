/* call_sums.h - the sums over calls of CUDA and NCCL by function. Processes are added in any order. */
#ifndef TFA_CALL_SUMS_H
#define TFA_CALL_SUMS_H

#include "ask/scope.h"
#include "base/sets/rows_by_key.h"
#include "base/statistics.h"

struct call_sum {
    uint32_t name; /* the key */
    uint64_t errors;
    bool has_errors; /* the results are known */
    struct values values;
};

struct call_sums {
    struct names *names;
    KEYED_ROWS(struct call_sum);
    bool unknown; /* calls outside the selected stages are not in a trace */
};

/* Adds the calls of a process that the filters choose. */
void call_sums_add(struct call_sums *sums, struct scope *scope);
/* Sorts the rows: the longest time first. */
void call_sums_sort(struct call_sums *sums);
void call_sums_free(struct call_sums *sums);

#endif
