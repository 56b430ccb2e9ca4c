/* by_rank.h - keeps one map per rank, found by the rank's number. */
#ifndef TFA_BY_RANK_H
#define TFA_BY_RANK_H

#include "base/util.h"

/* All zero: no rank yet. */
struct by_rank {
    struct map place; /* index in `map`, by rank */
    struct map *map;
    size_t count, capacity;
};

/* Returns the map of a rank; the first call for a rank creates it empty. The call may move the maps of other ranks. */
struct map *by_rank_map(struct by_rank *ranks, int64_t rank);
void by_rank_free(struct by_rank *ranks);

#endif
