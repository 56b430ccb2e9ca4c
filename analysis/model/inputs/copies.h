/* copies.h - leaves out inputs that would count a process twice. */
#ifndef TFA_COPIES_H
#define TFA_COPIES_H

#include "model/input.h"

/* Leaves out, with a note, PyTorch traces of a process that a trace of ours covers, and second PyTorch traces of a rank
 * at the same time. Called once all inputs are read; the descriptions of their processes are enough. */
void inputs_leave_out_copies(struct inputs *inputs);

#endif
