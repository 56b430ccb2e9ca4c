/* kineto_ops.h - reads arguments of Kineto's events that only some questions need. */
#ifndef TFA_LOAD_KINETO_OPS_H
#define TFA_LOAD_KINETO_OPS_H

#include "model/model.h"
#include "read/kineto.h"

/* Reads an operator's inputs, sequence number, stack and flops; `name` maps a text to its name number. */
void take_op_detail(const struct kineto_event *event, bool with_flops, uint32_t (*name)(void *, struct slice),
                    void *context, struct op_detail *detail);
/* Adds a [memory] instant as a block, or an [OutOfMemory] instant as a refused one. */
void take_block(const struct kineto_event *event, struct blocks *blocks);
/* Adds the blocks and the occupancy of a kernel, if the event has one of them. */
void take_filling(const struct kineto_event *event, struct process *process, size_t work);
/* Adds a range over which CUPTI counted; `kernel` is its name. Arguments that are no numbers are no counters. */
void take_counters(const struct kineto_event *event, uint32_t kernel, uint32_t (*name)(void *, struct slice),
                   void *context, struct counter_ranges *ranges);

#endif
