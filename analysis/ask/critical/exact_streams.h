/* exact_streams.h - which stream each call of a trace of ours means, and which streams wait for each other.
 *
 * A handle names one stream, but 0, cudaStreamLegacy and cudaStreamPerThread name another one on each device, and the
 * last one also in each thread. A call does not say its device: it is that of the thread's last launch or cudaSetDevice,
 * or that of the event that it records. After cuCtxSetCurrent, which is not recorded, it may be the one before.
 * In the variants for per-thread default streams (_ptsz, _ptds) 0 means cudaStreamPerThread.
 *
 * Work in the legacy stream waits for all earlier work of its device's blocking streams, and work in these for earlier
 * work of the legacy stream. A thread's own default stream is a blocking one, as is any other that was not created with
 * cudaStreamNonBlocking. A stream whose creation is not in the trace counts as non-blocking: no wait is made up.
 */
#ifndef TFA_EXACT_STREAMS_H
#define TFA_EXACT_STREAMS_H

#include "model/model.h"

enum stream_sort { STREAM_ALONE, STREAM_BLOCKING, STREAM_LEGACY };

struct streams {
    const struct process *process;
    const uint32_t *first_of_span; /* by span: the first work it launched, or NO_PLACE */
    struct map lane_of;            /* by key of a stream */
    struct map device_of;          /* by thread: its device */
    struct map device_of_event;    /* by handle */
    struct map is_blocking;        /* by handle: 1 or 0 */
    uint8_t *sort;                 /* by lane: enum stream_sort */
};

/* `order` has all calls by start. */
void streams_init(struct streams *streams, const struct process *process, const uint32_t *order,
                  const uint32_t *first_of_span);
void streams_free(struct streams *streams);
/* Takes what a call tells about later ones. Calls come by start. */
void streams_take(struct streams *streams, size_t call);
/* Returns the lane of the stream that a call means; MAP_NONE: unknown. */
uint32_t streams_lane(const struct streams *streams, size_t call);
/* Returns the device that is current in a call; -1: unknown. */
int64_t streams_device(const struct streams *streams, size_t call);
/* Finds an argument of a call. */
bool call_argument(const struct process *process, size_t call, const char *name, uint64_t *value);

#endif
