/* kineto_axis.h - puts the times of a loaded Kineto trace on the axis that all traces share. */
#ifndef TFA_KINETO_AXIS_H
#define TFA_KINETO_AXIS_H

#include "model/model.h"

/* Adds the trace's base, in nanoseconds, to all times of the process, and builds its clock. 0: the trace names no base. */
void kineto_set_axis(struct process *process, int64_t base);

#endif
