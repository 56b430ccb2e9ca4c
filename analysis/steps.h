/* steps.h - the steps of torch.profiler, which are stages with a number in their name. */
#ifndef TFA_STEPS_H
#define TFA_STEPS_H

#include "json.h"
#include "model.h"

#define ANY_STEP "ProfilerStep*"

/* The number of a step of the profiler; false: the name is of none. */
bool step_number(struct slice name, uint64_t *number);
/* Steps of all numbers are one stage, ANY_STEP; which one a range is says its column `step`. */
void name_steps(struct process *process, struct names *names);

#endif
