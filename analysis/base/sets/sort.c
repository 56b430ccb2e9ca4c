/* sort.c - sorts arrays that are mostly in order already.
 *
 * qsort of glibc compares and moves every item log N times, whatever their order is. Tables of a trace are some
 * ascending runs, one a thread or a copy: they are merged pair by pair. An array of many short runs goes to qsort.
 */
#include "base/sets/sort.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

enum {
    MOST_RUNS = 32, /* merged in five passes */
};

typedef int order_function(const void *, const void *);

/* Writes the first item of each ascending run to `start`, and `count` behind the last; returns the number of runs,
 * or MOST_RUNS + 1 if there are more. */
static size_t find_runs(const char *items, size_t count, size_t size, order_function *order, size_t *start)
{
    size_t runs = 1;
    start[0] = 0;
    for (size_t i = 1; i < count; i++) {
        if (order(items + (i - 1) * size, items + i * size) <= 0) continue;
        if (runs == MOST_RUNS) return MOST_RUNS + 1;
        start[runs++] = i;
    }
    start[runs] = count;
    return runs;
}

/* Merges the items from `begin` to `middle` with those from there to `end`, in front of which `left` has a copy of the
 * first part. */
static void merge_two(char *items, const char *left, size_t lefts, size_t rights, size_t size, order_function *order)
{
    const char *right = items + lefts * size, *left_end = left + lefts * size, *right_end = right + rights * size;
    while (left < left_end && right < right_end) {
        const char **from = order(left, right) <= 0 ? &left : &right;
        memcpy(items, *from, size);
        items += size;
        *from += size;
    }
    memcpy(items, left, (size_t)(left_end - left)); /* what is left on the right lies in its place */
}

static void merge_runs(char *items, size_t size, order_function *order, size_t *start, size_t runs)
{
    char *left = mem_resize(NULL, start[runs], size);
    while (runs > 1) {
        size_t merged = 0;
        for (size_t i = 0; i + 1 < runs; i += 2) {
            size_t lefts = start[i + 1] - start[i], rights = start[i + 2] - start[i + 1];
            char *pair = items + start[i] * size;
            memcpy(left, pair, lefts * size);
            merge_two(pair, left, lefts, rights, size, order);
            start[merged++] = start[i];
        }
        if (runs % 2) start[merged++] = start[runs - 1];
        start[merged] = start[runs];
        runs = merged;
    }
    free(left);
}

void sort_items(void *items, size_t count, size_t size, order_function *order)
{
    size_t start[MOST_RUNS + 1];
    if (count < 2) return;
    size_t runs = find_runs(items, count, size, order, start);
    if (runs > MOST_RUNS) qsort(items, count, size, order);
    else if (runs > 1) merge_runs(items, size, order, start, runs);
}
