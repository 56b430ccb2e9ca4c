/* judging.h - what the judges of causes share: their limits, and the causes that they name. */
#ifndef TFA_JUDGING_H
#define TFA_JUDGING_H

#include "ask/causes/causes.h"
#include "ask/causes/facts.h"

enum {
    LEAST_RANKS = 4,   /* or links, that are compared */
    LEAST_PERIODS = 4, /* steps */
};

/* What a judge says of a rank. */
struct verdict {
    int64_t rank;
    bool is_bad;
    double amount;
};

/* Names a bad rank or link. */
void cause_add(struct causes *causes, enum cause_kind kind, const int64_t *rank, size_t ranks, double amount,
               size_t compared);
/* Names the bad ones: the host, where at least two ranks of it are judged and three quarters of these are bad, else each
 * by itself. */
void causes_of_verdicts(struct causes *causes, const struct fleet *fleet, struct verdict *verdict, size_t count,
                        enum cause_kind of_host, enum cause_kind of_rank);
void cause_not_judged(struct causes *causes, enum cause_kind kind, const char *why, const char *how);
/* Returns the facts of a chosen process. */
const struct rank_facts *fleet_facts(const struct fleet *fleet, size_t process);

void judge_kernels(struct causes *causes, const struct fleet *fleet);
void judge_copies(struct causes *causes, const struct fleet *fleet);
void judge_lateness(struct causes *causes, const struct fleet *fleet);
void judge_links(struct causes *causes, const struct fleet *fleet);

#endif
