/* queue_lengths.h - the depth of each stream's launch queue. */
#ifndef TFA_QUEUE_LENGTHS_H
#define TFA_QUEUE_LENGTHS_H

#include "ask/choice.h"
#include "ask/reduction.h"

/* The depth rises when work is launched and falls when it starts. */
struct queue_change {
    int64_t time;
    int32_t by;  /* 1 or -1 */
    bool chosen; /* by filters; the depth counts all work of the stream, because all of it waits in the queue */
};

struct queue_changes {
    struct queue_change *change;
    size_t count, capacity;
};

/* Statistics of the depths after each chosen change. */
struct queue_row {
    int64_t rank, device, stream; /* device -1: unknown, or all together */
    bool known;                   /* false: the rules have no answer for this rank */
    uint64_t count;
    double mean, std, q1, median, q3; /* std is NAN for fewer than two changes */
    int64_t min, max, blocked;        /* blocked: ns in which the queue was full */
};

struct queue_rows {
    struct queue_row *row;
    size_t count, capacity;
    uint64_t works; /* works of all rows: chosen starts */
    bool unknown;   /* a process has no row because its work is not in the trace */
};

void queue_change(struct queue_changes *changes, struct queue_change change);
/* Adds the row of a stream, whose changes are sorted here. Only what lies in the window counts. A stream without a chosen
 * change has no row. */
void queue_add(struct queue_rows *rows, struct queue_row row, struct queue_changes *changes, struct window window);
/* Sorts the rows by rank, device and stream. */
void queue_sort(struct queue_rows *rows);

/* Makes a struct queue_rows of the work of a process that the filters choose. */
extern const struct reduction queue_reduction;
void queue_collect(struct queue_rows *rows, void *const *taken, size_t count);
void queue_free(struct queue_rows *rows);

#endif
