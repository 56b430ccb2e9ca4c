/* captures.h - what traces of other programs show of the capture of CUDA graphs: each call, in order, and its operator.
 *
 * A call between the beginning and the end of a capture on its thread became a node, unless it has device work of its own.
 * ROCm's calls name the kernel that they launch, CUDA's do not. Captures of equal calls are one pattern. A call of a
 * pattern has an operator only if it has the same one in all these captures that a launch may replay: those that ended
 * before it.
 */
#ifndef TFA_CAPTURES_H
#define TFA_CAPTURES_H

#include "model/replays/captured_ops.h"

struct captured_call {
    uint32_t key;  /* capture_key() of what it launched */
    uint32_t op;   /* the innermost operator around it, in captures.ops; NO_PLACE: none */
    int64_t until; /* end of the first capture of the pattern in which it has another operator: op counts up to then */
};

struct capture_pattern {
    size_t first, count; /* its calls in captures.call */
    uint64_t hash;
    int64_t end;   /* of the earliest capture; INT64_MIN: in another file */
    bool is_named; /* each kernel has its name */
};

struct captures {
    struct captured_ops ops;
    struct captured_call *call;
    size_t calls, call_capacity;
    struct capture_pattern *pattern;
    size_t patterns, pattern_capacity;
    struct map known; /* index in `pattern`, by hash */
};

/* What two works or calls have in common if they may be the same node: the name of a kernel, else what kind of work
 * it is. */
uint32_t capture_key(struct names *names, enum event_class event_class, uint32_t kernel);

/* Adds the captures of a process. `names` are those of its model, `to` those that the captures have. `is_given`: the
 * trace is of a capture, its times are not those of the replays, and a thread without a beginning and an end of captures
 * is one. */
void captures_add(struct captures *captures, const struct process *process, struct names *names, struct names *to,
                  bool is_given);
/* Returns the pattern with these keys; NULL if there is none. */
const struct capture_pattern *captures_find(const struct captures *captures, const uint32_t *key, size_t count,
                                            bool is_named);
void captures_free(struct captures *captures);

#endif
