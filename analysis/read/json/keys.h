/* keys.h - looks up the known keys of JSON objects by their first eight bytes and their length.
 *
 * The scanners of Kineto's and dftracer's events each have their own tables. Key 0 means "not known". A text that is
 * looked up is followed by at least eight readable bytes (stream.h).
 */
#ifndef TFA_KEYS_H
#define TFA_KEYS_H

#include <string.h>

#include "read/json/json.h"

enum { MOST_KEYS = 64 };

struct key_table {
    struct known_key {
        uint64_t word;
        const char *text;
        uint8_t length, key; /* length 0: the entry is free */
    } known[MOST_KEYS];
};

static inline uint64_t key_word(const char *text, size_t length)
{
    uint64_t word;
    memcpy(&word, text, sizeof word);
    return length < 8 ? word & ((UINT64_C(1) << (8 * length)) - 1) : word;
}

static inline size_t key_place(uint64_t word, size_t length)
{
    return (size_t)(((word ^ length) * UINT64_C(0x9e3779b97f4a7c15)) >> 58);
}

/* Adds a key of at most 24 bytes; the table needs free entries. */
static inline void keys_add(struct key_table *table, const char *text, unsigned key)
{
    char padded[32] = {0};
    size_t length = strlen(text);
    memcpy(padded, text, MIN(length, sizeof padded - 8));
    uint64_t word = key_word(padded, length);
    size_t place = key_place(word, length);
    while (table->known[place].length) place = (place + 1) % MOST_KEYS;
    table->known[place] = (struct known_key){word, text, (uint8_t)length, (uint8_t)key};
}

static inline unsigned keys_find(const struct key_table *table, const char *text, size_t length)
{
    uint64_t word = key_word(text, length);
    const struct known_key *known = &table->known[key_place(word, length)];
    for (; known->length; known = known + 1 < table->known + MOST_KEYS ? known + 1 : table->known)
        if (known->word == word && known->length == length &&
            (length <= 8 || memcmp(text + 8, known->text + 8, length - 8) == 0))
            return known->key;
    return 0;
}

/* Looks up a key that contains escapes. No known writer escapes keys, but JSON permits it. */
static inline unsigned keys_find_escaped(const struct key_table *table, const char *text, size_t length)
{
    char plain[96] = {0};
    if (length > sizeof plain - 8) return 0;
    return keys_find(table, plain, json_unescape(plain, text, length));
}

#endif
