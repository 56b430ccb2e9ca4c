/* rank_times.h - the device work of each rank by kind: the sets behind timeline, kinds and overlap.
 *
 * All processes and devices of a rank are merged: simultaneous work of two devices counts once, so a rank's busy time
 * never exceeds its total. Each set is a union (intervals.h). Only kernels, copies and sets count.
 * A rank's total is measured piece by piece: our traces of a rank are one piece, and each PyTorch trace is another one,
 * because the time between two of them is unknown.
 */
#ifndef TFA_RANK_TIMES_H
#define TFA_RANK_TIMES_H

#include "ask/reduction.h"
#include "ask/work_kinds.h"
#include "base/sets/intervals.h"

/* The summary of a process or of a rank. rank_time_merge is associative and commutative. */
struct rank_time {
    int64_t rank;
    int64_t total; /* set by timeline_collect: last end less first start of the work; summed over the pieces */
    uint64_t works;
    bool unknown;                         /* some work that ran meanwhile is not in the trace */
    int64_t first, last;                  /* bounds of the work of our traces; first is above last: none */
    struct intervals pieces;              /* merged: the bounds of the work of each PyTorch trace */
    struct intervals kind[NR_WORK_KINDS]; /* merged */
};

struct timeline {
    double ns; /* nanoseconds per unit of the times here: 1 by our rules */
    struct rank_time *rank;
    size_t count;
    uint64_t works;
    bool unknown; /* of some rank */
};

/* Makes a struct rank_time of the work of a process that the filters choose. */
struct needs timeline_needs(const struct options *options);
extern const struct reduction timeline_reduction;

/* Which work of a process counts, and when it ran, by other rules than ours. */
struct time_rules {
    const struct kind_rules *kinds;
    bool (*counts)(void *context, size_t work);
    struct interval (*times)(void *context, struct interval when);
};
/* Makes one by these rules. NULL: ours. */
struct rank_time *rank_time_of(struct scope *scope, const struct time_rules *rules, void *context);
/* Frees one with its struct. */
void rank_time_drop(void *rank);
/* Moves the work of `b` into `a`; `b` has none afterwards. Both have the same rank. */
void rank_time_merge(struct rank_time *a, struct rank_time *b);
void rank_time_free(struct rank_time *rank);

/* Unites the summaries of the chosen processes by rank. `taken` has a struct rank_time for each, which is empty
 * afterwards. */
void timeline_collect(struct timeline *timeline, const struct selection *chosen, void *const *taken);
/* The same for processes that are loaded with what timeline_reduction wants. */
void timeline_of_model(struct timeline *timeline, const struct selection *chosen);
void timeline_free(struct timeline *timeline);
int64_t timeline_ns(const struct timeline *timeline, int64_t time);

#endif
