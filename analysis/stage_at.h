/* stage_at.h - which stage a moment of a thread lies in, asked one by one: rules (1), (3) and (4) of attribute.h.
 *
 * attribute() answers for all calls, operators and device work at once; this is for what the model keeps no table of.
 */
#ifndef TFA_STAGE_AT_H
#define TFA_STAGE_AT_H

#include "attribute.h"

/* From `time` on `threads` threads have a stage open; `which` is the one if there is one. */
struct stage_moment {
    int64_t time;
    uint32_t threads, which;
};

struct stage_finder {
    const struct process *process;
    const struct attribution *attribution;
    size_t *order; /* stages by thread and start */
    size_t count;
    struct stage_moment *moment;
    size_t moments;
};

#define NO_THREAD UINT32_MAX

void stage_finder_init(struct stage_finder *finder, const struct process *process,
                       const struct attribution *attribution);
void stage_finder_free(struct stage_finder *finder);
/* A place in process->ranges, or NO_PLACE. `thread` is a serial, or NO_THREAD. */
uint32_t stage_at(const struct stage_finder *finder, uint32_t thread, int64_t time);

#endif
