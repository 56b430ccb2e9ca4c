/* names.h - the strings of one file by their number, and the names of a whole model, each kept once.
 *
 * A name's number is the same in all inputs of a model, so that questions compare numbers. Inputs are read in
 * parallel: adding takes a lock; looking a name up does not, and is done when all are read.
 */
#ifndef TFA_NAMES_H
#define TFA_NAMES_H

#include <pthread.h>

#include "util.h"

#define NAME_NONE 0u    /* "" */
#define NAME_LOST 1u    /* "(lost)" */
#define NAME_RUN 2u     /* "(run)": the one stage of a trace that has none */
#define NAME_OUTSIDE 3u /* "(none)": in no stage, or in no operator */

struct name {
    char *text; /* zero-terminated, may hold other zeros */
    uint32_t length;
    uint32_t hash;
};

struct names {
    struct name *name;
    size_t count, capacity;
    uint32_t *table; /* number + 1 by hash */
    size_t table_size;
    pthread_mutex_t lock;
};

void names_init(struct names *names);
uint32_t names_add(struct names *names, const char *text, size_t length);
uint32_t names_find(const struct names *names, const char *text, size_t length); /* UINT32_MAX: it is not there */
const struct name *names_get(const struct names *names, uint32_t number);
void names_free(struct names *names);

/* ---- the strings of one file ---- */

struct string {
    uint32_t id;
    uint32_t length;
    uint32_t name; /* UINT32_MAX until somebody asked for it */
    char *text;
};

struct strings {
    struct string *string; /* sorted by id once strings_sort was called */
    size_t count, capacity;
    uint32_t *dense; /* place + 1 by id, where the ids are dense enough */
    size_t dense_size;
};

/* Takes a STRINGS payload, or what is whole of it; returns how many bytes of it were. */
size_t strings_parse(struct strings *strings, const uint8_t *payload, size_t bytes);
void strings_sort(struct strings *strings);
/* NULL for 0 and for a string that is lost. */
const struct string *strings_get(const struct strings *strings, uint64_t id);
/* Number of the name of a string; NAME_LOST if the file should have it and has not. */
uint32_t strings_name(struct strings *strings, struct names *names, uint64_t id);
void strings_free(struct strings *strings);

#endif
