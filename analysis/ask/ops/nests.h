/* nests.h - finds an event's parent: the innermost event of its thread that contains all of it. */
#ifndef TFA_OP_NESTS_H
#define TFA_OP_NESTS_H

#include "base/util.h"

/* The events of one thread that the next one may lie in. */
struct nest {
    struct level {
        int64_t end;
        uint32_t event;
    } * level;
    size_t depth, capacity;
};

/* All zero: no event yet. */
struct nests {
    struct map of; /* index in `nest`, by thread */
    struct nest *nest;
    size_t count, capacity;
    uint32_t thread, at; /* the thread asked for last, and its place */
    int64_t rounding;    /* an event that ends so much later than its parent, or less, ends with it */
};

/* Returns the parent, or NO_PLACE, of an event that the caller calls `event`, and cuts `end` to the parent's. The events of a
 * thread come in the order of outer_first. */
uint32_t nests_add(struct nests *nests, uint32_t thread, int64_t start, int64_t *end, uint32_t event);
void nests_free(struct nests *nests);

#endif
