/* strings.c - keeps the strings of one trace by id. */
#include "read/strings.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "tfi_trace.h"

size_t strings_parse(struct strings *strings, const uint8_t *payload, size_t bytes)
{
    size_t at = 0;
    struct tfi_string head;
    while (bytes - at >= sizeof head) {
        memcpy(&head, payload + at, sizeof head);
        uint32_t id = le32toh(head.id), length = le32toh(head.length);
        if (!id || length > TFI_STRING_MAX || length > bytes - at - sizeof head) break;
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

/* Strings present in both files are kept once. Ids count from 1, so an array indexed by id is nearly always small
 * enough. */
void strings_sort(struct strings *strings)
{
    size_t kept = 0;
    if (strings->count) qsort(strings->string, strings->count, sizeof *strings->string, by_id);
    for (size_t i = 0; i < strings->count; i++)
        if (kept && strings->string[kept - 1].id == strings->string[i].id) free(strings->string[i].text);
        else strings->string[kept++] = strings->string[i];
    strings->count = kept;
    if (kept && strings->string[kept - 1].id <= 16 * kept + 1024) {
        strings->dense_size = (size_t)strings->string[kept - 1].id + 1;
        strings->dense = mem_zero(strings->dense_size, sizeof *strings->dense);
        for (size_t i = 0; i < kept; i++) strings->dense[strings->string[i].id] = (uint32_t)i + 1;
    }
}

const struct string *strings_get(const struct strings *strings, uint64_t id)
{
    if (strings->dense) {
        uint32_t place = id < strings->dense_size ? strings->dense[id] : 0;
        return place ? &strings->string[place - 1] : NULL;
    }
    if (!strings->count || id > UINT32_MAX) return NULL;
    struct string key = {.id = (uint32_t)id};
    return bsearch(&key, strings->string, strings->count, sizeof key, by_id);
}

void strings_free(struct strings *strings)
{
    for (size_t i = 0; i < strings->count; i++) free(strings->string[i].text);
    free(strings->string);
    free(strings->dense);
    *strings = (struct strings){0};
}
