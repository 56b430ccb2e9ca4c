/* flops.h - floating point operations of an operator, by torch.profiler's rules. */
#ifndef TFA_FLOPS_H
#define TFA_FLOPS_H

#include "json.h"

/* Counts as torch/csrc/profiler/util.cpp does (torch 2.15): aten::conv2d, mm, addmm, bmm, baddbmm, mul and add; 0 for every
 * other operator and where the inputs do not tell. `dims`, `types` and `concrete` are the values of "Input Dims", "Input
 * type" and "Concrete Inputs"; without `at` where the event has none. */
uint64_t op_flops(struct slice name, struct slice dims, struct slice types, struct slice concrete);

#endif
