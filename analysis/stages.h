/* stages.h - which stage lies in which, and how long each took.
 *
 * A stage belongs to the thread that opened it; its parent is the innermost stage open on that thread when it began.
 * Times are clipped to a window, and a stage that does not touch it is left out.
 */
#ifndef TFA_STAGES_H
#define TFA_STAGES_H

#include "model.h"

struct stage_row {
    uint32_t name;
    int64_t rank;
    uint64_t calls;
    int64_t host;    /* entry to exit; what lies inside the same stage on the same thread counts once */
    int64_t self;    /* less its direct children */
    int64_t covered; /* while counting: up to where this thread's time is counted already */
    uint64_t epoch;  /* while counting: the thread that `covered` is of */
};

struct stage_table {
    struct stage_row *row;
    size_t count, capacity;
    struct map *by_name; /* one a rank, in the order of `rank` */
    int64_t *rank;
    size_t ranks;
    uint64_t epoch;
    uint64_t unfinished;
};

struct window {
    int64_t from, to;
};

void stages_add(struct stage_table *table, const struct process *process, struct window window);
void stages_free(struct stage_table *table);

/* The stages of a process, as places in process->ranges, sorted by thread, then by start, the outer one first. */
size_t *stages_sorted(const struct process *process, size_t *count);

#endif
