/* captured_ops.h - the operators around captured calls: their names, inputs, modules, Python frames, and outer operators.
 *
 * An entry is one call of an operator. It stands behind the operator around it, and has at most CHAIN outer ones, so that
 * no trace makes a long chain of each call.
 */
#ifndef TFA_CAPTURED_OPS_H
#define TFA_CAPTURED_OPS_H

#include "model/model.h"

struct captured_op {
    uint32_t name, parent;   /* parent: NO_PLACE: none */
    struct op_detail detail; /* what is not known, or differs between equal captures, is NAME_NONE */
};

struct captured_ops {
    struct captured_op *op;
    size_t count, capacity;
};

/* The operators and Python functions that are open on a thread of a captured trace, the outermost first. */
struct captured_stack {
    const struct process *process;
    struct names *names, *to; /* of the process, and of the entries */
    struct open_call *open;
    size_t depth, capacity;
};

/* Opens a span that is an operator or a Python function, and closes those that ended before it begins. */
void captured_stack_open(struct captured_stack *stack, uint32_t span);
/* Returns the entry of the innermost open operator at `time`; NO_PLACE: none is open. */
uint32_t captured_stack_operator(struct captured_stack *stack, int64_t time, struct captured_ops *ops);
/* Returns the number that a name of the process has in the entries. */
uint32_t captured_name(const struct captured_stack *stack, uint32_t name);

/* Returns the name of an entry; NAME_NONE for NO_PLACE. */
uint32_t captured_op_name(const struct captured_ops *ops, uint32_t op);
/* Two equal calls were captured in both: removes from `mine` and its outer ones what `other` says otherwise. `seen`
 * has the pairs that were compared. */
void captured_ops_agree(struct captured_ops *ops, uint32_t mine, uint32_t other, struct map *seen);
/* Appends the entries to others. Returns the number of the first one there. */
uint32_t captured_ops_append(struct captured_ops *to, const struct captured_ops *from);

#endif
