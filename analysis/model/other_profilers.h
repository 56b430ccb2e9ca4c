/* other_profilers.h - finds when another profiler owned the device: work launched then has no device records. */
#ifndef TFA_OTHER_PROFILERS_H
#define TFA_OTHER_PROFILERS_H

#include "model/model.h"

/* Pairs the records into periods, after process_finish: sorted by time, without overlaps. */
void elsewheres_pair(struct process *process);
/* Returns the name of a profiler that owned the device between the two times; NAME_NONE if there was none. */
uint32_t elsewhere_between(const struct process *process, int64_t start, int64_t end);

#endif
