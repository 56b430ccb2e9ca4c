/* op_rows.h - host events and device work summed by name, and by shapes and stack where asked for: torch's key_averages.
 *
 * A device's work has rows of its own, by its name: host times are 0 there, and it is no part of any operator's row but
 * for its time. What was allocated in no event is the row [memory]. Rows stand in the order of their first event.
 */
#ifndef TFA_OP_ROWS_H
#define TFA_OP_ROWS_H

#include "op_events.h"

struct op_row {
    uint32_t name, shapes, stack; /* NAME_NONE: not grouped by it, or it has none */
    bool on_device, is_annotation;
    bool is_async;  /* its first event was */
    size_t process; /* of its first event, and when that was */
    int64_t start, end;
    uint32_t order;
    uint64_t calls, flops; /* flops 0: not known */
    struct op_sums own, all;
    struct op_us us; /* as torch adds them up */
};

struct op_rows {
    struct session *session;
    struct op_row *row;
    size_t count, capacity;
    struct map by_name, by_shapes, by_stack; /* a place is found by one after the other */
    struct map flat_shapes, frames;          /* texts as torch compares them, by those of the trace */
    bool has_memory, has_device;             /* some process's trace has them */
    uint64_t events;
};

void op_rows_add(struct op_rows *rows, const struct process *process);
/* All are added: they are put into their order. */
void op_rows_end(struct op_rows *rows);
void op_rows_free(struct op_rows *rows);

#endif
