/* stages_deep.h - the device work of stages that lie very deep in each other, by stage_sets.h. */
#ifndef TFA_STAGES_DEEP_H
#define TFA_STAGES_DEEP_H

#include "stages.h"

/* `chosen` and `when` by work. */
void stages_add_deep(struct stage_table *table, const struct choice *choice, const bool *chosen,
                     const struct interval *when);

#endif
