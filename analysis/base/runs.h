/* runs.h - sorts arrays that consist of few ordered runs.
 *
 * Most columns of a trace do: a thread or a stream writes its events in order, and few are late. Sorting 4.3 million
 * events of PyTorch then compares each pair of neighbours once, where qsort compares and moves each one 20 times.
 */
#ifndef TFA_RUNS_H
#define TFA_RUNS_H

#include <stddef.h>

/* Sorts as qsort_r does. Equal items keep their order. */
void sort_runs(void *array, size_t count, size_t size, int (*compare)(const void *, const void *, void *),
               void *context);

#endif
