/* ncu_kernels.c - groups measured launches by kernel, grid and block, and takes the median of each metric. */
#include "ask/ncu/ncu_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/statistics.h"

static int texts_order(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "");
}

static int same_kernel(const struct ncu_launch *a, const struct ncu_launch *b)
{
    int order = texts_order(a->kernel, b->kernel);
    order = order ? order : texts_order(a->grid, b->grid);
    return order ? order : texts_order(a->block, b->block);
}

static int launches_order(const void *a, const void *b)
{
    const struct ncu_launch *x = *(const struct ncu_launch *const *)a, *y = *(const struct ncu_launch *const *)b;
    int order = same_kernel(x, y);
    return order ? order : (x > y) - (x < y);
}

static void fill_kernel(struct ncu_kernel *kernel, const struct ncu_launch **launch, size_t count)
{
    double *value = mem_zero(count, sizeof *value);
    kernel->first = launch[0];
    for (size_t i = 0; i < count; i++) kernel->launches += launch[i]->launches;
    for (int m = 0; m < NR_NCU_METRICS; m++) {
        size_t known = 0;
        for (size_t i = 0; i < count; i++)
            if (!isnan(launch[i]->metric[m])) value[known++] = launch[i]->metric[m];
        kernel->metric[m] = median_of_numbers(value, known);
    }
    free(value);
}

static int kernels_order(const void *a, const void *b)
{
    const struct ncu_kernel *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

void ncu_kernels_of(struct ncu_kernels *kernels, const struct ncu_launches *launches)
{
    const struct ncu_launch **order = mem_zero(launches->count, sizeof *order);
    *kernels = (struct ncu_kernels){.kernel = mem_zero(launches->count, sizeof *kernels->kernel)};
    for (size_t i = 0; i < launches->count; i++) order[i] = &launches->launch[i];
    if (launches->count) qsort(order, launches->count, sizeof *order, launches_order);
    for (size_t i = 0, from = 0; i <= launches->count && from < launches->count; i++) {
        if (i < launches->count && same_kernel(order[i], order[from]) == 0) continue;
        fill_kernel(&kernels->kernel[kernels->count++], order + from, i - from);
        from = i;
    }
    if (kernels->count) qsort(kernels->kernel, kernels->count, sizeof *kernels->kernel, kernels_order);
    free(order);
}

void ncu_kernels_free(struct ncu_kernels *kernels)
{
    free(kernels->kernel);
    *kernels = (struct ncu_kernels){0};
}
