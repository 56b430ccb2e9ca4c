/* et.h - writes PyTorch's execution trace, schema 1.1.1-chakra.0.0.4. */
#ifndef TFA_ET_H
#define TFA_ET_H

#include "model/execution/execution.h"
#include "model/model.h"
#include "write/out.h"

/* How many nodes were written, and how many are not as torch would write them. */
struct et_counts {
    uint64_t nodes;   /* functions */
    uint64_t open;    /* starts without an end, which have no node, as in torch */
    uint64_t endless; /* ends without a start */
    uint64_t cut;     /* nodes that lack values */
    uint64_t failed;  /* nodes whose function failed: torch writes none */
};

void et_write(struct out *out, const struct process *process, const struct executions *executions,
              struct et_counts *counts);

#endif
