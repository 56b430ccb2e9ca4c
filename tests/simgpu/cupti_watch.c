/* cupti_watch.c - a simulated CUPTI: turns the driver's reports into items and callbacks.
 *
 * The time of the report decides whether a client wants an item. The API record of a call comes at its exit, after the
 * work it launched. Both carry the id of the outermost call. A driver call inside a call of the runtime has no record,
 * only callbacks: torch 2.6's profiler relies on that. Nothing here may call CUDA.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cupti_sim.h"

#define MAX_DEPTH 16
#define MAX_EXTERNAL 64
struct thread {
    unsigned depth;
    struct frame {
        uint64_t start;
        uint32_t cbid;
        struct sim_site site;
    } frames[MAX_DEPTH];
    struct external {
        unsigned n;
        uint64_t ids[MAX_EXTERNAL];
    } external[CUPTI_EXTERNAL_CORRELATION_KIND_SIZE];
};
static __thread struct thread me;
static pthread_mutex_t attaching = PTHREAD_MUTEX_INITIALIZER;
static bool attached;
static void *driver;
uint32_t sim_thread_id_type;

void *sim_driver(const char *symbol)
{
    void *library = __atomic_load_n(&driver, __ATOMIC_ACQUIRE);
    return library ? dlsym(library, symbol) : NULL;
}

uint32_t sim_thread_id(uint64_t thread, uint32_t tid)
{
    return sim_thread_id_type == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM ? tid : (uint32_t)thread;
}

int sim_external(CUpti_ExternalCorrelationKind kind, bool push, uint64_t *id)
{
    struct external *e = &me.external[kind];
    if (push) {
        if (e->n < MAX_EXTERNAL) e->ids[e->n] = *id;
        e->n++;
        return 0;
    }
    if (!e->n) return -1;
    e->n--;
    *id = e->n < MAX_EXTERNAL ? e->ids[e->n] : 0;
    return 0;
}

/* ---- calls ---- */

/* The records of external ids precede that of the call. */
static struct sim_item *externals(uint32_t correlation, uint64_t thread)
{
    struct sim_item *list = NULL;
    if (!sim_wants(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, 0)) return NULL;
    for (int kind = CUPTI_EXTERNAL_CORRELATION_KIND_SIZE - 1; kind > 0; kind--) {
        struct external *e = &me.external[kind];
        if (!e->n || e->n > MAX_EXTERNAL) continue;
        struct sim_item *item = sim_item(ITEM_EXTERNAL, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, thread);
        item->external.kind = item->kind;
        item->external.externalKind = (CUpti_ExternalCorrelationKind)kind;
        item->external.externalId = e->ids[e->n - 1];
        item->external.correlationId = correlation;
        item->next = list;
        list = item;
    }
    return list;
}

static void record_call(const struct simgpu_call *call, const struct frame *frame, uint64_t end)
{
    uint32_t correlation = call->correlation + sim_config()->correlation_offset;
    struct sim_item *item =
        sim_item(ITEM_API, call->domain == SIMGPU_DRIVER ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME,
                 call->thread);
    item->api.kind = item->kind;
    item->api.cbid = frame->cbid;
    item->api.start = frame->start;
    item->api.end = end;
    item->api.processId = (uint32_t)getpid();
    item->api.threadId = sim_thread_id(call->thread, call->tid);
    item->api.correlationId = correlation;
    item->api.returnValue = (uint32_t)call->result;
    struct sim_item *list = externals(correlation, call->thread), **end_of = &list;
    while (*end_of) end_of = &(*end_of)->next;
    *end_of = item;
    sim_queue(list);
}

static void entered(const struct simgpu_call *call, struct frame *frame)
{
    frame->cbid = sim_wants_any_api() || sim_callbacks_on() ? sim_cbid(call->domain, call->symbol) : 0;
    frame->site.data = 0;
    if (!frame->cbid) return;
    sim_callback(call, frame->cbid, &frame->site);
    frame->start = sim_stamp(call->time);
}

static void left(const struct simgpu_call *call, struct frame *frame)
{
    if (!frame->cbid) return;
    bool nested = me.depth && call->domain == SIMGPU_DRIVER;
    if (!nested && sim_wants_api(call->domain, frame->cbid)) record_call(call, frame, sim_stamp(call->time));
    sim_callback(call, frame->cbid, &frame->site);
}

