/* sets.h - visits the device work of each stage name, for stages nested too deeply to add work to each one by itself.
 *
 * With work sorted by launch time, the work of a stage is one stretch, and the work of a name is a few stretches.
 * Names are visited in an order in which each differs little from the one before: the largest name inside a name
 * comes just before it. Only the differences are added and removed. If names nest, the total cost is N log N.
 */
#ifndef TFA_STAGE_SETS_H
#define TFA_STAGE_SETS_H

#include "ask/attribute.h"

struct stage_sets {
    const struct attribution *attribution;
    const bool *chosen;  /* by work: true if it counts */
    const uint32_t *one; /* by name: the name it counts as, or NAME_NONE; NULL: each name counts as itself */
    void *context;
    void (*change)(void *context, uint32_t work, bool add);
    void (*name)(void *context, uint32_t name); /* the current work is all work in stages of this name */
};

/* True if there are too many pairs of a work and a stage to visit one by one. */
bool stages_are_deep(const struct attribution *attribution, const bool *chosen);
void stage_sets_visit(const struct stage_sets *sets);

#endif
