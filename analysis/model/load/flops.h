/* flops.h - counts floating point operations of an operator by torch.profiler's rules. */
#ifndef TFA_FLOPS_H
#define TFA_FLOPS_H

#include "read/json/json.h"

/* Counts as torch/csrc/profiler/util.cpp does (torch 2.15): aten::conv2d, mm, addmm, bmm, baddbmm, mul and add.
 * Returns 0 for every other operator, and if the inputs are insufficient. `dims`, `types` and `concrete` are the
 * values of "Input Dims", "Input type" and "Concrete Inputs"; without `at` if the event lacks them. */
uint64_t op_flops(struct slice name, struct slice dims, struct slice types, struct slice concrete);

#endif
