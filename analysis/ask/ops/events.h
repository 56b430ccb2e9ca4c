/* events.h - what a process holds in order of its start: host events as in torch.profiler's tables, device work, blocks.
 *
 * An entry is a number: those of ranges come first, then those of spans, calls, device work and blocks, each in the order
 * of its table. So the number is also the order of collection, torch's last sort key. Four bytes an entry are all that
 * the order takes. Operators in the file (model/tables_in_file.h) have numbers behind the spans, and no entry.
 */
#ifndef TFA_OP_EVENTS_H
#define TFA_OP_EVENTS_H

#include "model/model.h"

enum op_kind { OP_STAGE, OP_SPAN, OP_CALL, OP_PYTHON, OP_WORK, OP_BLOCK };

struct op_event {
    int64_t start, end;
    uint32_t thread; /* 0 for device work and blocks */
    uint32_t order;  /* order of collection; the last sort key */
    uint32_t place;  /* index into ranges (OP_STAGE), calls (OP_CALL), works, blocks or spans (others) */
    uint8_t kind;    /* enum op_kind */
};

struct op_events {
    const struct process *process;
    struct names *names;
    uint32_t *sorted;                     /* entries by start, the outer one first, then by number */
    size_t count;                         /* entries in `sorted` */
    uint32_t spans, calls, works, blocks; /* number of the first of each table; `works` is the number of host events */
    uint32_t main;                        /* serial of the main thread; NO_PLACE: unknown */
    bool is_kineto;
};

/* True for the name of an operator that torch leaves out of its tables. */
bool op_is_hidden(const char *name);
void op_events_init(struct op_events *events, const struct process *process, struct names *names);
void op_events_free(struct op_events *events);
struct op_event op_event_of(const struct op_events *events, uint32_t entry);
/* Returns the name of a host event. */
uint32_t op_event_name(const struct op_events *events, const struct op_event *event);
/* True for an asynchronous stage. It has no parent and no children, and no time, memory or work of its own. */
bool op_event_is_async(const struct op_events *events, const struct op_event *event);

#endif
