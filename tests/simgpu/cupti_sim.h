/* cupti_sim.h - the simulated CUPTI: what its parts share.
 *
 * It stands on simgpu_subscribe() alone. A call or a piece of work becomes an item when it is reported and somebody
 * wants its kind then; drain() turns items into records in the client's buffers. Four locks, in this order: attaching,
 * drain, the driver's, queue. Client callbacks run under drain (and the driver's, if SIMCUPTI_NASTY says lock), never
 * under queue; nothing but FlushAll waits for drain. Memory is not given back to malloc where a stale pointer may live.
 */
#ifndef CUPTI_SIM_H
#define CUPTI_SIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cupti.h>

#include "simgpu.h"

/* ---- cupti_config.c: what the environment says ---- */
enum nasty {
#define NASTY(name, value, what) NASTY_##name,
#include "cupti_nasty.def"
#undef NASTY
    NR_NASTIES
};
struct sim_config {
    unsigned version;     /* 1206 for 12.6 */
    uint32_t api_version; /* as cuptiGetVersion says */
    uint32_t cbids[2];    /* by enum simgpu_domain: the first callback id that there is not */
    unsigned nasty[NR_NASTIES];
    uint32_t correlation_offset;
};
const struct sim_config *sim_config(void);
bool sim_is_12(void); /* cupti_symbols.c: this is libcupti.so.12 */
static inline unsigned sim_nasty(enum nasty nasty)
{
    return sim_config()->nasty[nasty];
}
/* At the start of every function: the error SIMCUPTI_FAIL has for it. */
CUptiResult sim_enter(const char *function);
bool sim_inherited(void); /* in a child that fork made: the real one can't go on there either */
#define BEGIN                                                                                                          \
    do {                                                                                                               \
        CUptiResult begin_ = sim_enter(__func__);                                                                      \
        if (begin_ != CUPTI_SUCCESS) return begin_;                                                                    \
    } while (0)
void *sim_resize(void *array, size_t bytes);
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *sim_result_name(CUptiResult result); /* NULL: none of that number */

/* ---- cupti_names.c: callback ids by the names of the public headers ---- */
#define SIM_CBIDS 1024
uint32_t sim_cbid(uint32_t domain, const char *symbol);    /* enum simgpu_domain; 0: it is not traced */
const char *sim_cbid_name(uint32_t domain, uint32_t cbid); /* cudaMalloc_v3020; NULL: no such id */
uint32_t sim_cbid_limit(uint32_t domain);                  /* the first id that is none */

/* ---- cupti_clock.c ---- */
uint64_t sim_stamp(uint64_t monotonic); /* of something that happens now, on the host */
uint64_t sim_stamp_device(unsigned device, uint64_t monotonic);
CUptiResult sim_clock_register(CUpti_TimestampCallbackFunc callback);
void sim_clock_foreign(void);
uint64_t sim_monotonic(void);

/* ---- cupti_records.c: layouts by version ---- */
struct sim_item {
    struct sim_item *next;
    enum { ITEM_API, ITEM_WORK, ITEM_GRAPH, ITEM_EXTERNAL, ITEM_OVERHEAD, ITEM_DEVICE, ITEM_CONTEXT } type;
    CUpti_ActivityKind kind;
    uint64_t thread; /* whose buffer it goes into */
    uint32_t v2;     /* session of the second interface it belongs to, 0: of the first */
    uint64_t cut;    /* when a forced flush took it although it was running; 0: it has ended */
    union {
        CUpti_ActivityAPI api;
        struct simgpu_activity work; /* of a graph: first start, last end */
        CUpti_ActivityExternalCorrelation external;
        CUpti_ActivityOverhead3 overhead;
        uint32_t device;
    };
};
#define SIM_RECORD_MAX 512
size_t sim_record_size(CUpti_ActivityKind kind); /* 0: there are no records of this kind here */
enum sim_damage { SIM_WHOLE, SIM_ZEROED, SIM_REVERSED };
size_t sim_record_write(const struct sim_item *item, const char *name, enum sim_damage damage, bool latency, void *to);
CUpti_ActivityKind sim_work_kind(const struct simgpu_activity *work);

