/* strings.h - keeps the strings of one trace by id; a live file and its .tfr share one table. */
#ifndef TFA_STRINGS_H
#define TFA_STRINGS_H

#include <stddef.h>
#include <stdint.h>

struct string {
    uint32_t id;
    uint32_t length;
    uint32_t name; /* UINT32_MAX until first asked for */
    char *text;
};

struct strings {
    struct string *string; /* sorted by id after strings_sort */
    size_t count, capacity;
    uint32_t *dense; /* index + 1 by id, if the ids are dense enough */
    size_t dense_size;
};

/* Parses the complete strings of a STRINGS payload. Returns the number of bytes parsed. */
size_t strings_parse(struct strings *strings, const uint8_t *payload, size_t bytes);
void strings_sort(struct strings *strings);
/* Returns NULL for id 0 and for a lost string. */
const struct string *strings_get(const struct strings *strings, uint64_t id);
void strings_free(struct strings *strings);

#endif
