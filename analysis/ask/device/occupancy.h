/* occupancy.h - estimates which share of a device's warps a kernel keeps busy, from its launch. */
#ifndef TFA_OCCUPANCY_H
#define TFA_OCCUPANCY_H

#include <stdint.h>

/* The resources that one block of a kernel takes. */
struct block_needs {
    uint64_t threads, registers, shared; /* registers: of a thread; shared: bytes */
};

/* Returns the occupancy in percent, as Kineto defines "est. achieved occupancy %"; NAN if it is unknown. `capability`: major *
 * 100 + minor; `blocks`: of the grid, by multiprocessor. */
double occupancy_estimate(uint32_t capability, const struct block_needs *block, double blocks);

#endif
