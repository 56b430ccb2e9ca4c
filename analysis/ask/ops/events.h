/* events.h - a process's host events with their parents, memory and device work, as in torch.profiler's tables.
 *
 * The rules are those of torch/autograd/profiler_util.py. An event's parent is the innermost event of its thread that
 * contains all of it; an event that only overlaps others has no parent. An only child with its parent's name is folded
 * into the parent. An event's memory is all that any thread allocated and freed while the event was open, less the
 * blocks that the caller leaves out. Device work belongs to the operator that launched it.
 */
#ifndef TFA_OP_EVENTS_H
#define TFA_OP_EVENTS_H

#include "ask/choice.h"

enum op_kind { OP_STAGE, OP_SPAN, OP_CALL, OP_PYTHON };

struct op_event {
    int64_t start, end;
    uint32_t thread;
    uint32_t order; /* order of collection; the last sort key */
    uint32_t place; /* index into ranges (OP_STAGE), calls (OP_CALL) or spans (others) */
    uint8_t kind;   /* enum op_kind */
};

/* Totals of an event including its children. Its own totals are these less its children's. */
struct op_sums {
    int64_t time, device, host_bytes, device_bytes;
};

/* The same times in microseconds as torch computes them: differences and sums of doubles, in torch's order. Their last
 * digits differ from whole nanoseconds, and torch's tables show them. */
struct op_us {
    double all, own, device, own_device;
};

/* Parts of these totals that are held for each event; those that follow from its times are not. */
struct op_host {
    int64_t children; /* time of the children */
    double own_us;
};
struct op_device {
    int64_t all, children;
    double all_us, own_us;
};
struct op_bytes {
    int64_t host, device, host_of_children, device_of_children;
};

struct op_events {
    const struct process *process;
    int64_t base; /* zero of torch's times */
    const struct attribution *attribution;
    struct names *names;
    struct op_event *event; /* sorted by thread, then by time, the outer one first */
    size_t count, capacity;
    uint32_t *parent; /* NO_PLACE: none; for a folded event, the event it was folded into */
    bool *is_gone;    /* folded into its parent */
    struct op_host *host;
    struct op_device *device; /* NULL: the process has no device work */
    struct op_bytes *bytes;   /* NULL: it has no blocks */
    bool *is_loose;           /* by block: allocated or freed while no event was open */
    const bool *left_out;     /* by block: it counts nowhere; or NULL */
};

/* True for the name of an operator that torch leaves out of its tables. */
bool op_is_hidden(const char *name);
/* `attribution` must include spans. The caller keeps `left_out` alive as long as the events. */
void op_events_init(struct op_events *events, const struct process *process, const struct attribution *attribution,
                    const bool *left_out, struct names *names);
void op_events_free(struct op_events *events);
/* Return the totals of an event that is not folded. `children` gets those of its children. */
struct op_sums op_event_sums(const struct op_events *events, size_t i, struct op_sums *children);
struct op_us op_event_us(const struct op_events *events, size_t i);
/* Returns the time between two moments in microseconds, as torch computes it. */
double op_elapsed_us(const struct op_events *events, int64_t start, int64_t end);
uint32_t op_event_name(const struct op_events *events, const struct op_event *event);
/* True for an asynchronous stage. It has no parent and no children, and no time, memory or work of its own. */
bool op_event_is_async(const struct op_events *events, const struct op_event *event);

#endif
