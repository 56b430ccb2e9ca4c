/* name_cache.c - a table of recent names, each in the place that its hash gives; a newer name replaces an older one. */
#include "model/load/name_cache.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_CACHE = 4096 };

/* Returns a word made of up to eight bytes; different texts may give the same one. */
static inline uint64_t bytes_at(const char *at, size_t length)
{
    uint64_t word = 0;
    uint32_t low, high;
    if (length >= sizeof word) {
        memcpy(&word, at, sizeof word);
    } else if (length >= sizeof low) {
        memcpy(&low, at, sizeof low);
        memcpy(&high, at + length - sizeof high, sizeof high);
        word = low | (uint64_t)high << 32;
    } else if (length) {
        word = (uint64_t)(unsigned char)at[0] << 16 | (uint64_t)(unsigned char)at[length / 2] << 8 |
               (unsigned char)at[length - 1];
    }
    return word;
}

uint64_t hash_of_samples(struct slice text)
{
    const uint64_t mix = UINT64_C(0x9e3779b97f4a7c15);
    size_t n = text.length;
    uint64_t hash = (bytes_at(text.at, n) ^ n) * mix;
    if (n > 8) hash = (hash ^ (hash >> 29) ^ bytes_at(text.at + n - 8, 8)) * mix;
    if (n > 16) hash = (hash ^ (hash >> 31) ^ bytes_at(text.at + n / 2, 8)) * mix;
    return hash ^ (hash >> 32);
}

void name_cache_init(struct name_cache *cache, struct names *names)
{
    *cache = (struct name_cache){.names = names, .entry = mem_zero(NAME_CACHE, sizeof *cache->entry)};
}

uint32_t cached_name(struct name_cache *cache, struct slice name)
{
    if (!name.length) return NAME_NONE;
    uint64_t hash = hash_of_samples(name);
    struct cached_name *entry = &cache->entry[hash % NAME_CACHE];
    if (entry->hash != hash || entry->length != name.length || !entry->text ||
        memcmp(entry->text, name.at, name.length) != 0) {
        uint32_t number = names_add(cache->names, name.at, name.length);
        *entry = (struct cached_name){hash, names_get(cache->names, number)->text, (uint32_t)name.length, number};
    }
    return entry->name;
}

void name_cache_free(struct name_cache *cache)
{
    free(cache->entry);
    *cache = (struct name_cache){0};
}
