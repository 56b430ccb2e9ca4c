/* ncu_kernels.h - the kernels that Nsight Compute measured, each with the medians over its launches, and what bounds it.
 *
 * A kernel is one name with one grid and one block size: with another grid it does other work.
 */
#ifndef TFA_NCU_KERNELS_H
#define TFA_NCU_KERNELS_H

#include "read/ncu/ncu.h"

enum ncu_bound { BOUND_UNKNOWN, BOUND_MEMORY, BOUND_COMPUTE, BOUND_BOTH, BOUND_LATENCY, NR_BOUNDS };
extern const char *const ncu_bounds[NR_BOUNDS]; /* NULL for the first */

struct ncu_kernel {
    const struct ncu_launch *first; /* its names and texts are those of the kernel */
    uint64_t launches;
    double metric[NR_NCU_METRICS]; /* medians; NAN: not measured */
};

struct ncu_kernels {
    struct ncu_kernel *kernel;
    size_t count;
};

/* Groups the launches, which must stay. The order is that of the first launches. */
void ncu_kernels_of(struct ncu_kernels *kernels, const struct ncu_launches *launches);
void ncu_kernels_free(struct ncu_kernels *kernels);

/* Judges a kernel. Adds one line for each fact that speaks for the answer, or for why there is none. `nearer` is the unit
 * nearer to its peak: memory, compute, or NULL if none is. */
enum ncu_bound ncu_judge(const struct ncu_kernel *kernel, struct text *evidence, const char **nearer);

#endif
