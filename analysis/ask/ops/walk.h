/* walk.h - hands over the operators of a process one by one, whether it holds them or they are in its file.
 *
 * Held operators come in the order of the file, others by time: for sums, in which the order is of no account.
 */
#ifndef TFA_OP_WALK_H
#define TFA_OP_WALK_H

#include "ask/choice.h"
#include "base/opts.h"
#include "model/sweep/sweep.h"

struct walked_op {
    int64_t start, end;
    uint32_t name, thread;
    uint32_t scope;      /* enum tfi_scope, where details are loaded */
    struct belonging at; /* its own start, and no stage, unless an attribution is given */
};

struct op_walk {
    const struct process *process;
    const struct attribution *attribution;
    size_t next;         /* of the held ones */
    struct sweep *sweep; /* NULL: the process holds its operators */
};

/* `attribution`: to know the stages, with stages_of_spans if the process holds its operators; else NULL. */
void op_walk_begin(struct op_walk *walk, const struct process *process, const struct attribution *attribution,
                   const struct options *options, struct names *names);
/* The same for a caller that takes only operators which begin in the choice's window: of those in the file others may be
 * missing. */
void op_walk_window(struct op_walk *walk, const struct choice *choice, struct names *names);
bool op_walk_next(struct op_walk *walk, struct walked_op *op);
void op_walk_end(struct op_walk *walk);

#endif
