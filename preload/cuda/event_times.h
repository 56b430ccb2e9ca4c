/* event_times.h - device times of stages by CUDA events if there is no CUPTI. */
#ifndef TFI_EVENT_TIMES_H
#define TFI_EVENT_TIMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sys.h"

struct tfi_job;

/* ---- for the rest of the library ---- */

/* Called once, when it is known that there is no CUPTI: launches are timed from here on. */
void tfi_event_times_begin(void);

/* Job of the calling thread: writes the items that have completed. */
extern const struct tfi_job tfi_event_times_job;

/* Called at the end, before the footer: writes the items that have completed and counts the others as lost. False
 * if records may be missing from the trace. */
bool tfi_event_times_finish(void);

/* Number of pairs of an open stage and a stream. */
extern uint32_t tfi_event_times_spans;

/* Called before the runtime resets the device of the current context. */
void tfi_event_times_device_reset(void);

/* ---- shared by event_times.c and event_launches.c ---- */

#define TFI_EVENT_TIMES_NONE UINT32_MAX
#define TFI_EVENT_TIMES_MAX_ITEMS 8192u
#define TFI_EVENT_TIMES_MAX_EVENTS 8192u /* per context */
#define TFI_EVENT_TIMES_MAX_CONTEXTS 16u
#define TFI_EVENT_TIMES_MAX_SPANS 256u
#define TFI_EVENT_TIMES_LAUNCH_MS 20 /* how long a launch waits for `lists` */

/* Driver functions that the timing needs, with C types of the same size. */
#define TFI_EVENT_TIMES_FUNCTIONS                                                                                      \
    API(EventCreate, "cuEventCreate", (void **, unsigned))                                                             \
    API(EventDestroy, "cuEventDestroy_v2", (void *))                                                                   \
    API(EventRecord, "cuEventRecord", (void *, void *))                                                                \
    API(EventQuery, "cuEventQuery", (void *))                                                                          \
    API(EventElapsedTime, "cuEventElapsedTime", (float *, void *, void *))                                             \
    API(StreamCreate, "cuStreamCreate", (void **, unsigned))                                                           \
    API(StreamDestroy, "cuStreamDestroy_v2", (void *))                                                                 \
    API(StreamIsCapturing, "cuStreamIsCapturing", (void *, int *))                                                     \
    API(StreamGetCtx, "cuStreamGetCtx", (void *, void **))                                                             \
    API(StreamGetId, "cuStreamGetId", (void *, unsigned long long *))                                                  \
    API(CtxGetCurrent, "cuCtxGetCurrent", (void **))                                                                   \
    API(CtxGetId, "cuCtxGetId", (void *, unsigned long long *))                                                        \
    API(CtxGetDevice, "cuCtxGetDevice", (int *))                                                                       \
    API(CtxPush, "cuCtxPushCurrent_v2", (void *))                                                                      \
    API(CtxPop, "cuCtxPopCurrent_v2", (void **))                                                                       \
    API(Mode, "cuThreadExchangeStreamCaptureMode", (int *))

struct tfi_event_times_driver {
#define API(name, symbol, params) int(*name) params;
    TFI_EVENT_TIMES_FUNCTIONS
#undef API
};
extern struct tfi_event_times_driver tfi_event_times_driver;

struct tfi_event {
    void *handle;
    uint32_t users; /* items and spans that hold it */
    uint32_t next;  /* next free event */
};

/* A stage in a stream whose events have not completed yet. */
struct tfi_event_item {
    uint64_t range;
    uint32_t next, stream;
    uint32_t begin, end; /* events */
    uint32_t launches;
};

enum tfi_event_context_state { TFI_EVENT_CONTEXT_FREE, TFI_EVENT_CONTEXT_USED, TFI_EVENT_CONTEXT_BROKEN };

struct tfi_event_context {
    uint32_t state;
    uint32_t device;
    void *handle;
    uint64_t id;
    struct tfi_event *pool;
    uint32_t nr_events, free_event;
    uint32_t first, last; /* items that have not completed */
    void *stream;         /* our own */
    void *anchor[2];
    uint32_t current; /* index of the valid anchor */
    uint64_t anchor_ns, anchored;
};

/* An open stage in a stream. */
struct tfi_event_span {
    uint64_t range;
    struct tfi_event_context *context;
    uint32_t stream, begin, end, launches;
};

struct tfi_event_times {
    struct tfi_lock lists, polling;
    uint32_t on;
    uint32_t gen;   /* of the trace; the child of a fork has another one */
    uint32_t quiet; /* the driver is no longer called */
    pid_t pid;
    uint32_t waiting; /* items */
    uint32_t nr_items, free_item;
    uint32_t told;  /* generation whose trace has the message about event times */
    uint64_t shift; /* monotonic clock to DEVICE_NS */
    struct tfi_event_item *item;
    struct tfi_event_span *span;
    struct tfi_event_context context[TFI_EVENT_TIMES_MAX_CONTEXTS];
};
extern struct tfi_event_times tfi_event_times;

/* Sets the calling thread's capture mode to relaxed; returns the mode before, -1 if that failed. */
int tfi_event_times_relaxed(void);
void tfi_event_times_restore(int mode);

/* Context and stream of a launch, with their ids. */
struct tfi_event_place {
    void *context, *stream;
    unsigned long long id, stream_id;
};

/* With `lists` held: the context of a launch, opened if it is new; NULL if it cannot be used. */
struct tfi_event_context *tfi_event_times_context(const struct tfi_event_place *place);
/* With `lists` held: takes a free event, makes a new one, gives up one use of an event. */
uint32_t tfi_event_times_pop(struct tfi_event_context *context);
uint32_t tfi_event_times_make(struct tfi_event_context *context);
void tfi_event_times_unuse(struct tfi_event_context *context, uint32_t event);
/* With `polling` held and the context current: writes at most `most` records; `lose` counts the items that have
 * not completed as lost. */
uint32_t tfi_event_times_resolve(struct tfi_event_context *context, uint32_t most, bool lose);
/* Called before a context is destroyed: the one with this handle or, for NULL, all contexts of a device. */
void tfi_event_times_leave(void *handle, int device);
/* Installs our detours on the driver's launch functions. */
void tfi_event_times_put_before(void *driver);

#endif
