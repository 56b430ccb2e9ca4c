/* kineto_nesting.h - makes the events of a Kineto trace nest where their times do not quite. */
#ifndef TFA_KINETO_NESTING_H
#define TFA_KINETO_NESTING_H

#include "model/model.h"

/* Lets each Python function end with its caller at the latest, each step of the profiler with the start of the next one, and
 * finds out by how much the file's times are rounded. Times are still as they stand in the file. */
void kineto_nest(struct process *process, bool is_absolute);

#endif
