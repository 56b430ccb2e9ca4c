/* timeline.h - the device work of each rank by kind: the sets behind timeline, kinds and overlap.
 *
 * All processes and devices of a rank are merged: simultaneous work of two devices counts once, so a rank's busy time
 * never exceeds its total. Each set is a union (intervals.h). Only kernels, copies and sets count.
 */
#ifndef TFA_TIMELINE_H
#define TFA_TIMELINE_H

#include "ask/selection.h"
#include "ask/work_kinds.h"
#include "base/intervals.h"

struct rank_time {
    int64_t rank;
    int64_t total; /* last end less first start of its work; summed over the files of a rank */
    uint64_t works;
    int64_t first, last;                  /* while collecting: bounds of the current piece */
    uint64_t in_piece;                    /* works in the current piece */
    struct intervals pieces;              /* each from its first to its last */
    struct intervals kind[NR_WORK_KINDS]; /* merged */
};

struct timeline {
    double ns; /* nanoseconds per unit of the times here */
    struct rank_time *rank;
    size_t count, capacity;
    uint64_t works;
};

/* Returns the parts of the model to load, by --rules, --step, --cycle and --stage. */
unsigned timeline_wants(const struct options *options);
/* Collects the work that the filters choose, by the rules exact or tracelens. */
void timeline_collect(struct timeline *timeline, const struct selection *chosen);
void timeline_free(struct timeline *timeline);
int64_t timeline_ns(const struct timeline *timeline, int64_t time);

/* Converts a time of the model to the file's form: a double of microseconds since the file's own base. */
double file_us(const struct process *process, int64_t ns);

#endif
