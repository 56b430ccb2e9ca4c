/* op_stacks.h - finds the call stack of each operator, as in torch's tables. */
#ifndef TFA_OP_STACKS_H
#define TFA_OP_STACKS_H

#include "ask/ops/events.h"

struct op_stacks {
    const struct op_events *events;
    struct names *names;
    size_t frames;      /* number of frames requested */
    struct map numbers; /* short numbers for sequence numbers */
    struct map forward; /* stack by forward_key: thread and number of the sequence number */
    struct map thread;  /* thread serial by torch's thread number, in a Kineto trace */
    struct map made;    /* stack by entry of the innermost Python function */
    uint32_t *parent;   /* by entry: NO_PLACE: none; for a folded event, the event it was folded into */
    uint32_t *backward; /* by entry: the innermost backward operator around it; NO_PLACE: none */
    uint32_t *python;   /* by entry: the innermost Python function around it; NULL: the trace has none */
};

/* `frames`: number of innermost frames wanted, for stacks that have to be built from Python functions. */
void op_stacks_init(struct op_stacks *stacks, const struct op_events *events, struct names *names, size_t frames);
/* Returns the stack (frames.h) of a host event; NAME_NONE if it has none. */
uint32_t op_stack_of(struct op_stacks *stacks, uint32_t entry);
void op_stacks_free(struct op_stacks *stacks);

/* True for a frame that torch leaves out of its tables. `text` is the frame as torch writes it. */
bool op_frame_is_hidden(const char *text);

/* Returns the details of an event that is an operator; NULL for other events. */
const struct op_detail *op_detail_of(const struct op_events *events, const struct op_event *event);

#endif
