/* op_stacks.h - the call stack of each operator as torch's tables have it. */
#ifndef TFA_OP_STACKS_H
#define TFA_OP_STACKS_H

#include "op_events.h"

struct op_stacks {
    const struct op_events *events;
    struct names *names;
    size_t frames;      /* that are asked for */
    struct map numbers; /* of threads and sequence numbers */
    struct map forward; /* stacks by those */
    struct map thread;  /* serials by the numbers that torch has for threads, in a Kineto trace */
    struct map made;    /* of Python functions' events: the stacks that end in them */
    uint32_t *backward; /* by event: the innermost backward operator it lies in, a place in events; NO_PLACE */
    uint32_t *python;   /* by event: the innermost Python function around it, likewise; NULL: the trace has none */
};

/* `frames`: how many of a stack's innermost frames are wanted, where they have to be put together. */
void op_stacks_init(struct op_stacks *stacks, const struct op_events *events, struct names *names, size_t frames);
/* The stack (stacks.h) of the event at place `i`; NAME_NONE if it has none. */
uint32_t op_stack_of(struct op_stacks *stacks, size_t i);
void op_stacks_free(struct op_stacks *stacks);

/* True of a frame that torch leaves out of its tables: `text` is as torch writes it. */
bool op_frame_is_hidden(const char *text);

/* The details of an event that is an operator; NULL for others. */
const struct op_detail *op_detail_of(const struct op_events *events, size_t i);

#endif
