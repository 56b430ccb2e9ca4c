/* name_cache.h - finds the numbers of names that a trace in JSON repeats, without asking the model each time. */
#ifndef TFA_NAME_CACHE_H
#define TFA_NAME_CACHE_H

#include "model/names.h"
#include "read/json/json.h"

struct name_cache {
    struct names *names;
    struct cached_name {
        uint64_t hash;
        const char *text; /* text in the model */
        uint32_t length, name;
    } * entry;
};

void name_cache_init(struct name_cache *cache, struct names *names);
/* Returns the number of a name; NAME_NONE for an empty one. */
uint32_t cached_name(struct name_cache *cache, struct slice name);
/* Hashes the length, the beginning, the middle and the end. The caller compares the whole text anyway. */
uint64_t hash_of_samples(struct slice text);
void name_cache_free(struct name_cache *cache);

#endif
