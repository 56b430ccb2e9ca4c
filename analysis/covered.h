/* covered.h - how much time stretches cover together, while stretches come and go. */
#ifndef TFA_COVERED_H
#define TFA_COVERED_H

#include <stdbool.h>

#include "intervals.h"

struct covered {
    int64_t *edge; /* where stretches begin and end, in order */
    size_t edges;
    struct covered_node *node;
    int64_t total;       /* of the moments that are covered */
    int64_t first, last; /* of them; only if total > 0 */
};

/* `stretch` holds every stretch that may ever come. */
void covered_init(struct covered *covered, const struct interval *stretch, size_t count);
void covered_free(struct covered *covered);
/* One of them comes or goes. */
void covered_change(struct covered *covered, struct interval stretch, bool add);

#endif
