/* stage_paths.h - the stages around a moment, of all of them or of those that were asked for.
 *
 * "Which stage around this one was still open then, and has a name that is wanted?" is asked for each event, and stages may
 * lie in each other a hundred thousand deep. So no answer climbs stage by stage: of a stage's way outwards only those that
 * end later than all before them can be the next open one, and links over them, of lengths that double, reach it in
 * logarithmic time, however many are over by then.
 */
#ifndef TFA_STAGE_PATHS_H
#define TFA_STAGE_PATHS_H

#include "model.h"

struct stage_paths {
    const struct ranges *ranges;
    const uint32_t *of_name; /* stages count whose name has the number `target` here; NULL: all of them */
    uint32_t target;
    uint32_t *outer;  /* by range: the innermost stage that counts it was opened in, or NO_PLACE */
    uint32_t *up;     /* by range that counts: the next one outwards that ends later than it */
    uint32_t *jump;   /* a link over several `up` */
    uint32_t *height; /* how many `up` there are */
};

/* `outer` as all stages have it, or NULL: then it is found. `order` is that of stages_sorted. */
void stage_paths_init(struct stage_paths *paths, const struct process *process, const size_t *order, size_t count,
                      const uint32_t *outer, const uint32_t *of_name, uint32_t target);
void stage_paths_free(struct stage_paths *paths);
/* The innermost that counts of `stage`, which is open, and those around it that are open at `time`; NO_PLACE: none. */
uint32_t stage_or_around(const struct stage_paths *paths, uint32_t stage, int64_t time);
/* The same of those around it alone. */
uint32_t stages_around(const struct stage_paths *paths, uint32_t stage, int64_t time);

#endif
