/* places.h - the host and the rack of each rank: from --topology, else the host that its trace names. */
#ifndef TFA_PLACES_H
#define TFA_PLACES_H

#include "base/util.h"

struct selection;

struct place_of_rank {
    int64_t rank;
    uint32_t host, rack; /* numbers in `name`; PLACE_UNKNOWN */
    uint32_t local;      /* how many ranks of its host have lower numbers */
};
#define PLACE_UNKNOWN UINT32_MAX

struct places {
    struct place_of_rank *rank; /* by rank */
    size_t ranks, capacity;
    char **name;
    size_t names, name_capacity;
};

/* Reads the file of --topology, if there is one. Returns false after a message on what is wrong in it. */
bool places_read(struct places *places, const char *path);
/* Adds the hosts of ranks that no line names. Call it once. */
void places_complete(struct places *places, const struct selection *chosen);
const struct place_of_rank *places_find(const struct places *places, int64_t rank); /* NULL if absent */
/* Returns the name; NULL: unknown. */
const char *places_name(const struct places *places, uint32_t number);
void places_free(struct places *places);

#endif
