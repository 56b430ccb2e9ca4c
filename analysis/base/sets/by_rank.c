/* by_rank.c - keeps one map per rank, found by the rank's number. A run may have thousands of ranks and many
 * look-ups. */
#include "base/sets/by_rank.h"

#include <stdlib.h>

struct map *by_rank_map(struct by_rank *ranks, int64_t rank)
{
    size_t place = map_number(&ranks->place, (uint64_t)rank);
    if (place == ranks->count) {
        ranks->map = mem_grow(ranks->map, &ranks->capacity, place + 1, sizeof *ranks->map);
        ranks->map[ranks->count++] = (struct map){0};
    }
    return &ranks->map[place];
}

void by_rank_free(struct by_rank *ranks)
{
    for (size_t i = 0; i < ranks->count; i++) map_free(&ranks->map[i]);
    map_free(&ranks->place);
    free(ranks->map);
    *ranks = (struct by_rank){0};
}
