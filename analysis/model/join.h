/* join.h - joins the two records of one call: the wrapper's, and the device library's with its correlation id. */
#ifndef TFA_JOIN_H
#define TFA_JOIN_H

#include "model/model.h"

/* Tells whether the function belongs to the CUDA runtime or driver. */
bool is_device_call(const struct func *func);
/* Matches the wrapper's records of CUDA runtime and driver calls with the device library's records (spans). A
 * matched span takes the wrapper's times. A call without a span within 20 us stays unmatched. Call this after
 * process_finish. */
void join_calls(struct process *process, struct names *names);

/* Returns, by span, whether a call is joined to it. The caller frees the array. */
bool *joined_spans(const struct process *process);

/* One call, from either record or from both. */
struct made_call {
    uint32_t name, thread;
    int64_t start, end;
    uint32_t call, span; /* indices in process->calls and process->spans, or NO_PLACE */
};

/* Iterates once over every call of a device library and of NCCL: first the wrapped calls, then those with only a
 * span. */
struct made_calls {
    const struct process *process;
    struct names *names;
    bool *joined; /* by span: a call is joined to it */
    size_t next_call, next_span;
};
void made_calls_init(struct made_calls *made, const struct process *process, struct names *names);
bool made_calls_next(struct made_calls *made, struct made_call *call);
void made_calls_free(struct made_calls *made);

#endif
