/* sizes.h - counts the sizes of transfers, each distinct size once.
 *
 * Programs read in few distinct sizes, so a billion calls fit into little memory. Sizes wait in a tail that is sorted
 * into the rest whenever it has grown as long as the rest; the cost is N log N.
 */
#ifndef TFA_IO_SIZES_H
#define TFA_IO_SIZES_H

#include <stddef.h>
#include <stdint.h>

struct size_run {
    int64_t bytes;
    uint64_t calls;
};

struct sizes {
    struct size_run *run;
    size_t count, capacity;
    size_t settled; /* the first ones are sorted and distinct */
};

void sizes_add(struct sizes *sizes, int64_t bytes, uint64_t calls);
/* Adds all sizes of `from`. */
void sizes_add_all(struct sizes *sizes, const struct sizes *from);
/* Sorts all sizes; needed before a percentile. */
void sizes_settle(struct sizes *sizes);
/* Interpolates linearly between the two neighbours (numpy.percentile's default), rounded to whole bytes. Needs at least
 * one size. */
int64_t sizes_percentile(const struct sizes *sizes, double share);
void sizes_free(struct sizes *sizes);

#endif
