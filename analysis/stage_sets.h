/* stage_sets.h - the device work in the stages of each name, where stages lie so deep in each other that work can't be
 * given to each of them by itself.
 *
 * Work sorted by when it was launched lies in a stage from one place to another; so a name's work is a few stretches of
 * that order. Names are gone through in such an order, the larger one of those inside a name just before it, that each
 * differs little from the one before: only what differs is added and removed. Where names nest that is N log N in all.
 */
#ifndef TFA_STAGE_SETS_H
#define TFA_STAGE_SETS_H

#include "attribute.h"

struct stage_sets {
    const struct attribution *attribution;
    const bool *chosen;  /* by work: it counts */
    const uint32_t *one; /* by name: what it counts as, NAME_NONE where it is none; NULL: as itself */
    void *context;
    void (*change)(void *context, uint32_t work, bool add);
    void (*name)(void *context, uint32_t name); /* the work now there is all that lies in stages of this name */
};

/* Whether that is more than may be gone through one by one. */
bool stages_are_deep(const struct attribution *attribution, const bool *chosen);
void stage_sets_visit(const struct stage_sets *sets);

#endif
