/* load_kineto_ops.h - takes from the arguments of Kineto's events what only some questions ask for. */
#ifndef TFA_LOAD_KINETO_OPS_H
#define TFA_LOAD_KINETO_OPS_H

#include "model.h"
#include "read_kineto.h"

/* An operator's inputs, sequence number, stack and operations; `name` gives texts their numbers. */
void take_op_detail(const struct kineto_event *event, bool with_flops, uint32_t (*name)(void *, struct slice),
                    void *context, struct op_detail *detail);
/* A [memory] instant becomes a block, and an [OutOfMemory] instant one that was refused. */
void take_block(const struct kineto_event *event, struct blocks *blocks);

#endif
