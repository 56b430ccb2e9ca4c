/* step_ranges.h - recognises the steps of torch.profiler, folds other stage names with numbers in them, and finds the step
 * of a moment. */
#ifndef TFA_STEP_RANGES_H
#define TFA_STEP_RANGES_H

#include "model/model.h"
#include "read/json/json.h"

#define ANY_STEP "ProfilerStep*"

/* Parses the number of a profiler step. Returns false if the name is not of a step. */
bool step_number(struct slice name, uint64_t *number);
/* Gives all steps one stage name, ANY_STEP; the column `step` keeps the number of each range. Then folds the other names. */
void name_steps(struct process *process, struct names *names);
/* Folds the names of stages that differ in numbers alone, if a process has more than MOST_ALIKE of them: each number that
 * no letter touches becomes `*`. process->folded and process->full_name keep the names themselves. */
enum { MOST_ALIKE = 8 };
void fold_names(struct process *process, struct names *names);
/* Sets how the names of a model are shown. A glob of --stage with a number that no letter touches is meant for names that are
 * not folded. */
void names_choose(struct names *names, const struct options *options);
/* Returns the name of a range as it was recorded. */
uint32_t range_full_name(const struct process *process, size_t range);

/* The steps of a process by start, as indices in process->ranges. Steps do not overlap. All zero: no step. */
struct step_list {
    const struct process *process;
    size_t *range;
    size_t count;
};

void step_list_init(struct step_list *list, const struct process *process);
/* Returns the place in list->range of the step that is open at `time`; list->count if there is none. */
size_t step_list_at(const struct step_list *list, int64_t time);
void step_list_free(struct step_list *list);

#endif
