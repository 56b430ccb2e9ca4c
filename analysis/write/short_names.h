/* short_names.h - shortens names for people: distinct ones for the kernels of one answer, and names of stages. */
#ifndef TFA_SHORT_NAMES_H
#define TFA_SHORT_NAMES_H

#include "model/names.h"

struct short_names {
    struct map of; /* number of the short name by number of the whole name */
};

/* Finds a short form for each of `count` names; names may repeat. */
void short_names_init(struct short_names *shorts, struct names *names, const uint32_t *name, size_t count);
/* Returns the short form; for names that were not given, the name itself. */
uint32_t short_names_get(const struct short_names *shorts, uint32_t name);
void short_names_free(struct short_names *shorts);

/* Appends a stage's name, with generated words (fp5r5ahvxzdpjkzp2mz...) cut to their beginning. */
void short_stage(const char *name, size_t length, struct text *out);

#endif
