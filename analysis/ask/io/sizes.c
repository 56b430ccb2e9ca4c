/* sizes.c - implements the counts of distinct sizes. */
#include "ask/io/sizes.h"

#include <math.h>
#include <stdlib.h>

#include "base/util.h"

enum { SHORTEST_TAIL = 64 };

static int by_bytes(const void *a, const void *b)
{
    return by_number(((const struct size_run *)a)->bytes, ((const struct size_run *)b)->bytes);
}

void sizes_settle(struct sizes *sizes)
{
    size_t kept = 0;
    if (sizes->settled == sizes->count) return;
    qsort(sizes->run, sizes->count, sizeof *sizes->run, by_bytes);
    for (size_t i = 0; i < sizes->count; i++)
        if (kept && sizes->run[kept - 1].bytes == sizes->run[i].bytes)
            sizes->run[kept - 1].calls += sizes->run[i].calls;
        else sizes->run[kept++] = sizes->run[i];
    sizes->count = sizes->settled = kept;
}

void sizes_add(struct sizes *sizes, int64_t bytes, uint64_t calls)
{
    if (sizes->count - sizes->settled > sizes->settled + SHORTEST_TAIL) sizes_settle(sizes);
    if (sizes->count && sizes->run[sizes->count - 1].bytes == bytes) {
        sizes->run[sizes->count - 1].calls += calls;
        return;
    }
    sizes->run = mem_grow(sizes->run, &sizes->capacity, sizes->count + 1, sizeof *sizes->run);
    sizes->run[sizes->count++] = (struct size_run){bytes, calls};
}

void sizes_add_all(struct sizes *sizes, const struct sizes *from)
{
    for (size_t i = 0; i < from->count; i++) sizes_add(sizes, from->run[i].bytes, from->run[i].calls);
}

/* Returns the size at a place of the sorted list of all transfers. */
static int64_t size_at(const struct sizes *sizes, uint64_t place)
{
    size_t i = 0;
    for (uint64_t before = 0; i + 1 < sizes->count && before + sizes->run[i].calls <= place; i++)
        before += sizes->run[i].calls;
    return sizes->run[i].bytes;
}

int64_t sizes_percentile(const struct sizes *sizes, double share)
{
    uint64_t calls = 0;
    for (size_t i = 0; i < sizes->count; i++) calls += sizes->run[i].calls;
    double at = share * (double)(calls - 1);
    uint64_t below = (uint64_t)at;
    int64_t first = size_at(sizes, below), next = size_at(sizes, below + 1);
    return first + llround((at - (double)below) * (double)(next - first));
}

void sizes_free(struct sizes *sizes)
{
    free(sizes->run);
    *sizes = (struct sizes){0};
}
