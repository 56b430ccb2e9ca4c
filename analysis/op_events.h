/* op_events.h - a process's host events as torch.profiler's tables see them: who lies in whom, what is whose.
 *
 * The rules are those of torch/autograd/profiler_util.py. An event is the child of the innermost one of its thread that
 * holds all of it; what only overlaps has no parent. An only child with its parent's name is the parent. What was allocated
 * and freed while an event was open, by any thread, is its memory, less the blocks that the caller leaves out; what a
 * device did is the operator's that launched it.
 */
#ifndef TFA_OP_EVENTS_H
#define TFA_OP_EVENTS_H

#include "choice.h"

enum op_kind { OP_STAGE, OP_SPAN, OP_CALL, OP_PYTHON };

struct op_event {
    int64_t start, end;
    uint32_t thread;
    uint32_t order; /* in which it was found: decides where all else is the same */
    uint32_t place; /* OP_STAGE: in ranges; OP_CALL: in calls; else in spans */
    uint8_t kind;   /* enum op_kind */
};

/* What lies in an event, its children's with it; its own is less what they have. */
struct op_sums {
    int64_t time, device, host_bytes, device_bytes;
};

/* The times once more, in microseconds as torch computes them: differences and sums of doubles, in torch's order. Their
 * last digits are not those of whole nanoseconds, and torch's tables show them. */
struct op_us {
    double all, own, device, own_device;
};

struct op_events {
    const struct process *process;
    int64_t base; /* torch counts from here */
    const struct attribution *attribution;
    struct names *names;
    struct op_event *event; /* by thread, then by time, the outer one first */
    size_t count, capacity;
    uint32_t *parent;   /* NO_PLACE: none. Of one that is gone: the one that took its place */
    bool *is_gone;      /* it was its parent */
    int64_t *kernels;   /* the time of what it launched itself */
    double *kernels_us; /* the same as torch adds it up */
    struct op_us *us;
    struct op_sums *all, *children;
    bool has_memory;
    bool *is_loose;       /* by block: no event was open */
    const bool *left_out; /* by block, or NULL: it counts nowhere */
};

/* `attribution` has the process's spans. `left_out` is the caller's, and lives as long. */
void op_events_init(struct op_events *events, const struct process *process, const struct attribution *attribution,
                    const bool *left_out, struct names *names);
void op_events_free(struct op_events *events);
/* The time between two moments as torch computes it. */
double op_elapsed_us(const struct op_events *events, int64_t start, int64_t end);
uint32_t op_event_name(const struct op_events *events, const struct op_event *event);
/* Nothing lies in such a stage and it lies in nothing; it has no time, memory or work of its own. */
bool op_event_is_async(const struct op_events *events, const struct op_event *event);

#endif
