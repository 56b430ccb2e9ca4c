/* names.c - keeps names once each, and strings of files by their number. */
#include "names.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "tfi_trace.h"

/* ---- names ---- */

static size_t name_place(const struct names *names, const char *text, size_t length, uint32_t hash)
{
    size_t place = hash & (names->table_size - 1);
    for (; names->table[place]; place = (place + 1) & (names->table_size - 1)) {
        const struct name *name = &names->name[names->table[place] - 1];
        if (name->hash == hash && name->length == length && memcmp(name->text, text, length) == 0) {
            break;
        }
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
        const struct name *name = &names->name[i];
        names->table[name_place(names, name->text, name->length, name->hash)] = (uint32_t)i + 1;
    }
}

uint32_t names_add(struct names *names, const char *text, size_t length)
{
    uint32_t hash = (uint32_t)hash_text(text, length);
    mem_hold(&names->lock);
    if (2 * (names->count + 1) > names->table_size) {
        names_double(names);
    }
    size_t place = name_place(names, text, length, hash);
    if (!names->table[place]) {
        names->name = mem_grow(names->name, &names->capacity, names->count + 1, sizeof *names->name);
        struct name name = {mem_text(text, length), (uint32_t)length, hash};
        names->name[names->count++] = name;
        names->table[place] = (uint32_t)names->count;
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
    return &names->name[number < names->count ? number : NAME_LOST];
}

void names_free(struct names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        free(names->name[i].text);
    }
    free(names->name);
    free(names->table);
    pthread_mutex_destroy(&names->lock);
    *names = (struct names){0};
}

/* ---- strings ---- */

size_t strings_parse(struct strings *strings, const uint8_t *payload, size_t bytes)
{
    size_t at = 0;
    struct tfi_string head;
    while (bytes - at >= sizeof head) {
        memcpy(&head, payload + at, sizeof head);
        uint32_t id = le32toh(head.id), length = le32toh(head.length);
        if (!id || length > TFI_STRING_MAX || length > bytes - at - sizeof head) {
            break;
        }
        strings->string = mem_grow(strings->string, &strings->capacity, strings->count + 1, sizeof *strings->string);
        strings->string[strings->count++] =
            (struct string){id, length, UINT32_MAX, mem_text((const char *)payload + at + sizeof head, length)};
        at += sizeof head + ((length + 7) & ~7u);
        at = MIN(at, bytes); /* the padding of the last one may be missing */
    }
    return at;
}

static int by_id(const void *a, const void *b)
{
    const struct string *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Strings that stand in both files are kept once. Ids count from 1, so an array by id is nearly always small enough. */
void strings_sort(struct strings *strings)
{
    size_t kept = 0;
    if (strings->count) {
        qsort(strings->string, strings->count, sizeof *strings->string, by_id);
    }
    for (size_t i = 0; i < strings->count; i++) {
        if (kept && strings->string[kept - 1].id == strings->string[i].id) {
            free(strings->string[i].text);
        } else {
            strings->string[kept++] = strings->string[i];
        }
    }
    strings->count = kept;
    if (kept && strings->string[kept - 1].id <= 16 * kept + 1024) {
        strings->dense_size = (size_t)strings->string[kept - 1].id + 1;
        strings->dense = mem_zero(strings->dense_size, sizeof *strings->dense);
        for (size_t i = 0; i < kept; i++) {
            strings->dense[strings->string[i].id] = (uint32_t)i + 1;
        }
    }
}

const struct string *strings_get(const struct strings *strings, uint64_t id)
{
    if (strings->dense) {
        uint32_t place = id < strings->dense_size ? strings->dense[id] : 0;
        return place ? &strings->string[place - 1] : NULL;
    }
    if (!strings->count || id > UINT32_MAX) {
        return NULL;
    }
    struct string key = {.id = (uint32_t)id};
    return bsearch(&key, strings->string, strings->count, sizeof key, by_id);
}

uint32_t strings_name(struct strings *strings, struct names *names, uint64_t id)
{
    if (id == 0) {
        return NAME_NONE;
    }
    struct string *string = (struct string *)strings_get(strings, id);
    if (!string) {
        return NAME_LOST;
    }
    if (string->name == UINT32_MAX) {
        string->name = names_add(names, string->text, string->length);
    }
    return string->name;
}

void strings_free(struct strings *strings)
{
    for (size_t i = 0; i < strings->count; i++) {
        free(strings->string[i].text);
    }
    free(strings->string);
    free(strings->dense);
    *strings = (struct strings){0};
}
