/* open_times.h - the times in which a chosen stage, step and cycle is open in some process of a rank.
 *
 * A worker has no stages: its calls count while a stage of its parent is open. The times are found once for each rank,
 * however many workers it has.
 */
#ifndef TFA_OPEN_TIMES_H
#define TFA_OPEN_TIMES_H

#include "ask/selection.h"
#include "base/sets/measure.h"

struct open_times {
    bool has_stages; /* some process of the rank has */
    struct intervals open;
    struct measure in_open;
};

/* Returns the times of a rank among the chosen processes; they live as long as the selection. */
const struct open_times *open_times_of(const struct selection *chosen, int64_t rank);

#endif