static void on_call(void *unused, const struct simgpu_call *call)
{
    (void)unused;
    if (sim_inherited() || sim_is_internal()) return;
    if (!call->exit) {
        sim_trap_launch(call->symbol);
        if (me.depth++ < MAX_DEPTH) entered(call, &me.frames[me.depth - 1]);
        return;
    }
    if (!me.depth) return; /* CUPTI attached inside the call */
    if (--me.depth < MAX_DEPTH) left(call, &me.frames[me.depth]);
    if (me.depth || sim_nasty(NASTY_lock)) return;
    bool synced = strstr(call->symbol, "ynchronize") != NULL;
    if (!sim_nasty(NASTY_thread)) sim_drain(synced ? DRAIN_SYNCED : 0);
    else if (synced) sim_worker_nudge();
    else sim_worker_call();
}

/* ---- work, with the driver's lock held ---- */

static bool is_graph_trace(const struct simgpu_activity *w)
{
    return w->graph && w->kind != SIMGPU_SYNC && sim_wants(CUPTI_ACTIVITY_KIND_GRAPH_TRACE, w->context);
}

/* A context is reported with the first work in it, because only the work tells its device. */
static void meet_context(const struct simgpu_activity *w)
{
    static uint32_t met[64]; /* by device: the latest context */
    if (w->device >= 64 || met[w->device] == w->context) return;
    met[w->device] = w->context;
    if (!sim_wants(CUPTI_ACTIVITY_KIND_CONTEXT, w->context)) return;
    struct sim_item *item = sim_item(ITEM_CONTEXT, CUPTI_ACTIVITY_KIND_CONTEXT, 0);
    item->work = *w;
    sim_queue(item);
}

/* Spends the time that recording a piece of work costs its launch. */
static void spin(void)
{
    uint64_t until = sim_monotonic() + sim_nasty(NASTY_cost);
    while (sim_nasty(NASTY_cost) && sim_monotonic() < until) continue;
}

static void on_activity(void *unused, const struct simgpu_activity *reported)
{
    (void)unused;
    struct simgpu_activity work = *reported;
    if (sim_inherited()) return;
    meet_context(&work);
    work.correlation += sim_config()->correlation_offset;
    if (sim_nasty(NASTY_uncorrelated) && !sim_wants_any_api()) work.correlation = 0;
    CUpti_ActivityKind kind = sim_work_kind(&work);
    if (is_graph_trace(&work)) {
        if (sim_queue_graph(&work)) spin();
        return;
    }
    if (work.kind == SIMGPU_KERNEL) kind = sim_kernel_kind(work.context);
    if (kind == CUPTI_ACTIVITY_KIND_INVALID || !sim_wants(kind, work.context)) return;
    struct sim_item *item = sim_item(ITEM_WORK, kind, work.kind == SIMGPU_SYNC ? (uint64_t)pthread_self() : 0);
    item->work = work;
    sim_queue_work(item);
    if (work.kind != SIMGPU_SYNC) spin();
    if (sim_nasty(NASTY_lock)) sim_drain(0);
}

/* ---- attaching ---- */

static const struct simgpu_subscriber subscriber = {.call = on_call, .activity = on_activity};

CUptiResult sim_attach(void)
{
    pthread_mutex_lock(&attaching);
    if (!attached) {
        int (*subscribe)(const struct simgpu_subscriber *) = NULL;
        if (!driver) __atomic_store_n(&driver, dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL), __ATOMIC_RELEASE);
        *(void **)&subscribe = sim_driver("simgpu_subscribe");
        attached = subscribe && subscribe(&subscriber) == 0;
        if (attached)
            sim_say("simcupti: a simulated CUPTI %u.%u\n", sim_config()->version / 100, sim_config()->version % 100);
        else if (!subscribe) sim_say("simcupti: needs the simulated libcuda.so.1, which is not loaded\n");
    }
    CUptiResult result = attached ? CUPTI_SUCCESS : CUPTI_ERROR_NOT_INITIALIZED;
    pthread_mutex_unlock(&attaching);
    return result;
}

void sim_detach(void)
{
    void (*unsubscribe)(const struct simgpu_subscriber *);
    pthread_mutex_lock(&attaching);
    *(void **)&unsubscribe = sim_driver("simgpu_unsubscribe");
    if (attached && unsubscribe) unsubscribe(&subscriber);
    attached = false;
    pthread_mutex_unlock(&attaching);
}

void sim_dump_devices(void)
{
    int (*anchor)(unsigned, uint64_t *, uint64_t *);
    uint64_t monotonic, realtime;
    *(void **)&anchor = sim_driver("simgpu_anchor");
    for (uint32_t i = 0; anchor && anchor(i, &monotonic, &realtime); i++) {
        struct sim_item *item = sim_item(ITEM_DEVICE, CUPTI_ACTIVITY_KIND_DEVICE, 0);
        item->device = i;
        sim_queue(item);
    }
}
