/* short_names.h - names as people read them: of the kernels of one answer, no two of which are alike, and of stages. */
#ifndef TFA_SHORT_NAMES_H
#define TFA_SHORT_NAMES_H

#include "names.h"

struct short_names {
    struct map of; /* the number of the short name, by that of the whole one */
};

/* Finds a short form for each of `count` names; a name may be there several times. */
void short_names_init(struct short_names *shorts, struct names *names, const uint32_t *name, size_t count);
/* The name itself where it is none of those. */
uint32_t short_names_get(const struct short_names *shorts, uint32_t name);
void short_names_free(struct short_names *shorts);

/* Appends a stage's name in which what a program made up (fp5r5ahvxzdpjkzp2mz...) is cut to its beginning. */
void short_stage(const char *name, size_t length, struct text *out);

#endif
