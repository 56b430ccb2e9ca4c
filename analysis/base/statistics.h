/* statistics.h - computes statistics of a list of durations (sum, mean, percentiles, standard deviation), and the median
 * of other numbers. */
#ifndef TFA_STATISTICS_H
#define TFA_STATISTICS_H

#include <stddef.h>
#include <stdint.h>

struct values {
    int64_t *value; /* nanoseconds */
    size_t count, capacity;
    int64_t total;
};

void values_add(struct values *values, int64_t value);
void values_sort(struct values *values);
int64_t values_mean(const struct values *values);
/* Interpolates linearly between the two neighbours (numpy.percentile's default). Needs sorted values, at least one. */
int64_t values_percentile(const struct values *values, double share);
/* Uses ddof 1. Returns -1 for fewer than two values. */
int64_t values_deviation(const struct values *values);
void values_free(struct values *values);

/* Compares two doubles for qsort: the smaller one first. */
int by_double(const void *a, const void *b);
/* Returns the median of sorted numbers, at least one. Between two in the middle it is their mean. */
double median_of_sorted(const double *number, size_t count);
/* The same of numbers in any order, which it sorts; NAN if there are none. */
double median_of_numbers(double *number, size_t count);

#endif
