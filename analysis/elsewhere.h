/* elsewhere.h - when another profiler had the device to itself: what was launched then has no device records. */
#ifndef TFA_ELSEWHERE_H
#define TFA_ELSEWHERE_H

#include "model.h"

/* After process_finish: what the records say, from and to, in the order of time and without overlaps. */
void elsewheres_pair(struct process *process);
/* The name of who had the device at some time between; NAME_NONE if nobody had. */
uint32_t elsewhere_between(const struct process *process, int64_t start, int64_t end);

#endif
