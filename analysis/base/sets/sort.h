/* sort.h - sorts arrays that are mostly in order already: events of a trace, which lie by time, thread by thread. */
#ifndef TFA_SORT_H
#define TFA_SORT_H

#include <stddef.h>

/* Sorts `count` items of `size` bytes as qsort does. An array in order costs one pass, one of a few ascending runs a merge of
 * these, which needs as much memory again. */
void sort_items(void *items, size_t count, size_t size, int (*order)(const void *, const void *));

#endif
