/* whole_run.h - what a trace of TFI_MODE=flight knows of the whole run: sums, and the moments whose seconds it kept. */
#ifndef TFA_WHOLE_RUN_H
#define TFA_WHOLE_RUN_H

#include "model/model.h"

/* All values of a stage, kernel, collective or sampled line, in nanoseconds. */
struct whole_sum {
    uint32_t what; /* TFI_AGGREGATE_* */
    uint32_t name; /* NAME_NONE: all that found no room in the library's table */
    uint64_t count;
    int64_t sum, again, least, most; /* `again`: the part that is of calls inside another call of the same stage */
    bool has_quantiles;
    uint64_t *bucket; /* number << TFI_AGGREGATE_COUNT_BITS | count, ascending */
    size_t buckets;
    double scale; /* nanoseconds of a unit of the buckets */
};

struct whole_moment {
    uint32_t cause; /* TFI_MOMENT_* */
    uint32_t name;  /* NAME_NONE: none */
    bool is_cut;    /* some of its records are missing */
    int64_t from, start, end;
    int64_t usual; /* of a slow call: a duration */
};

struct whole_run {
    struct whole_sum *sum;
    size_t sums, sum_capacity;
    struct whole_moment *moment;
    size_t moments, moment_capacity;
    uint64_t left_out;            /* moments */
    int64_t until;                /* the sums are of the run up to here */
    uint64_t sums_at, moments_at; /* ticks: of the rows that are here */
};

struct load;
void load_aggregates(struct load *load);
void load_kept(struct load *load);
/* Converts all times, as the clock is built, and says which part of the run the trace has. */
void whole_run_end(struct process *process, struct notes *notes);
void whole_run_free(struct whole_run *run);
void whole_sums_free(struct whole_run *run); /* the sums alone */

/* Returns the sums if the trace lacks records of the run and has such sums; NULL otherwise. */
const struct whole_run *whole_run_of(const struct process *process, uint32_t what);

/* Returns the value below which this share of the values lies, at most 0.8 % away from one of them; -1: unknown. */
int64_t whole_quantile(const struct whole_sum *sum, double share);

#endif
