/* events.h - device times where there is no CUPTI: stages, and with TFI_EVENT_KERNELS=1 launches, by CUDA events. */
#ifndef TFI_EVENTS_H
#define TFI_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "sys.h"

/* ---- the rest of the library's side ---- */

/* To be called once, when it is known that there is no CUPTI: from here on launches are timed. */
void tfi_events_begin(void);

/* For the background thread: writes what has come to an end; false if nothing had. */
bool tfi_events_work(void);
/* How long it may sleep then, at most `most` milliseconds. */
unsigned tfi_events_wait(unsigned most);

/* At the end, before the footer: writes what has come to an end, counts the rest. False if something is not in the
 * trace that should be. */
bool tfi_events_finish(void);

/* How many pairs of an open stage and a stream there are. */
extern uint32_t tfi_events_spans;
void tfi_events_close(uint64_t range);

/* To be called when a stage has ended; makes no call of CUDA. */
static inline void tfi_events_stage_end(uint64_t range)
{
    if (__builtin_expect(__atomic_load_n(&tfi_events_spans, __ATOMIC_RELAXED) != 0, 0)) tfi_events_close(range);
}

/* Before the runtime resets the device of the current context. */
void tfi_events_device_reset(void);

/* ---- what events.c and events_launch.c share ---- */

#define TFI_EVENTS_NONE UINT32_MAX
#define TFI_EVENTS_MAX_ITEMS 8192u
#define TFI_EVENTS_MAX_EVENTS 8192u /* of a context */
#define TFI_EVENTS_MAX_CONTEXTS 16u
#define TFI_EVENTS_MAX_SPANS 256u
#define TFI_EVENTS_LAUNCH_MS 20 /* how long a launch waits for `lists` */

/* The driver's functions that are needed, with C types of the same size. */
#define TFI_EVENTS_FUNCTIONS                                                                                           \
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

struct tfi_events_driver {
#define API(name, symbol, params) int(*name) params;
    TFI_EVENTS_FUNCTIONS
#undef API
    int (*FuncGetName)(const char **, void *); /* 12.3 and newer; may be NULL */
};
extern struct tfi_events_driver tfi_events_driver;

struct tfi_event {
    void *handle;
    uint32_t users; /* items and spans that hold it */
    uint32_t next;  /* free one */
};

enum tfi_event_item_kind { TFI_EVENT_ITEM_KERNEL, TFI_EVENT_ITEM_GRAPH, TFI_EVENT_ITEM_STAGE };

/* What to a launch or a stage still has to be found out. */
struct tfi_event_item {
    uint32_t next, kind; /* enum tfi_event_item_kind */
    uint32_t begin, end; /* events */
    uint32_t stream, name;
    uint64_t id; /* of the launch: its correlation; of the stage: its range */
    uint32_t shape[7];
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
    uint32_t first, last; /* items that wait */
    void *stream;         /* of ours */
    void *anchor[2];
    uint32_t current; /* which anchor holds */
    uint64_t anchor_ns, anchored;
};

/* An open stage in a stream. */
struct tfi_event_span {
    uint64_t range;
    struct tfi_event_context *context;
    uint32_t stream, begin, end, launches;
};

struct tfi_events {
    struct tfi_lock lists, polling;
    uint32_t on;
    uint32_t gen;   /* of the trace; another one in the child of a fork */
    uint32_t quiet; /* the driver is not called any more */
    pid_t pid;
    uint32_t correlation;
    uint32_t waiting; /* items */
    uint32_t nr_items, free_item;
    uint32_t told;  /* generation of the message about all this */
    uint64_t shift; /* monotonic clock to DEVICE_NS */
    struct tfi_event_item *item;
    struct tfi_event_span *span;
    struct tfi_event_context context[TFI_EVENTS_MAX_CONTEXTS];
};
extern struct tfi_events tfi_events;

/* The calling thread's capture mode becomes relaxed; returns what it was, -1 if that failed. */
int tfi_events_relaxed(void);
void tfi_events_restore(int mode);

/* What a launch goes into. */
struct tfi_event_place {
    void *context, *stream;
    unsigned long long id, stream_id;
};

/* With `lists`: the context of a launch, met for the first time or known; NULL if it is not to be used. */
struct tfi_event_context *tfi_events_context(const struct tfi_event_place *place);
/* With `lists`: a free event, a new one, and the end of one use. */
uint32_t tfi_events_pop(struct tfi_event_context *context);
uint32_t tfi_events_make(struct tfi_event_context *context);
void tfi_events_unuse(struct tfi_event_context *context, uint32_t event);
/* With `lists`: takes over one use of each event; false, counted, if there is no room. */
bool tfi_events_add(struct tfi_event_context *context, const struct tfi_event_item *item);
/* With `polling`, the context current: writes at most `most` records; `lose` counts what has not come to an end. */
uint32_t tfi_events_resolve(struct tfi_event_context *context, uint32_t most, bool lose);
/* Before a context goes: the one with this handle, or, with NULL, those of a device. */
void tfi_events_leave(void *handle, int device);
/* The launching functions of the driver get their way round. */
void tfi_events_put_before(void *driver);

#endif