/* ---- cupti_traps.c: what real releases do to clients that do not expect it ---- */
void sim_trap_driverless(void);
void sim_trap_cbid(uint32_t domain, uint32_t cbid);
void sim_trap_reregistered(void);
enum sim_damage sim_trap_damage(const struct sim_item *item); /* what is to become of a record's times */
void sim_trap_twice(const uint8_t *given, const uint8_t *out);
void sim_trap_flush(bool forced);
void sim_trap_launch(const char *symbol);

/* ---- cupti_switches.c: what is wanted ---- */
bool sim_wants(CUpti_ActivityKind kind, uint32_t context);
bool sim_wants_api(uint32_t domain, uint32_t cbid);
bool sim_wants_any_api(void);
CUpti_ActivityKind sim_kernel_kind(uint32_t context); /* INVALID: neither kind is wanted */
CUptiResult sim_want(CUpti_ActivityKind kind, bool on);
CUptiResult sim_want_context(uint32_t context, CUpti_ActivityKind kind, bool on);
CUptiResult sim_want_api(uint32_t domain, uint32_t cbid, bool on);
void sim_want_nothing(void);
bool sim_wants_anything(void);

/* ---- cupti_v2.c: the second interface ---- */
uint32_t sim_v2_session(void);
bool sim_v2_registered(void);
bool sim_v2_excludes(void); /* the first interface is refused now */
bool sim_v2_begin(void);
void sim_v2_end(void);
void sim_v2_request(uint32_t session, uint8_t **buffer, size_t *size, size_t *max);
void sim_v2_complete(uint32_t session, uint8_t *buffer, size_t size, size_t valid);

/* ---- cupti_queue.c: items, from the report to the buffer ---- */
enum { DRAIN_WAIT = 1, DRAIN_SYNCED = 2, DRAIN_FLUSH = 4, DRAIN_FORCED = 8 };
struct sim_item *sim_item(int type, CUpti_ActivityKind kind, uint64_t thread);
void sim_queue(struct sim_item *first); /* a list, kept together */
void sim_queue_work(struct sim_item *item);
/* True if it is the first node of a launch. */
bool sim_queue_graph(const struct simgpu_activity *node);
void sim_drain(unsigned how);
size_t sim_queue_length(bool running);
void sim_queue_forget(void);

/* ---- cupti_buffers.c: the client's buffers and callbacks; what stands before sim_register() needs the drain lock ---- */
extern uint8_t sim_thread_buffers, sim_latency_stamps;
void sim_emit(const struct sim_item *item);
void sim_hand_back_all(bool but_device);
void sim_deliver(bool all);
void sim_buffers_forget(void); /* cuptiFinalize */
CUptiResult sim_register(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete);
size_t sim_take_dropped(void);
bool sim_in_callback(void);
struct sim_counts {
    uint64_t requested, refused, returned, written, zeroed, cut, dropped, kept, damaged, blocked;
};
extern struct sim_counts sim_counts;
bool sim_registered(void);

/* ---- cupti_worker.c: flushes, and the thread of CUPTI's own ---- */
CUptiResult sim_flush(bool forced);
void sim_flush_period(uint32_t ms);
void sim_worker_start(void);
void sim_worker_nudge(void);
bool sim_is_worker(void);

/* ---- cupti_watch.c: the driver's subscriber ---- */
CUptiResult sim_attach(void);
void sim_detach(void);
void *sim_driver(const char *symbol);                                          /* of libcuda.so.1 */
int sim_external(CUpti_ExternalCorrelationKind kind, bool push, uint64_t *id); /* -1: none to pop */
void sim_dump_devices(void);
extern uint32_t sim_thread_id_type;
uint32_t sim_thread_id(uint64_t thread, uint32_t tid);

/* ---- cupti_internal.c: its own calls of the driver ---- */
bool sim_is_internal(void); /* this thread is in one */
void sim_internal_call(void);
void sim_internal_enable(void); /* in a thread of its own, which is waited for */

/* ---- cupti_callback.c ---- */
struct sim_site { /* of one call, from entry to exit */
    uint64_t data;
};
void sim_callback(const struct simgpu_call *call, uint32_t cbid, struct sim_site *site);
void sim_callback_state(CUptiResult result, const char *message);
bool sim_callbacks_on(void);
bool sim_is_subscriber(CUpti_SubscriberHandle subscriber);
void sim_callback_forget(void);

#endif
