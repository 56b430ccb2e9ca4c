/* open_events.h - adds up events that come in order of their start, with the open ones of each thread alone.
 *
 * The rules are those of torch/autograd/profiler_util.py. An event's parent is the innermost event of its thread that
 * contains all of it; an event that only overlaps others has no parent. An only child with its parent's name is folded
 * into the parent. An event's memory is all that any thread allocated and freed while the event was open, both ends
 * included. Device work belongs to the operator that launched it.
 */
#ifndef TFA_OPS_OPEN_EVENTS_H
#define TFA_OPS_OPEN_EVENTS_H

#include "ask/ops/addition.h"
#include "ask/ops/nests.h"

/* Device work that one event launched itself. */
struct op_work {
    int64_t time;
    double us;
};

struct running {
    struct op_rows *rows;
    size_t process; /* its index in the model */
    int64_t base;   /* zero of torch's times */
    struct begun *begun;
    size_t begun_count, begun_capacity;
    uint32_t free; /* first free entry; NO_PLACE */
    struct ending {
        int64_t end;
        uint64_t number;
        uint32_t event;
        bool begins; /* the event begins there too */
    } * inner;       /* open events of which each ends before those that came here earlier; the next end last */
    size_t inners, inner_capacity;
    struct ending *ends; /* heap of the other open events, the next end first */
    size_t others, other_capacity;
    int64_t next_end;      /* of all open events; INT64_MAX: none */
    size_t covering;       /* open events that do not end before they start */
    uint64_t number;       /* events so far */
    uint64_t host, device; /* bytes allocated so far, less those freed; the caller adds to them */
    struct nests nests;
    struct queue *queue; /* by row */
    size_t queues, queue_capacity;
    struct recent *recent; /* rows found last */
};

void running_init(struct running *running, struct op_rows *rows, const struct process *process);
/* Returns the addition of a new event. The caller fills in all but its sums, and calls running_begin. */
struct addition *running_new(struct running *running, uint32_t *event);
/* Begins the event. `wanted`: it has a row; `work`: NULL if it launched none; `at`: NULL if rows->each is not to get it. */
void running_begin(struct running *running, uint32_t event, uint32_t thread, bool wanted, const struct op_work *work,
                   const struct belonging *at);
void running_end_before(struct running *running, int64_t time); /* the first one ends before it */
/* Ends the events that end before `time`. */
static inline void running_until(struct running *running, int64_t time)
{
    if (running->next_end < time) running_end_before(running, time);
}
/* Adds a block that was allocated or freed while no event was open. */
void running_add_loose(struct running *running, int64_t time, int64_t device, int64_t bytes);
/* Ends all events. */
void running_end(struct running *running);
void running_free(struct running *running);
/* Returns the time between two moments in microseconds, as torch computes it. */
double running_us(const struct running *running, int64_t start, int64_t end);

#endif
