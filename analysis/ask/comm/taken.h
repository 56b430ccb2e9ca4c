/* taken.h - the collectives of one process, before they are matched with those of other processes.
 *
 * Parts are in the order of the trace. comm_collect sets their run, clock and axis, and numbers those that have no
 * sequence number.
 */
#ifndef TFA_COMM_TAKEN_H
#define TFA_COMM_TAKEN_H

#include "ask/comm/health.h"
#include "ask/comm/replays.h"
#include "ask/comm/summary.h"
#include "ask/reduction.h"

struct comm_taken {
    bool has_collectives; /* by --rules tracelens none of them may count */
    struct comm_summary parts;
    struct comm_replays replays;
    struct healths healths; /* with stages */
};

/* Both make a struct comm_taken; that of stragglers has the stage and the step of each part. */
extern const struct reduction comm_reduction, stragglers_reduction;

#endif
