/* hta.h - the analyses of HolisticTraceAnalysis 0.5.0 (the PyPI release), with its definitions and its rounding.
 *
 * Frozen: it follows that release and gains nothing. Each process is one rank. The values are unknown where HTA itself fails: with an IndexError if there is no device
 * work, with an assertion if idle and computing time add up to more than the total.
 */
#ifndef TFA_HTA_H
#define TFA_HTA_H

#include "compat/hta_frame.h"
#include "ask/work_kinds.h"
#include "base/sets/intervals.h"

/* get_temporal_breakdown */
struct hta_temporal {
    bool known; /* false: HTA fails */
    int64_t idle, compute, other, total;
};
struct hta_temporal hta_temporal(const struct hta_frame *frame);

/* get_comm_comp_overlap */
struct hta_overlap {
    int64_t time, communication;
};
struct hta_overlap hta_overlap_of(const struct hta_frame *frame);

/* First table of get_gpu_kernel_breakdown: adds to `total` by combination of kinds. Returns the number of rows. */
uint64_t hta_kinds_of(const struct selection *chosen, int64_t total[INTERVALS_COMBINATIONS]);

/* Second table of get_gpu_kernel_breakdown: the kernels of one rank, by descending total time. */
struct hta_kernel {
    uint32_t name;
    uint8_t kind;
    uint64_t calls;
    int64_t min, max;
    __int128 sum;
    double squares; /* sum of squared distances from the mean */
};
struct hta_kernels {
    struct hta_kernel *kernel;
    size_t count, capacity;
    struct map by_name;
    __int128 sum; /* total of all kernels */
};
void hta_kernels(struct hta_kernels *kernels, const struct hta_frame *frame, struct model *model);
void hta_kernels_free(struct hta_kernels *kernels);

/* numpy.round */
double hta_round(double value, int digits);
/* Clamps to int64_t nanoseconds. The sums of a really recorded trace always fit. */
int64_t hta_fitting(__int128 sum);

/* get_kernel_type */
extern const struct kind_rules hta_kind_rules;

#endif
