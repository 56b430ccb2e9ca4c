/* late_ranks.h - which rank came last to the collectives, by how much, in which step and stage.
 *
 * Only collectives count that no rank can leave before all have come, as only those hold the others up. The last rank
 * is late by the time from the last but one arrival to its own: so much sooner would all others have gone on without it.
 */
#ifndef TFA_LATE_RANKS_H
#define TFA_LATE_RANKS_H

#include "ask/comm/comm_rows.h"

struct late {
    int64_t rank, step; /* step: UNKNOWN_NUMBER: none */
    uint32_t stage;
    uint64_t collectives; /* to which the rank came last */
    int64_t time;         /* by which it was late, in all of them */
    int64_t skew;         /* of all collectives of the step */
};

struct lates {
    struct late *late; /* by step and stage of the late rank's call, the longest time first */
    size_t count, capacity;
    struct late most;     /* the rank with the longest time in all, and its worst stage; rank UNKNOWN_NUMBER: none */
    uint64_t collectives; /* that could be judged */
};

void lates_make(struct lates *lates, const struct comm_rows *rows, const struct names *names);
void lates_free(struct lates *lates);
/* Returns the time as a share of the skew; NAN if there is none. */
double late_score(const struct late *late);

#endif
