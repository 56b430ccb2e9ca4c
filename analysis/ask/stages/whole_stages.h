/* whole_stages.h - the stages of a whole run of TFI_MODE=flight, by the library's sums. */
#ifndef TFA_WHOLE_STAGES_H
#define TFA_WHOLE_STAGES_H

#include "ask/stages/stage_table.h"

/* Adds the stages of the process by its sums if the trace lacks records of the run and no filter asks for single times.
 * Returns false otherwise. */
bool stages_add_whole(struct stage_table *table, const struct scope *scope, int64_t group);

#endif
