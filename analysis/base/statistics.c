/* statistics.c - computes statistics of a list of durations. */
#include "base/statistics.h"

#include <math.h>
#include <stdlib.h>

#include "base/util.h"

void values_add(struct values *values, int64_t value)
{
    values->value = mem_grow(values->value, &values->capacity, values->count + 1, sizeof *values->value);
    values->value[values->count++] = value;
    values->total = add_ns(values->total, value);
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void values_sort(struct values *values)
{
    if (values->count) qsort(values->value, values->count, sizeof *values->value, by_value);
}

int64_t values_mean(const struct values *values)
{
    return llround((double)values->total / (double)values->count);
}

int64_t values_percentile(const struct values *values, double share)
{
    double at = share * (double)(values->count - 1);
    size_t below = (size_t)at;
    double rest = at - (double)below;
    int64_t first = values->value[below];
    int64_t step = below + 1 < values->count ? values->value[below + 1] - first : 0;
    return first + llround(rest * (double)step);
}

int64_t values_deviation(const struct values *values)
{
    double mean = (double)values->total / (double)values->count, squares = 0;
    if (values->count < 2) return -1;
    for (size_t i = 0; i < values->count; i++) {
        double away = (double)values->value[i] - mean;
        squares += away * away;
    }
    return llround(fmin(sqrt(squares / (double)(values->count - 1)), 9e18));
}

void values_free(struct values *values)
{
    free(values->value);
    *values = (struct values){0};
}

int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median_of_sorted(const double *number, size_t count)
{
    return count % 2 ? number[count / 2] : (number[count / 2 - 1] + number[count / 2]) / 2;
}

double median_of_numbers(double *number, size_t count)
{
    if (!count) return NAN;
    qsort(number, count, sizeof *number, by_double);
    return median_of_sorted(number, count);
}
