/* paths.h - finds the innermost open stage around a moment, among all stages or among the chosen ones.
 *
 * Each event needs the nearest stage around its own that was still open and has a chosen name. Stages may nest a
 * hundred thousand deep, so the search does not climb stage by stage. On a stage's way outwards, only a stage that
 * ends later than all before it can be the answer. Links of doubling length over these stages reach it in logarithmic
 * time, however many stages have ended by then.
 */
#ifndef TFA_STAGE_PATHS_H
#define TFA_STAGE_PATHS_H

#include "model/model.h"

struct stage_paths {
    const struct ranges *ranges;
    bool *left_out;   /* by range: the stage does not count; NULL: all stages count */
    uint32_t *outer;  /* by range: the innermost counting stage it was opened in, or NO_PLACE */
    uint32_t *up;     /* by counting range: the next counting stage outwards that ends later */
    uint32_t *jump;   /* by counting range: a link over several `up` */
    uint32_t *height; /* by counting range: number of stages on its chain of `up`, itself included */
};

/* `outer` is the stage around each of all stages; NULL: computed here. `order` comes from stages_sorted. The paths free
 * `left_out`. */
void stage_paths_init(struct stage_paths *paths, const struct process *process, const size_t *order, size_t count,
                      const uint32_t *outer, bool *left_out);
void stage_paths_free(struct stage_paths *paths);
/* Returns the innermost counting stage among `stage` itself, which is open, and the stages around it that are open at
 * `time`; NO_PLACE: none. */
uint32_t stage_or_around(const struct stage_paths *paths, uint32_t stage, int64_t time);
/* The same without `stage` itself. */
uint32_t stages_around(const struct stage_paths *paths, uint32_t stage, int64_t time);

#endif
