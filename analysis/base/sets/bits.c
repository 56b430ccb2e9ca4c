/* bits.c - keeps a set of small numbers in an array of words, which grows up to the largest number. */
#include "base/sets/bits.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

void bits_add(struct bits *bits, size_t number)
{
    size_t words = number / 64 + 1;
    if (words > bits->words) {
        bits->word = mem_grow(bits->word, &bits->capacity, words, sizeof *bits->word);
        memset(bits->word + bits->words, 0, (words - bits->words) * sizeof *bits->word);
        bits->words = words;
    }
    bits->word[number / 64] |= (uint64_t)1 << number % 64;
}

void bits_free(struct bits *bits)
{
    free(bits->word);
    *bits = (struct bits){0};
}
