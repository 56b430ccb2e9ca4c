/* cupti_sim.h - the simulated CUPTI: declarations that its files share.
 *
 * It rests on simgpu_subscribe() alone. A reported call or piece of work becomes an item if a client wants its kind at
 * that moment; drain() turns items into records in the client's buffers. There are four locks, taken in this order:
 * attaching, drain, the driver's, queue. Client callbacks run under drain (with SIMCUPTI_NASTY=lock also under the
 * driver's), never under queue. Only FlushAll waits for drain. Memory that a stale pointer may refer to is never freed.
 */
#ifndef CUPTI_SIM_H
#define CUPTI_SIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cupti.h>

#include "simgpu.h"

/* ---- cupti_config.c: settings from the environment ---- */
enum nasty {
#define NASTY(name, value, what) NASTY_##name,
#include "cupti_nasty.def"
#undef NASTY
    NR_NASTIES
};
struct sim_config {
    unsigned version;     /* 1206 for 12.6 */
    uint32_t api_version; /* value of cuptiGetVersion */
    uint32_t cbids[2];    /* by enum simgpu_domain: the first id that does not exist */
    unsigned nasty[NR_NASTIES];
    uint32_t correlation_offset;
};
const struct sim_config *sim_config(void);
bool sim_is_12(void); /* cupti_symbols.c: this is libcupti.so.12 */
static inline unsigned sim_nasty(enum nasty nasty)
{
    return sim_config()->nasty[nasty];
}
/* Called first in every function: returns the error that SIMCUPTI_FAIL has for it. */
CUptiResult sim_enter(const char *function);
bool sim_inherited(void); /* true in a child of fork, where the real one stops working, too */
#define BEGIN                                                                                                          \
    do {                                                                                                               \
        CUptiResult begin_ = sim_enter(__func__);                                                                      \
        if (begin_ != CUPTI_SUCCESS) return begin_;                                                                    \
    } while (0)
void *sim_resize(void *array, size_t bytes);
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *sim_result_name(CUptiResult result); /* NULL: no such result */

/* ---- cupti_names.c: callback ids by the names of the public headers ---- */
#define SIM_CBIDS 1024
uint32_t sim_cbid(uint32_t domain, const char *symbol);    /* enum simgpu_domain; 0: not traced */
const char *sim_cbid_name(uint32_t domain, uint32_t cbid); /* cudaMalloc_v3020; NULL: no such id */
uint32_t sim_cbid_limit(uint32_t domain);                  /* the first id that does not exist */

/* ---- cupti_clock.c ---- */
uint64_t sim_stamp(uint64_t monotonic); /* time of an event on the host that happens now */
uint64_t sim_stamp_device(unsigned device, uint64_t monotonic);
CUptiResult sim_clock_register(CUpti_TimestampCallbackFunc callback);
void sim_clock_foreign(void);
uint64_t sim_monotonic(void);

/* ---- cupti_records.c: layouts by version ---- */
struct sim_item {
    struct sim_item *next;
    enum { ITEM_API, ITEM_WORK, ITEM_GRAPH, ITEM_EXTERNAL, ITEM_OVERHEAD, ITEM_DEVICE, ITEM_CONTEXT } type;
    CUpti_ActivityKind kind;
    uint64_t thread; /* owner of the buffer */
    uint32_t v2;     /* its session of the second interface; 0: first interface */
    uint64_t cut;    /* time of the forced flush that took it while it ran; 0: it ended */
    union {
        CUpti_ActivityAPI api;
        struct simgpu_activity work; /* of a graph: first start, last end */
        CUpti_ActivityExternalCorrelation external;
        CUpti_ActivityOverhead3 overhead;
        uint32_t device;
    };
};
#define SIM_RECORD_MAX 512
size_t sim_record_size(CUpti_ActivityKind kind); /* 0: no records of this kind */
enum sim_damage { SIM_WHOLE, SIM_ZEROED, SIM_REVERSED, SIM_EARLY };
size_t sim_record_write(const struct sim_item *item, const char *name, enum sim_damage damage, bool latency, void *to);
CUpti_ActivityKind sim_work_kind(const struct simgpu_activity *work);

/* ---- cupti_traps.c: behaviour of real releases that surprises clients ---- */
void sim_trap_driverless(void);
void sim_trap_cbid(uint32_t domain, uint32_t cbid);
void sim_trap_registered(bool before);                        /* before: a callback was registered already */
enum sim_damage sim_trap_damage(const struct sim_item *item); /* decides which times the record gets */
void sim_trap_twice(const uint8_t *given, const uint8_t *out);
void sim_trap_flush(bool forced);
void sim_trap_launch(const char *symbol);

