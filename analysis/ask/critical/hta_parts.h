/* hta_parts.h - the parts of the critical path of HTA 0.5.0: its rows, its queue depths and its waits for events. */
#ifndef TFA_CRITICAL_HTA_PARTS_H
#define TFA_CRITICAL_HTA_PARTS_H

#include "ask/device/hta_calls.h"

/* The rows of a frame, and how HTA links them. */
struct hta_links {
    const struct hta_frame *frame;
    const struct process *process;
    const struct names *names;
    struct hta_calls calls;
    struct map linked; /* by correlation id: the last device row, an index in works */
    bool *kept;        /* by work: it is in the frame */
    bool is_repeated;  /* a row is in the frame more than once */
};

void hta_links(struct hta_links *links, const struct hta_frame *frame, const struct names *names);
void hta_links_free(struct hta_links *links);
/* Returns the device row that a call is linked to; NO_PLACE: none, or the first event of the file. */
uint32_t hta_work_of(const struct hta_links *links, uint32_t call);
/* Returns the call that a device row is linked to; NO_PLACE: none. */
uint32_t hta_call_of(const struct hta_links *links, uint32_t work);
bool hta_is_named(const struct hta_links *links, uint32_t name, const char *text);

/* ---- queue depths (get_queue_length_time_series) ---- */

enum { NO_DEPTH = INT32_MIN };

struct hta_depth {
    uint32_t call;
    int64_t stream, time;
    int32_t depth;
};

struct hta_depths {
    int32_t *of_work;      /* by work: the depth when it began, or NO_DEPTH */
    struct hta_depth *one; /* the depths when launches were called, by call */
    size_t count;
};

/* Returns why HTA fails, or NULL: it knows no launch, or launches and device rows do not meet one to one. */
const char *hta_depths(struct hta_depths *depths, const struct hta_links *links);
void hta_depths_free(struct hta_depths *depths);
/* Returns the index in `one` of the first depth of a call; `count` if it has none. */
size_t hta_depth_of_call(const struct hta_depths *depths, uint32_t call);

/* ---- waits for events ---- */

struct hta_started {
    int64_t time, device, stream;
    uint32_t call, thread, place; /* place: among all launches, by time */
};

struct hta_waits {
    struct hta_started *by_stream, *by_thread; /* launches, by device and stream, and by thread and stream */
    size_t count;
    struct map previous; /* by correlation id of a call that recorded an event: the launch before it, or NO_PLACE - 1 */
    struct map waited;   /* by work: index in the process's `waited` */
    bool has_waits;      /* there is a call of cudaStreamWaitEvent */
};

/* Returns false if HTA fails: a recorded event has two streams. */
bool hta_waits(struct hta_waits *waits, const struct hta_links *links);
void hta_waits_free(struct hta_waits *waits);
/* Returns the call that launched the last work before the event that a row waits for; NO_PLACE: unknown. */
uint32_t hta_launch_before(const struct hta_waits *waits, const struct hta_links *links, uint32_t work);
/* Returns the launch after a call of cudaStreamWaitEvent on its thread and stream; NO_PLACE: none. */
uint32_t hta_launch_after(const struct hta_waits *waits, const struct hta_links *links, uint32_t call);

#endif
