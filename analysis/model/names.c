/* names.c - stores each name once. */
#include "model/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { FIRST_BLOCK_BITS = 10 };

/* Returns the block of a number; the first one has 1 << FIRST_BLOCK_BITS names. */
static unsigned block_of(uint32_t number)
{
    uint64_t from_one = (uint64_t)number + (1 << FIRST_BLOCK_BITS);
    return 63 - (unsigned)__builtin_clzll(from_one) - FIRST_BLOCK_BITS;
}

static struct name *record_of_name(const struct names *names, uint32_t number)
{
    unsigned block = block_of(number);
    return &names->block[block]
                        [(uint64_t)number + (1 << FIRST_BLOCK_BITS) - ((uint64_t)1 << (FIRST_BLOCK_BITS + block))];
}

static size_t name_place(const struct names *names, const char *text, size_t length, uint32_t hash)
{
    size_t place = hash & (names->table_size - 1);
    for (; names->table[place]; place = (place + 1) & (names->table_size - 1)) {
        const struct name *name = record_of_name(names, names->table[place] - 1);
        if (name->hash == hash && name->length == length && memcmp(name->text, text, length) == 0) break;
    }
    return place;
}

static void names_double(struct names *names)
{
    size_t size = names->table_size ? 2 * names->table_size : 1024;
    uint32_t *table = mem_zero(size, sizeof *table);
    free(names->table);
    names->table = table;
    names->table_size = size;
    for (size_t i = 0; i < names->count; i++) {
        const struct name *name = record_of_name(names, (uint32_t)i);
        names->table[name_place(names, name->text, name->length, name->hash)] = (uint32_t)i + 1;
    }
}

uint32_t names_add(struct names *names, const char *text, size_t length)
{
    uint32_t hash = (uint32_t)hash_text(text, length);
    mem_hold(&names->lock);
    if (2 * (names->count + 1) > names->table_size) names_double(names);
    size_t place = name_place(names, text, length, hash);
    if (!names->table[place]) {
        uint32_t number = (uint32_t)names->count;
        struct name **block = &names->block[block_of(number)];
        if (!*block) *block = mem_zero((size_t)1 << (FIRST_BLOCK_BITS + block_of(number)), sizeof **block);
        *record_of_name(names, number) = (struct name){mem_text(text, length), (uint32_t)length, hash};
        names->table[place] = number + 1;
        names->count++;
    }
    uint32_t number = names->table[place] - 1;
    mem_release(&names->lock);
    return number;
}

uint32_t names_find(const struct names *names, const char *text, size_t length)
{
    uint32_t hash = (uint32_t)hash_text(text, length);
    uint32_t found = names->table_size ? names->table[name_place(names, text, length, hash)] : 0;
    return found ? found - 1 : UINT32_MAX;
}

void names_init(struct names *names)
{
    *names = (struct names){0};
    pthread_mutex_init(&names->lock, NULL);
    names_add(names, "", 0);
    names_add(names, "(lost)", 6);
    names_add(names, "(run)", 5);
    names_add(names, "(none)", 6);
}

const struct name *names_get(const struct names *names, uint32_t number)
{
    return record_of_name(names, number < names->count ? number : NAME_LOST);
}

struct name names_copy(struct names *names, uint32_t number)
{
    mem_hold(&names->lock); /* other threads grow the list; the text itself never moves */
    struct name name = *names_get(names, number);
    mem_release(&names->lock);
    return name;
}

int names_order(const struct names *names, uint32_t a, uint32_t b)
{
    const struct name *x = names_get(names, a), *y = names_get(names, b);
    int order = memcmp(x->text, y->text, MIN(x->length, y->length));
    return order ? order : by_number(x->length, y->length);
}

void names_free(struct names *names)
{
    for (size_t i = 0; i < names->count; i++) free(record_of_name(names, (uint32_t)i)->text);
    for (size_t i = 0; i < NAME_BLOCKS; i++) free(names->block[i]);
    free(names->table);
    pthread_mutex_destroy(&names->lock);
    *names = (struct names){0};
}

uint32_t strings_name(struct strings *strings, struct names *names, uint64_t id)
{
    if (id == 0) return NAME_NONE;
    struct string *string = (struct string *)strings_get(strings, id);
    if (!string) return NAME_LOST;
    if (string->name == UINT32_MAX) string->name = names_add(names, string->text, string->length);
    return string->name;
}
