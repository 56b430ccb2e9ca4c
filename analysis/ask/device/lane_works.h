/* lane_works.h - the device work of a process by stream and start, with the start of each launch.
 *
 * The streams are those that --device and --stream choose. All their work is listed, because a gap between two works
 * that other filters choose may hold the work of others, and all of it waits in one queue.
 */
#ifndef TFA_LANE_WORKS_H
#define TFA_LANE_WORKS_H

#include "ask/scope.h"

struct lane_work {
    int64_t start, end, launched; /* launched: start of the launching call */
    uint32_t lane, work;          /* work: index in process->works */
    bool has_launch;
    bool at_any_time, chosen; /* chosen: by all filters; at_any_time: by all but the window */
};

struct lane_works {
    struct lane_work *work;
    size_t count, capacity;
    struct window window; /* of --from and --to */
};

void lane_works_init(struct lane_works *works, struct scope *scope);
void lane_works_free(struct lane_works *works);

#endif
