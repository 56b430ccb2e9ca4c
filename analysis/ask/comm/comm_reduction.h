/* comm_reduction.h - the collectives of one process, before they are matched with those of other processes.
 *
 * Parts are in the order of the trace. comm_collect sets their run, clock and axis, and numbers those that have no
 * sequence number.
 */
#ifndef TFA_COMM_REDUCTION_H
#define TFA_COMM_REDUCTION_H

#include "ask/comm/health.h"
#include "ask/comm/replays.h"
#include "ask/comm/summary.h"
#include "ask/reduction.h"

struct rank_facts;

struct comm_taken {
    bool has_collectives; /* by other rules none of them may count */
    struct comm_summary parts;
    struct comm_replays replays;
    struct healths healths;   /* with stages */
    struct rank_facts *facts; /* of ask/causes; NULL: not taken */
};

/* Both make a struct comm_taken; that of stragglers has the stage and the step of each part. */
struct needs comm_needs(const struct options *options);
struct needs stragglers_needs(const struct options *options);
extern const struct reduction comm_reduction, stragglers_reduction;

/* ---- by other rules ---- */

/* The filters that choose the collectives of a process. */
struct comm_scope;
/* Takes the parts of a process. */
typedef void comm_taker(struct comm_taken *taken, const struct comm_scope *scope, const struct process *process);
/* Makes a struct comm_taken without stages. */
struct comm_taken *comm_take(struct scope *scope, comm_taker *take_parts);
void comm_taken_free(void *taken);
/* Returns a part with all that is known of the collective. */
struct comm_part comm_part_of(const struct process *process, const struct collective *collective);
/* Adds the part of a collective. */
void comm_take_part(struct comm_taken *taken, const struct comm_scope *scope, const struct collective *collective,
                    struct comm_part part);

#endif
