/* kineto_rules.h - the rules of torch's own validator of traces (torch.profiler._trace_validator) beside that of kernels before
 * their launch, which kineto_judge.h has. */
#ifndef TFA_KINETO_RULES_H
#define TFA_KINETO_RULES_H

#include "model/health/doubts.h"
#include "model/model.h"
#include "read/kineto.h"

/* A wait, a record of an event, or a kernel. */
struct ruled {
    uint64_t
        key; /* correlation id of the record that it waits for, or of the record; the stream of a kernel or a wait */
    int64_t start, end;
};

struct ruled_list {
    struct ruled *item;
    size_t count, capacity;
};

/* All zero: no event yet. */
struct kineto_rules {
    struct ruled_list wait, record, kernel, sync;
    uint64_t waits, unnamed;     /* waits for events; those that name no record */
    uint64_t calls, undescribed; /* record_param_comms; those that lack a part of the description */
    struct map name_of,
        shared; /* of a sequence number: the hash of the backward operator's name; it has several names */
};

/* Takes an event with a duration. */
void rules_take(struct kineto_rules *rules, const struct kineto_event *event, enum event_class event_class);
void rules_conclude(struct kineto_rules *rules, struct doubts *health);
void rules_free(struct kineto_rules *rules);

#endif
