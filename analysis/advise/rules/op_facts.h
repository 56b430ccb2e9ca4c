/* op_facts.h - what the operators of a rank did, added up in one walk for all rules.
 *
 * Only operators that begin in the judged time count, and none of processes that only serve another one of the rank. An
 * operator's own time is what no operator or call inside it takes.
 */
#ifndef TFA_OP_FACTS_H
#define TFA_OP_FACTS_H

#include "advise/budget/wall.h"
#include "advise/rules/chains.h"
#include "base/sets/rows_by_key.h"

struct op_fact {
    uint32_t name, shapes, types; /* the key: names */
    uint64_t calls;
    int64_t own, total;
    uint64_t outermost;     /* calls in no operator */
    int64_t outer, longest; /* time of these, and of the longest call */
    int64_t between;        /* time to the next outermost operator of their thread, where that comes soon */
    int64_t idle;           /* own time of long calls inside which nothing was launched */
    uint32_t stack;         /* of the call that took longest; NAME_NONE: none recorded */
};

/* Time in calls that wait for the device, by the operator around them. */
struct sync_fact {
    uint32_t name, call; /* the key: of the operator, NAME_OUTSIDE: none; of the call */
    uint64_t calls;
    int64_t time, idle; /* of the calls; and how long the device then had no work */
    uint32_t stack;     /* of the operator */
};

struct op_facts {
    struct {
        KEYED_ROWS(struct op_fact);
    } ops;
    struct {
        KEYED_ROWS(struct sync_fact);
    } syncs;
    struct chains chains;          /* of kernels; of a process without device work of operators */
    int64_t own;                   /* of all operators */
    uint64_t calls, backward;      /* backward: operators of autograd's backward pass */
    int64_t first_node, last_node; /* numbers of autograd's nodes */
    bool has_nodes;
    bool has_types;
};

void op_facts_add(struct op_facts *facts, struct scope *scope, const struct wall *wall);
void op_facts_free(struct op_facts *facts);
/* True if a process makes the time of its rank: it has device work or waits for a DataLoader. */
bool process_leads(const struct process *process, const struct names *names);

#endif
