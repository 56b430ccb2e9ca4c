/* models.h - what an operator has to compute and to move, from its name and inputs; and the peaks of devices. */
#ifndef TFA_ROOFLINE_MODELS_H
#define TFA_ROOFLINE_MODELS_H

#include "advise/roofline/inputs.h"

struct op_cost {
    bool known;
    double flops, bytes;
    enum element element; /* in which it computes */
};

struct op_cost op_cost(const char *name, const struct op_inputs *inputs);

/* The peaks of a device; operations and bytes a second. */
struct device_peaks {
    const char *name, *source;
    double bytes, fp64, fp32, tf32, fp16, fp8;
};

/* Returns the peaks of the first device of devices.def whose words stand in the name; NULL: an unknown device, or a part of one. */
const struct device_peaks *device_peaks(const char *name);
/* Appends the names in devices.def. */
struct text;
void devices_known(struct text *text);

/* Returns the shortest time in which a device can do it, in nanoseconds, and sets what bounds it: "compute" or "memory".
 * `took`: the time that it took; 0: unknown. A product of float32 that was faster than FP32 units can be counts as one of
 * TF32 units. */
double bound_ns(const struct op_cost *cost, const struct device_peaks *peaks, double took, const char **bound);

#endif
