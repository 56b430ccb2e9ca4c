/* needs.h - what questions need of the inputs, one bit each (needs.def). The union of two needs serves both questions. */
#ifndef TFA_NEEDS_H
#define TFA_NEEDS_H

#include <stdbool.h>

struct needs {
#define NEED(name, meaning) bool name : 1;
#include "model/needs/needs.def"
#undef NEED
};

struct needs needs_union(struct needs a, struct needs b);
/* True if `of` names none, or one that is asked for. */
bool needs_meet(struct needs of, struct needs asked);

#endif
