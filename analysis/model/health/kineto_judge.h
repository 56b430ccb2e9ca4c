/* kineto_judge.h - judges a Kineto trace while it is read: impossible times, and works and launches that do not meet.
 *
 * It keeps the id and the start of each call and each work, no more. Times that cannot be are found here; another reading
 * of the file leaves them out (struct stream_way).
 */
#ifndef TFA_KINETO_JUDGE_H
#define TFA_KINETO_JUDGE_H

#include "model/health/doubts.h"
#include "model/model.h"
#include "read/kineto.h"

/* The members of a call, or of a work that it launched, by which they are judged. */
struct call_or_work {
    uint64_t correlation;
    int64_t start, end;
    uint32_t thread; /* serial, of a call */
    bool is_launch;  /* of a kernel */
};

struct kineto_judge {
    struct call_or_work *call, *work;
    size_t calls, call_capacity, works, work_capacity;
    bool has_host;
    int64_t first, last; /* of events of the host whose time is not zero */
    uint64_t zeros;      /* events whose time is zero */
    uint64_t captures;   /* captures of graphs have launched nothing */
};

/* Takes an event with a duration. `thread`: its serial, if it is a call. */
void judge_take(struct kineto_judge *judge, const struct kineto_event *event, enum event_class event_class,
                uint32_t thread);
/* Tells whether times of the trace cannot be. Sets the limits beyond which they lie, as they stand in the file. */
bool judge_limits(const struct kineto_judge *judge, int64_t *not_before, int64_t *not_after);
void judge_conclude(struct kineto_judge *judge, struct doubts *health);
/* Returns the call with a correlation id, after judge_conclude; NULL if there is none. */
const struct call_or_work *call_of_correlation(const struct kineto_judge *judge, uint64_t correlation);
void judge_free(struct kineto_judge *judge);

#endif
