/* join.h - one call, two records: the wrapper's, and the device library's with its correlation id. */
#ifndef TFA_JOIN_H
#define TFA_JOIN_H

#include "model.h"

/* A function of the CUDA runtime or driver. */
bool is_device_call(const struct func *func);
/* Finds the span of each call, after process_finish. A span that has a call gets its times and its thread. */
void join_calls(struct process *process, struct names *names);

/* By span: some call has it. To be freed. */
bool *joined_spans(const struct process *process);

/* One call, whichever records there are of it. */
struct made_call {
    uint32_t name, thread;
    int64_t start, end;
    uint32_t call, span; /* places in process->calls and process->spans, or NO_PLACE */
};

/* Every call of a device's library and of NCCL once: first those the wrappers saw, then what only spans tell. */
struct made_calls {
    const struct process *process;
    struct names *names;
    bool *joined; /* by span: a call has it */
    size_t next_call, next_span;
};
void made_calls_init(struct made_calls *made, const struct process *process, struct names *names);
bool made_calls_next(struct made_calls *made, struct made_call *call);
void made_calls_free(struct made_calls *made);

#endif
