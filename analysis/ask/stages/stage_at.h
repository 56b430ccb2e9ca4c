/* stage_at.h - finds the stage of a single moment on a thread, by rules (1), (3) and (4) of attribute.h.
 *
 * attribute() answers for all calls, operators and device work at once. This is for items without a table in the model.
 */
#ifndef TFA_STAGE_AT_H
#define TFA_STAGE_AT_H

#include "ask/stages/paths.h"

/* From `time` on, `threads` threads have a stage open. If it is one thread, `which` is its serial. */
struct stage_moment {
    int64_t time;
    uint32_t threads, which;
};

struct stage_finder {
    const struct ranges *ranges;
    const size_t *order; /* stages_sorted */
    size_t count;
    const struct stage_paths *paths; /* over all stages */
    struct stage_moment *moment;
    size_t moments;
    struct stage_places *last; /* found last: the next question is often about the same stage */
};

/* The finder keeps pointers to its arguments. An attribution has one. */
void stage_finder_init(struct stage_finder *finder, const size_t *order, size_t count, const struct stage_paths *paths);
void stage_finder_free(struct stage_finder *finder);
/* Returns an index into process->ranges, or NO_PLACE. `thread` is a serial, or NO_THREAD. */
uint32_t stage_at(const struct stage_finder *finder, uint32_t thread, int64_t time);

#endif
