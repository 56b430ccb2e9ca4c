/* runs.c - finds the runs, and merges neighbours until one is left.
 *
 * A merge does not move items that are in place already: those of the left run up to the first item of the right one,
 * and those of the right run behind the last item of the left one. So a late item costs as many moves as there are
 * items behind its place.
 */
#include "base/runs.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

enum { SHORT_RUN = 16 }; /* shorter runs, on average, are left to qsort_r */

struct sorting {
    char *array;
    size_t count, size;
    int (*compare)(const void *, const void *, void *);
    void *context;
    size_t *first; /* of each run, then the end of the last one */
    size_t runs, capacity;
    char *spare;
    size_t spares;
};

static char *item(const struct sorting *s, size_t at)
{
    return s->array + at * s->size;
}

/* Copies an item; the usual sizes without a call. */
static inline void copy(char *to, const char *from, size_t size)
{
    if (size == sizeof(uint32_t)) memcpy(to, from, sizeof(uint32_t));
    else if (size == sizeof(uint64_t)) memcpy(to, from, sizeof(uint64_t));
    else if (size == 2 * sizeof(uint64_t)) memcpy(to, from, 2 * sizeof(uint64_t));
    else memcpy(to, from, size);
}

static void add_run(struct sorting *s, size_t first)
{
    s->first = mem_grow(s->first, &s->capacity, s->runs + 1, sizeof *s->first);
    s->first[s->runs++] = first;
}

/* Finds the runs; none if the whole array is one. Returns false if there are too many. */
static bool find_runs(struct sorting *s)
{
    for (size_t i = 1; i < s->count; i++) {
        if (s->compare(item(s, i - 1), item(s, i), s->context) <= 0) continue;
        if (s->runs >= s->count / SHORT_RUN) return false;
        if (!s->runs) add_run(s, 0);
        add_run(s, i);
    }
    if (s->runs) s->first = mem_grow(s->first, &s->capacity, s->runs + 1, sizeof *s->first);
    if (s->runs) s->first[s->runs] = s->count;
    return true;
}

/* Returns the first item from `low` on that comes behind `key`, or, if `equal`, is equal to it. */
static size_t behind(const struct sorting *s, size_t low, size_t high, const char *key, bool equal)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = s->compare(item(s, middle), key, s->context);
        if (order > 0 || (equal && order == 0)) high = middle;
        else low = middle + 1;
    }
    return low;
}

/* Merges the runs from `left` and from `right` on. */
static void merge(struct sorting *s, size_t left, size_t right, size_t end)
{
    left = behind(s, left, right, item(s, right), false);
    if (left == right) return;
    end = behind(s, right, end, item(s, right - 1), true);
    size_t bytes = (right - left) * s->size;
    s->spare = mem_grow(s->spare, &s->spares, bytes, 1);
    memcpy(s->spare, item(s, left), bytes);
    const char *from = s->spare, *last = s->spare + bytes, *other = item(s, right), *stop = item(s, end);
    for (char *to = item(s, left); from < last; to += s->size) {
        const char **next = other < stop && s->compare(other, from, s->context) < 0 ? &other : &from;
        copy(to, *next, s->size);
        *next += s->size;
    }
}

/* Merges `runs` runs from number `from` on. It calls itself log2(runs) deep. */
static void merge_runs(struct sorting *s, size_t from, size_t runs)
{
    size_t half = runs / 2;
    if (runs < 2) return;
    merge_runs(s, from, half);
    merge_runs(s, from + half, runs - half);
    merge(s, s->first[from], s->first[from + half], s->first[from + runs]);
}

void sort_runs(void *array, size_t count, size_t size, int (*compare)(const void *, const void *, void *),
               void *context)
{
    struct sorting s = {.array = array, .count = count, .size = size, .compare = compare, .context = context};
    if (count < 2) return;
    if (find_runs(&s)) merge_runs(&s, 0, s.runs);
    else qsort_r(array, count, size, compare, context);
    free(s.first);
    free(s.spare);
}
