/* health.h - clocks, power, temperature and throttle reasons of a rank's devices, summed by step.
 *
 * A sample belongs to the step that is open at its time. A sample outside of all steps counts for the collectives
 * outside of steps, if it lies between the first and the last collective of the process. Only devices whose kernels are
 * collectives count; all devices count if no kernel of a collective is known. A step that is shorter than the interval
 * of samples may have none of its own. It gets the last sample before it and the first one after it, each if it is at
 * most a second away.
 */
#ifndef TFA_COMM_HEALTH_H
#define TFA_COMM_HEALTH_H

#include "model/ranges/step_ranges.h"

/* A sum of known values; those of several processes are added up. */
struct health_sum {
    uint64_t samples;
    uint64_t clocks, clock_sum; /* MHz of the multiprocessors */
    uint64_t powers, power_sum; /* mW */
    uint64_t temperatures;
    uint64_t reasons_known, reasons; /* all reasons that held at some time */
    uint32_t clock_least;
    int32_t temperature_most;
};

struct health {
    int64_t rank, step; /* step: UNKNOWN_NUMBER: none */
    struct health_sum sum;
};

struct healths {
    struct health *health;
    size_t count, capacity;
};

/* Adds the samples of the process of `steps`. */
void health_take(struct healths *healths, const struct step_list *steps);
/* Adds the sums of another process. */
void health_add(struct healths *all, const struct healths *one);
/* Joins the sums of each rank and step. Called after the last addition. */
void health_join(struct healths *healths);
/* Returns the sum of a rank and step; NULL if there is no sample. */
const struct health_sum *health_find(const struct healths *healths, int64_t rank, int64_t step);
void health_free(struct healths *healths);

#endif
