/* bits.h - a set of small numbers, one bit each up to the largest. */
#ifndef TFA_BITS_H
#define TFA_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zero: empty. */
struct bits {
    uint64_t *word;
    size_t words, capacity;
};

void bits_add(struct bits *bits, size_t number);
void bits_free(struct bits *bits);

static inline bool bits_have(const struct bits *bits, size_t number)
{
    return number / 64 < bits->words && bits->word[number / 64] >> number % 64 & 1;
}

#endif
