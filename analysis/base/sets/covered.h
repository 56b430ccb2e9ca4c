/* covered.h - computes how much time a changing set of stretches covers together. */
#ifndef TFA_COVERED_H
#define TFA_COVERED_H

#include <stdbool.h>

#include "base/sets/intervals.h"

struct covered {
    int64_t *edge; /* starts and ends of stretches, sorted */
    size_t edges;
    struct covered_node *node;
    int64_t total;       /* covered time */
    int64_t first, last; /* first and last covered moment; valid only if total > 0 */
};

/* `stretch` holds every stretch that may be added later. */
void covered_init(struct covered *covered, const struct interval *stretch, size_t count);
void covered_free(struct covered *covered);
/* Adds or removes one of these stretches. */
void covered_change(struct covered *covered, struct interval stretch, bool add);

#endif
