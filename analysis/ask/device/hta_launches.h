/* hta_launches.h - the launches of a frame of HTA 0.5.0 with the work they started (get_cuda_kernel_launch_stats). */
#ifndef TFA_HTA_LAUNCHES_H
#define TFA_HTA_LAUNCHES_H

#include "ask/hta_frame.h"

/* A host row and a device row with the same correlation id. */
struct hta_launch {
    uint64_t correlation;
    int64_t host, device,
        delay; /* durations, and the time from the end of the host row to the start of the device row */
};

struct hta_launches {
    struct hta_launch *launch;
    size_t count, capacity;
    uint64_t left_out; /* pairs beyond HTA_MOST_PAIRS of one correlation id */
};

/* HTA joins each host row with each device row of an id. This limit is above what any recorded trace needs, and keeps
 * the join of a hostile one small. */
enum { HTA_MOST_PAIRS = 4096 };

void hta_launches(struct hta_launches *launches, const struct hta_frame *frame, const struct names *names);
void hta_launches_free(struct hta_launches *launches);

#endif
