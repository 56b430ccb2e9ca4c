/* names.h - stores the names of a whole model, each once.
 *
 * A name's number is the same in all inputs of a model, so questions compare numbers. Inputs are read in parallel.
 * Adding a name takes the lock. Looking up a number takes none, also while other threads add names, because a name
 * never moves. Finding a name's number by its text must wait until all inputs are read.
 */
#ifndef TFA_NAMES_H
#define TFA_NAMES_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/opts.h"
#include "base/util.h"
#include "read/strings.h"

#define NAME_NONE 0u    /* "" */
#define NAME_LOST 1u    /* "(lost)" */
#define NAME_RUN 2u     /* "(run)": the only stage of a trace without stages */
#define NAME_OUTSIDE 3u /* "(none)": outside of any stage or operator */

struct name {
    char *text; /* zero-terminated, may hold other zeros */
    uint32_t length;
    uint32_t hash;
};

enum { NAME_BLOCKS = 23 }; /* enough for all numbers of 32 bits */

struct names {
    struct name *block[NAME_BLOCKS]; /* each is twice as long as the one before */
    atomic_size_t count;
    uint32_t *table; /* number + 1 by hash */
    size_t table_size;
    pthread_mutex_t lock;
    /* Kernel names stay as they stand in a trace, which has them mangled as a rule: in a trace of ours, in one of Kineto. */
    bool are_mangled, are_of_kineto;
    bool full_stages;                         /* names of stages stay as they are, with the numbers in them */
    const struct strings_list *communication; /* --communication; NULL: none */
};

void names_init(struct names *names);
uint32_t names_add(struct names *names, const char *text, size_t length);
uint32_t names_find(const struct names *names, const char *text, size_t length); /* UINT32_MAX: absent */
const struct name *names_get(const struct names *names, uint32_t number);
/* The same while other threads add names. */
struct name names_copy(struct names *names, uint32_t number);
/* Compares two names for sorting, by their bytes: unlike their numbers these do not depend on what was read first. */
int names_order(const struct names *names, uint32_t a, uint32_t b);
void names_free(struct names *names);
/* Returns the name number of a string; NAME_LOST if the string is missing from the file. */
uint32_t strings_name(struct strings *strings, struct names *names, uint64_t id);

#endif
