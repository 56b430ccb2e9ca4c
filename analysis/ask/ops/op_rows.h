/* op_rows.h - sums host events and device work by name, and on request by shapes, modules and stack: torch's key_averages.
 *
 * Device work has its own rows, by its name, with host times of 0. An operator's row includes only the time of that
 * work. Memory allocated outside all events is the row [memory]. Rows are in the order of their first event.
 */
#ifndef TFA_OP_ROWS_H
#define TFA_OP_ROWS_H

#include "ask/scope.h"
#include "base/sets/rows_by_key.h"
#include "model/model.h"

/* Totals of an event including its children. Its own totals are these less its children's. */
struct op_sums {
    int64_t time, device, host_bytes, device_bytes;
};

/* The same times in microseconds as torch computes them: differences and sums of doubles, in torch's order. Their last
 * digits differ from whole nanoseconds, and torch's tables show them. */
struct op_us {
    double all, own, device, own_device;
};

struct op_row {
    uint32_t name, shapes, modules, stack; /* NAME_NONE: not asked for, or the event has none */
    bool on_device, is_annotation;         /* the last of the key */
    bool is_async;                         /* its first event is asynchronous */
    size_t process; /* process of its first event; `start`, `end` and `order` are that event's too */
    int64_t start, end;
    uint32_t order;
    uint64_t events;       /* 0: none was added so far */
    uint64_t calls, flops; /* flops 0: unknown */
    struct op_sums own, all;
    struct op_us us; /* as torch adds them up */
};

struct addition;

struct op_rows {
    const struct selection *chosen;
    KEYED_ROWS(struct op_row);
    struct map flat_shapes, frames; /* torch's form of a text, by the trace's text */
    bool with_python;               /* Python functions have rows too; set by the caller */
    bool has_memory, has_device;    /* the trace of some process has them */
    const char *device_word;        /* torch's word for the devices of the first trace; NULL: CUDA */
    uint64_t events;
    struct {
        bool known;                        /* some trace has captures */
        uint64_t works, unknown, by_order; /* by_order: their operators are likely, but not sure */
    } replayed; /* work that graphs replayed, and gave to operators in the trace of a capture */
    struct left_rows left;
    /* If set by the caller: gets each operator or call that was added, with its sums and the stage it belongs to. */
    void (*each)(void *to, const struct addition *operator, const struct belonging * at);
    void *to;
};

void op_rows_add(struct op_rows *rows, struct scope *scope);
/* Sorts the rows. Call it after the last op_rows_add. */
void op_rows_end(struct op_rows *rows);
void op_rows_free(struct op_rows *rows);

#endif
