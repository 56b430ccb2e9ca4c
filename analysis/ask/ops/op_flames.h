/* op_flames.h - adds up the own time of operators by call stack: the input of a flame graph. */
#ifndef TFA_OP_FLAMES_H
#define TFA_OP_FLAMES_H

#include "ask/selection.h"

/* The time of one call stack in one process. */
struct flame {
    size_t process; /* index in the selection */
    uint32_t stack; /* a text of its frames as torch writes them, one per line, innermost first */
    int64_t time;   /* ns, above 0 */
};

struct flames {
    struct flame *flame; /* by process, then by first event */
    size_t count, capacity;
    uint64_t with_stack; /* stacks, also those without time */
};

/* Adds the stacks of all chosen processes. The time is that of the host, or that of the device work that the operators
 * launched, each without the operators that they called. `options->group_ops` asks for stacks alone. */
void flames_of(struct flames *flames, const struct selection *chosen, bool on_device);
void flames_free(struct flames *flames);

#endif
