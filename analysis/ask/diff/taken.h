/* taken.h - what `diff` takes of each process: calls and time by name. */
#ifndef TFA_DIFF_TAKEN_H
#define TFA_DIFF_TAKEN_H

#include "ask/reduction.h"
#include "ask/work_kinds.h"

/* The kinds of rows; those below NR_WORK_KINDS are kinds of device work. */
enum diff_kind {
    DIFF_OPERATOR = NR_WORK_KINDS,
    DIFF_STAGE,
    DIFF_HTA_HOST,  /* a row of HTA's frame without a stream */
    DIFF_HTA_DEVICE /* one with a stream */
};

struct diff_item {
    int64_t step; /* of HTA's rows: the N of ProfilerStep#N; else 0 */
    uint32_t name;
    uint8_t kind;
    uint64_t calls;
    int64_t time;
    int64_t last, last_end; /* of a stage: duration and end of its last call */
};

struct diff_taken {
    struct diff_item *item;
    size_t count, capacity;
    struct map places; /* while taking: index by name, kind and step */
    struct map steps;  /* while taking: number of a step */
    bool has_stages;
    bool has_step;
    int64_t first_step; /* of HTA's rows, also of steps without an item */
};

/* Adds a call. `step` as in struct diff_item. */
struct diff_item *diff_take(struct diff_taken *taken, uint32_t name, enum diff_kind kind, int64_t step, int64_t time);

/* The reduction of `diff`; its summaries are struct diff_taken. */
extern const struct reduction diff_reduction;

/* Returns the value of --by. The default is kernels; with it, HTA's rules compare all rows. */
enum diff_by diff_by(const struct options *options);

#endif
