/* norm.c - computes the norm of numbers, and medians by weight. */
#include "ask/causes/norm.h"

#include <math.h>
#include <stdlib.h>

#include "base/statistics.h"
#include "base/util.h"

/* Among 64 numbers of a normal distribution none is farther from the norm than this. */
static const double SPREADS = 6;
/* The median distance of the lower half of a normal distribution from its own median is a third of the deviation. */
static const double DEVIATION_OF_HALF = 3;

struct norm norm_of(double *number, size_t count)
{
    size_t good = (count + 1) / 2;
    double *distance = mem_zero(good, sizeof *distance);
    qsort(number, count, sizeof *number, by_double);
    struct norm norm = {.middle = median_of_sorted(number, good)};
    for (size_t i = 0; i < good; i++) distance[i] = fabs(number[i] - norm.middle);
    norm.spread = DEVIATION_OF_HALF * median_of_numbers(distance, good);
    free(distance);
    return norm;
}

double norm_limit(const struct norm *norm, double least)
{
    return fmax(least, SPREADS * norm->spread);
}

static int smaller_weighted(const void *a, const void *b)
{
    const struct weighted *x = a, *y = b;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return (x->weight > y->weight) - (x->weight < y->weight);
}

double weighted_median(struct weighted *weighted, size_t count)
{
    double all = 0, before = 0;
    size_t i = 0;
    qsort(weighted, count, sizeof *weighted, smaller_weighted);
    for (size_t k = 0; k < count; k++) all += weighted[k].weight;
    while (i + 1 < count && before + weighted[i].weight < all / 2) before += weighted[i++].weight;
    return weighted[i].number;
}
