/* sample_flames.h - adds up sampled times by stack: the input of a flame graph. */
#ifndef TFA_SAMPLE_FLAMES_H
#define TFA_SAMPLE_FLAMES_H

#include "ask/ops/op_flames.h"

/* Adds the stacks of all chosen processes, by `options->metric`. */
void sample_flames(struct flames *flames, const struct selection *chosen);

#endif
