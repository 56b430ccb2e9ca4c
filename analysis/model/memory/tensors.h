/* tensors.h - the storages that a framework's operators used, and those of parameters, gradients and optimizer state. */
#ifndef TFA_TENSORS_H
#define TFA_TENSORS_H

#include "base/util.h"

/* The roles of the record `tensors`. */
enum tensor_role { TENSOR_INPUT = 1, TENSOR_OUTPUT, TENSOR_PARAMETER, TENSOR_GRADIENT, TENSOR_STATE };

struct tensor_use {
    int64_t time; /* of an operator its entry */
    uint32_t thread, name;
    uint32_t role, count; /* count: number of its storages */
    size_t first;         /* the first one in `address` */
};

struct tensor_op {
    int64_t start, end;
    uint32_t thread, name;
    bool is_backward; /* it runs in the backward pass, as libtorch's scope says */
};

/* In file order. Operators are kept only of a process that recorded storages. */
struct tensors {
    struct tensor_use *use;
    size_t uses, use_capacity;
    struct tensor_op *op;
    size_t ops, op_capacity;
    uint64_t *address;
    size_t addresses, address_capacity;
};

struct load;
void load_tensors(struct load *load);
void load_tensor_operators(struct load *load);
void tensors_free(struct tensors *tensors);

#endif
