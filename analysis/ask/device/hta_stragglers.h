/* hta_stragglers.h - the ranks that hold the others up as HTA 0.5.0 finds them: get_potential_stragglers. */
#ifndef TFA_HTA_STRAGGLERS_H
#define TFA_HTA_STRAGGLERS_H

#include "ask/hta_frame.h"

/* The last long run of the chosen kernel in a rank and step. */
struct hta_late {
    int64_t rank;
    uint32_t step;
    double start; /* from the first row of all steps, in mean step times */
    bool is_late; /* it is among the latest of its step */
};

struct hta_straggler {
    int64_t rank;
    uint64_t steps; /* in which its run is among the latest */
};

struct hta_stragglers {
    struct hta_straggler *rank; /* as many as were asked for, at most */
    size_t count;
    int64_t stream; /* of the kernel */
    uint32_t name;
    uint64_t steps;        /* number of steps */
    double step_us;        /* mean time of a step */
    struct hta_late *late; /* by rank and step */
    size_t lates;
};

/* Needs frames loaded with WANT_ALL_SPANS and WANT_EVENT_NUMBERS. Returns NULL, or why HTA raises an exception. */
const char *hta_stragglers(struct hta_stragglers *found, const struct hta_frames *frames, const struct names *names,
                           size_t candidates);
void hta_stragglers_free(struct hta_stragglers *found);

#endif
