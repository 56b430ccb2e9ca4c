/* steps.h - recognises the steps of torch.profiler: stages with a number in their name. */
#ifndef TFA_STEPS_H
#define TFA_STEPS_H

#include "model/model.h"
#include "read/json/json.h"

#define ANY_STEP "ProfilerStep*"

/* Parses the number of a profiler step. Returns false if the name is not of a step. */
bool step_number(struct slice name, uint64_t *number);
/* Gives all steps one stage name, ANY_STEP; the column `step` keeps the number of each range. */
void name_steps(struct process *process, struct names *names);

#endif
