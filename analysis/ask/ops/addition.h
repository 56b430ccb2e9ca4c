/* addition.h - what one event adds to its row, whether its process is held or swept. */
#ifndef TFA_OP_ADDITION_H
#define TFA_OP_ADDITION_H

#include "ask/ops/op_rows.h"

struct addition {
    uint32_t name, shapes, modules, stack; /* the key of the row, as it has it */
    bool on_device, is_annotation;         /* the last of the key */
    bool is_call, is_async;
    int64_t start, end;
    uint32_t order;
    uint64_t flops;
    struct op_sums own, all;
    struct op_us us;
};

/* Returns the row of an event, which may be new and without an event; it stays so until the rows end. */
size_t op_row_of(struct op_rows *rows, const struct addition *addition);
/* Adds all but the times in microseconds, in any order of events. */
void op_row_add(struct op_rows *rows, size_t row, const struct addition *addition, size_t process);
/* Adds these, in the order of the events. */
static inline void op_row_add_us(struct op_row *row, const struct op_us *us)
{
    row->us.all += us->all;
    row->us.own += us->own;
    row->us.device += us->device;
    row->us.own_device += us->own_device;
}

/* Return the key of a row for the text in the trace. */
uint32_t op_flat_shapes(struct op_rows *rows, uint32_t shapes);
uint32_t op_first_frames(struct op_rows *rows, uint32_t stack);
static inline void op_sums_add(struct op_sums *to, const struct op_sums *from)
{
    to->time = add_ns(to->time, from->time);
    to->device = add_ns(to->device, from->device);
    to->host_bytes = add_ns(to->host_bytes, from->host_bytes);
    to->device_bytes = add_ns(to->device_bytes, from->device_bytes);
}
/* Returns the sums of an event without its children's. */
static inline struct op_sums op_sums_less(const struct op_sums *all, const struct op_sums *children)
{
    return (struct op_sums){less_ns(all->time, children->time), less_ns(all->device, children->device),
                            less_ns(all->host_bytes, children->host_bytes),
                            less_ns(all->device_bytes, children->device_bytes)};
}

#endif
