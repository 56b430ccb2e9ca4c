/* deep.h - sums up the device work of very deeply nested stages, with sets.h. */
#ifndef TFA_STAGE_DEEP_H
#define TFA_STAGE_DEEP_H

#include "ask/stages/table.h"

/* `chosen` and `when` are indexed by work. */
void stages_add_deep(struct stage_table *table, const struct choice *choice, const bool *chosen,
                     const struct interval *when);

#endif
