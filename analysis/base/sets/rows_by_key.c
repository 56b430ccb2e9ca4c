/* rows_by_key.c - keeps rows in the order of their appearance, and finds each by its key. */
#include "base/sets/rows_by_key.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/util.h"

static uint64_t hash_of(const char *key, size_t length)
{
    uint64_t hash = 0, word;
    for (; length >= sizeof word; key += sizeof word, length -= sizeof word) {
        memcpy(&word, key, sizeof word);
        hash = hash_number(hash + word);
    }
    word = 0;
    memcpy(&word, key, length);
    return length ? hash_number(hash + word) : hash;
}

static char *row_at(const struct keyed *keyed, size_t at, size_t size)
{
    return (char *)keyed->row + at * size;
}

/* Returns the place of a key, or the free one where it belongs. */
static uint32_t *slot_of_key(const struct keyed *keyed, const void *key, size_t length, size_t size)
{
    size_t mask = keyed->places - 1, at = hash_of(key, length) & mask;
    while (keyed->place[at] && memcmp(row_at(keyed, keyed->place[at] - 1, size), key, length) != 0)
        at = (at + 1) & mask;
    return &keyed->place[at];
}

static void grow(struct keyed *keyed, size_t length, size_t size)
{
    free(keyed->place);
    keyed->places = keyed->places ? 2 * keyed->places : 64;
    keyed->place = mem_zero(keyed->places, sizeof *keyed->place);
    for (size_t i = 0; i < keyed->count; i++)
        *slot_of_key(keyed, row_at(keyed, i, size), length, size) = (uint32_t)i + 1;
}

void *keyed_row(struct keyed *keyed, const void *key, size_t length, size_t size)
{
    if (2 * (keyed->count + 1) > keyed->places) grow(keyed, length, size);
    uint32_t *place = slot_of_key(keyed, key, length, size);
    if (!*place) {
        keyed->row = mem_grow(keyed->row, &keyed->capacity, keyed->count + 1, size);
        char *row = row_at(keyed, keyed->count, size);
        memcpy(memset(row, 0, size), key, length);
        *place = (uint32_t)++keyed->count;
    }
    return row_at(keyed, *place - 1, size);
}

void keyed_free(struct keyed *keyed)
{
    free(keyed->row);
    free(keyed->place);
    *keyed = (struct keyed){0};
}
