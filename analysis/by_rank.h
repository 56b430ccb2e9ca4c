/* by_rank.h - a map for each rank, found by the rank's number. */
#ifndef TFA_BY_RANK_H
#define TFA_BY_RANK_H

#include "util.h"

/* All zero: there is none yet. */
struct by_rank {
    struct map place; /* of a rank's map in `map` */
    struct map *map;
    size_t count, capacity;
};

/* The map of a rank, empty if it was not asked for before. The maps of other ranks may move. */
struct map *by_rank_map(struct by_rank *ranks, int64_t rank);
void by_rank_free(struct by_rank *ranks);

#endif
