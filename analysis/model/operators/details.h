/* details.h - the details of those operators that have some, found by the operator's index in the spans.
 *
 * Many operators of a long trace have none, so each span has a bit and only those with details have a row.
 */
#ifndef TFA_OPERATOR_DETAILS_H
#define TFA_OPERATOR_DETAILS_H

#include "base/sets/bits.h"

/* Details of an operator beside its times. The texts are JSON, as Kineto writes them, except for modules,
 * which are plain text; NAME_NONE: none. */
struct op_detail {
    int64_t sequence;        /* -1: none */
    uint64_t flops;          /* 0: not known */
    uint32_t forward_thread; /* serial of the forward operator's thread; 0: not a backward operator */
    uint32_t shapes, types, concrete, strides, modules;
    uint32_t stack; /* model/frames.h */
    uint32_t scope; /* enum tfi_scope */
};

struct op_details {
    struct op_detail *detail; /* in the order of the spans */
    size_t count, capacity;
    struct bits has;  /* by span */
    uint32_t *before; /* by word of `has`: number of details of earlier words */
    size_t words, word_capacity;
};

/* Keeps the details of a span, unless there are none. Spans come in ascending order. */
void op_details_add(struct op_details *details, size_t span, const struct op_detail *detail);
/* Returns the details of an operator, all unknown if it has none. */
const struct op_detail *op_details_of(const struct op_details *details, size_t span);
void op_details_free(struct op_details *details);

#endif
