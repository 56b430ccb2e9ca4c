/* functions.h - the functions of libtorch that have a number (`Record function id`), their times and their device work.
 *
 * They come from the function records of a trace of ours, or from the operators and annotations of a PyTorch trace. A
 * function is inside the innermost one that encloses it in its thread. Device work belongs to the innermost function
 * around the call that launched it.
 */
#ifndef TFA_FUNCTIONS_H
#define TFA_FUNCTIONS_H

#include "ask/attribute.h"
#include "model/execution/execution.h"

struct function_call {
    uint64_t number;
    uint64_t name; /* hash of its name; 0: unknown, as torch.profiler does not write every name */
    int64_t start, end;
    int64_t own;           /* nanoseconds outside the functions inside it */
    uint32_t thread;       /* serial */
    uint32_t around;       /* place of the function that it is in; NO_PLACE: none */
    uint32_t first, works; /* its device work, in functions.work */
};

/* The calls are sorted by thread, then by start, outer ones first. */
struct functions {
    struct function_call *call;
    size_t count, capacity;
    struct map by_number; /* place of a call */
    uint32_t *work;       /* indices in process->works, sorted by start for each call */
    uint64_t doubled;     /* calls left out: an earlier one has the same number */
    uint64_t outside;     /* device work that no function launched */
};

/* Collects the functions of a trace of ours. */
void functions_of_executions(struct functions *functions, const struct process *process, const struct trace *trace,
                             const struct executions *executions);
/* Collects those of a PyTorch trace, which the model has with WANT_EVENT_NUMBERS, ranges and operators; its file is
 * read again. */
void functions_of_kineto(struct functions *functions, const struct process *process);
/* Finds what is inside what, and the device work; `attribution` is the process's. */
void functions_link(struct functions *functions, const struct process *process, const struct attribution *attribution);
void functions_free(struct functions *functions);

#endif
