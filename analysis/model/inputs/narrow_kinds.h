/* narrow_kinds.h - leaves inputs out that have no meaning for a question. */
#ifndef TFA_NARROW_KINDS_H
#define TFA_NARROW_KINDS_H

#include "base/opts.h"
#include "model/input.h"

/* Leaves out what some question of the run does not read, with one message for each kind. */
void inputs_leave_out_kinds(struct inputs *inputs, const struct options *options);

#endif
