/* categories.h - the memory of each category over time, from the raw rows of torch's memory timeline. */
#ifndef TFA_MEMORY_CATEGORIES_H
#define TFA_MEMORY_CATEGORIES_H

#include "model/model.h"

/* In the order of torch's _CATEGORY_TO_INDEX; torch draws the last one as Unknown. */
extern const char *const memory_categories[MEMORY_CATEGORIES];
/* By BLOCK_*; NULL for memory that no call of CUDA gives. */
extern const char *const memory_kinds[BLOCK_KINDS];
extern const char *const memory_actions[NR_ACTIONS];

/* Goes through the rows one moment after the other, as _coalesce_timeline of torch and _process_raw_events of HTA do:
 * neighbouring rows with one time are a moment, and rows older than the profile stand at its first moment. torch cuts
 * times to microseconds before that; here they stay nanoseconds, as in HTA. */
struct category_walk {
    const struct process *process;
    size_t next;                      /* row */
    int64_t time;                     /* of the moment */
    int64_t bytes[MEMORY_CATEGORIES]; /* after it; a damaged file may make them negative */
    int64_t total;
};

void category_walk_init(struct category_walk *walk, const struct process *process);
/* Takes one row. The time is that of the row, -1 if it is older than the profile. */
bool category_walk_row(struct category_walk *walk);
/* Takes the rows of the next moment. Returns false at the end. */
bool category_walk_moment(struct category_walk *walk);

#endif
