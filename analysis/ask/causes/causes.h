/* causes.h - why ranks hold the others up: a slow device, a late host or process, a slow link, slow copies.
 *
 * Ranks are compared with each other, by numbers of which up to half may be bad (norm.h). No times on the clocks of two
 * ranks are subtracted. What can't be judged says why.
 */
#ifndef TFA_CAUSES_H
#define TFA_CAUSES_H

#include "ask/causes/places.h"
#include "ask/comm/comm_reduction.h"
#include "ask/comm/comm_rows.h"

enum cause_kind {
    CAUSE_SLOW_GPU,       /* a device takes longer for the same kernels */
    CAUSE_LATE_HOST,      /* the devices of a host are idle before collectives, longer than those of others */
    CAUSE_LATE_PROCESS,   /* the same of one rank */
    CAUSE_SLOW_LINK,      /* the ranks of a pair or a ring take longer for the same transfer */
    CAUSE_SLOW_HOST_LINK, /* copies between a host and its devices take longer */
    NR_CAUSE_KINDS
};
extern const char *const cause_names[NR_CAUSE_KINDS];

struct cause {
    enum cause_kind kind;
    int64_t *rank; /* in ascending order */
    size_t ranks;
    double slower;   /* share by which it takes longer; NAN: does not apply */
    int64_t late;    /* in each step; UNKNOWN_TIME: does not apply */
    size_t compared; /* ranks, or links, that were compared */
};

struct not_a_cause {
    enum cause_kind kind; /* late processes go with late hosts */
    const char *why, *how;
};

struct causes {
    struct cause *cause; /* by kind and rank */
    size_t count, capacity;
    struct not_a_cause not_judged[NR_CAUSE_KINDS];
    size_t not_judgeds;
};

/* What the causes follow from. */
struct fleet {
    const struct selection *chosen;
    void *const *taken; /* by process: of causes_reduction */
    const struct comm_rows *rows;
    const struct places *places;
    size_t runs;
};

/* A struct comm_taken with its `facts`. */
struct needs causes_needs(const struct options *options);
extern const struct reduction causes_reduction;

void causes_find(struct causes *causes, const struct fleet *fleet);
void causes_free(struct causes *causes);

#endif
