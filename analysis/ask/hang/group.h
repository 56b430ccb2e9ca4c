/* group.h - finds the unmatched collective of one group of ranks, and its unmatched messages. */
#ifndef TFA_HANG_GROUP_H
#define TFA_HANG_GROUP_H

#include "ask/hang/hang_answer.h"

/* A member of a group, as one process tells it. */
struct hang_place {
    uint64_t key; /* of the group's names */
    size_t place; /* of the process, in the selection */
    int64_t number, size;
};

/* All members of all groups, by key. */
struct hang_places {
    struct hang_place *place;
    size_t count;
};

uint64_t hang_group_key(uint32_t group, uint32_t members);

/* Adds what is unmatched among the parts [first, end), which are those of one group. */
void hang_group(struct hang *hang, const struct hang_places *places, size_t first, size_t end);

#endif