/* ---- cupti_switches.c: enabled kinds and functions ---- */
bool sim_wants(CUpti_ActivityKind kind, uint32_t context);
bool sim_wants_api(uint32_t domain, uint32_t cbid);
bool sim_wants_any_api(void);
CUpti_ActivityKind sim_kernel_kind(uint32_t context); /* INVALID: neither kind is enabled */
CUptiResult sim_want(CUpti_ActivityKind kind, bool on);
CUptiResult sim_want_context(uint32_t context, CUpti_ActivityKind kind, bool on);
CUptiResult sim_want_api(uint32_t domain, uint32_t cbid, bool on);
void sim_want_nothing(void);
bool sim_wants_anything(void);

/* ---- cupti_v2.c: the second interface ---- */
uint32_t sim_v2_session(void);
bool sim_v2_registered(void);
bool sim_v2_excludes(void); /* true if the first interface is refused now */
bool sim_v2_begin(void);
void sim_v2_end(void);
void sim_v2_request(uint32_t session, uint8_t **buffer, size_t *size, size_t *max);
void sim_v2_complete(uint32_t session, uint8_t *buffer, size_t size, size_t valid);

/* ---- cupti_queue.c: items, from the report to the buffer ---- */
enum { DRAIN_WAIT = 1, DRAIN_SYNCED = 2, DRAIN_FLUSH = 4, DRAIN_FORCED = 8 };
struct sim_item *sim_item(int type, CUpti_ActivityKind kind, uint64_t thread);
void sim_queue(struct sim_item *first); /* a list, which stays together */
void sim_queue_work(struct sim_item *item);
/* Adds a node of a graph that is recorded as a whole; true for the first node of a launch. */
bool sim_queue_graph(const struct simgpu_activity *node);
void sim_drain(unsigned how);
size_t sim_queue_length(bool running);
void sim_queue_forget(void);

/* ---- cupti_buffers.c: the client's buffers and callbacks; functions above sim_register() need the drain lock ---- */
extern uint8_t sim_thread_buffers, sim_latency_stamps;
void sim_emit(const struct sim_item *item);
void sim_hand_back_all(bool but_device);
void sim_deliver(bool all);
void sim_buffers_forget(void); /* for cuptiFinalize */
CUptiResult sim_register(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete);
size_t sim_take_dropped(void);
bool sim_in_callback(void);
struct sim_counts {
    uint64_t requested, refused, returned, written, zeroed, cut, dropped, kept, damaged, blocked;
};
extern struct sim_counts sim_counts;
bool sim_registered(void);

/* ---- cupti_worker.c: flushes, and CUPTI's own thread ---- */
CUptiResult sim_flush(bool forced);
void sim_flush_period(uint32_t ms);
void sim_worker_start(void);
void sim_worker_nudge(void);

/* Called after each CUDA call with NASTY_thread. While CUPTI holds no buffer, the call waits until the thread has
 * requested one: the real CUPTI has a buffer before the first record, and kineto never flushes before it has given
 * one. Later records only wake the thread when many are ready. */
void sim_worker_call(void);
bool sim_is_worker(void);

/* ---- cupti_watch.c: the driver's subscriber ---- */
CUptiResult sim_attach(void);
void sim_detach(void);
void *sim_driver(const char *symbol);                                          /* a function of libcuda.so.1 */
int sim_external(CUpti_ExternalCorrelationKind kind, bool push, uint64_t *id); /* -1: the stack is empty */
void sim_dump_devices(void);
extern uint32_t sim_thread_id_type;
uint32_t sim_thread_id(uint64_t thread, uint32_t tid);

/* ---- cupti_internal.c: CUPTI's own calls of the driver ---- */
bool sim_is_internal(void); /* true while this thread makes such a call */
void sim_internal_call(void);
void sim_internal_enable(void); /* calls in another thread and waits for it */

/* ---- cupti_callback.c ---- */
struct sim_site { /* data of one call, from entry to exit */
    uint64_t data;
};
void sim_callback(const struct simgpu_call *call, uint32_t cbid, struct sim_site *site);
void sim_callback_state(CUptiResult result, const char *message);
bool sim_callbacks_on(void);
bool sim_is_subscriber(CUpti_SubscriberHandle subscriber);
void sim_callback_forget(void);

#endif
