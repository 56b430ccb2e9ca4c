/* diff_reduction.h - what `diff` takes of each process: calls and time by name. */
#ifndef TFA_DIFF_REDUCTION_H
#define TFA_DIFF_REDUCTION_H

#include "ask/reduction.h"
#include "ask/work_kinds.h"

/* The kinds of rows; those below NR_WORK_KINDS are kinds of device work. */
enum diff_kind { DIFF_OPERATOR = NR_WORK_KINDS, DIFF_STAGE, DIFF_CALL };

struct tree;

struct diff_item {
    uint32_t name;
    uint8_t kind;
    uint64_t calls;
    int64_t time;
    int64_t last; /* of a stage: duration of its last call */
};

struct diff_taken {
    struct diff_item *item;
    size_t count, capacity;
    struct map places; /* while taking: index by name and kind */
    struct tree *tree; /* with --by tree, and then no items */
    bool has_stages;
    bool unknown; /* the sums lack work or operators that are not in the trace */
};

/* The reduction of `diff`; its summaries are struct diff_taken. */
extern const struct reduction diff_reduction;
struct needs diff_needs(const struct options *options);

/* Returns the value of --by, or its default. */
enum diff_by diff_by(const struct options *options);

#endif
