/* hta_calls.h - the host rows with a correlation id in a frame of HTA 0.5.0, and their links to device rows.
 *
 * HTA links two rows by the number of an event in its file (transform_correlation_to_index). If several rows of a side
 * share a correlation id, the link leads to the last of them.
 */
#ifndef TFA_HTA_CALLS_H
#define TFA_HTA_CALLS_H

#include "compat/hta_frame.h"

struct hta_call {
    int64_t start, end;
    uint64_t correlation;
    uint32_t name,
        number;    /* number of its event; of a trace of ours its index in spans; NO_PLACE: a wait of such a trace */
    uint32_t span; /* index in the process's spans; NO_PLACE: it is one of the works */
    bool kept;     /* in the frame */
};

struct hta_calls {
    struct hta_call *call; /* in file order */
    size_t count, capacity;
    struct map last; /* index of the last call, by correlation id */
};

/* True for the names that HTA takes for launches (get_runtime_launch_events_query). */
bool hta_is_launch(const char *name);
void hta_calls(struct hta_calls *calls, const struct hta_frame *frame, const struct names *names);
void hta_calls_free(struct hta_calls *calls);

#endif
