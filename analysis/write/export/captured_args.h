/* captured_args.h - the arguments that an export gives to work of a replayed graph: what is known of its capture. */
#ifndef TFA_CAPTURED_ARGS_H
#define TFA_CAPTURED_ARGS_H

#include "model/model.h"

enum { CAPTURED_ARGS = 5 };

struct captured_arg {
    const char *key;
    const char *text;
    size_t length;
    struct text made; /* the caller frees it */
};

/* Fills `arg` with the operator, its inputs, modules and Python line, and how it was found. Returns the number of
 * arguments: 0 if the operator is not known. `detail` may be all unknown. */
size_t captured_args(const struct names *names, const struct graph_node *node, uint32_t op,
                     const struct op_detail *detail, struct captured_arg arg[CAPTURED_ARGS]);

#endif
