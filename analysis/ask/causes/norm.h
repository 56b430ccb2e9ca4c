/* norm.h - what is normal among numbers of which up to half may be too large, and which of them stand out.
 *
 * Half of the numbers, the smaller ones, are taken as good. The norm is their median, and the spread follows from the
 * median of their distances from it. So neither depends on how large the others are.
 */
#ifndef TFA_NORM_H
#define TFA_NORM_H

#include <stdbool.h>
#include <stddef.h>

struct norm {
    double middle, spread; /* spread: about a standard deviation of the good ones */
};

/* Sorts the numbers. At least one is there. */
struct norm norm_of(double *number, size_t count);
/* Returns how far above the norm a number stands out: `least`, or SPREADS times the spread if that is more. */
double norm_limit(const struct norm *norm, double least);

/* A number that counts as often as its weight says. */
struct weighted {
    double number, weight;
};
/* Returns the median by weight, and sorts the numbers. At least one is there. */
double weighted_median(struct weighted *weighted, size_t count);

#endif
