/* model.h - the device model: objects of the driver, work in virtual time, and the macros that define driver functions.
 *
 * One mutex guards everything; "Needs the lock" means it. The submitting call executes work whose predecessors have
 * ended. Work behind a host function that has not returned yet becomes a job of a worker thread. All times are
 * CLOCK_MONOTONIC nanoseconds; only the log counts them from a device's anchor. Objects are never freed, only reused
 * for their kind, so that a stale handle is recognised.
 */
#ifndef SIMGPU_MODEL_H
#define SIMGPU_MODEL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "cuda.h"
#include "simgpu.h"

/* The vendor defines the prototypes; many of their parameters have no effect here. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

enum magic {
    DEAD,
    CONTEXT,
    STREAM,
    EVENT,
    MODULE,
    FUNCTION,
    GRAPH,
    NODE,
    GRAPH_EXEC,
    POOL,
    ARRAY,
    PHYSICAL,
    NR_MAGICS
};

struct object {
    uint32_t magic, id; /* ids count from 1 within each kind */
    struct object *next_free;
    struct CUctx_st *ctx;
};

/* A point of the timeline: a time, or the job that will set it. */
struct ticket {
    uint64_t end;
    int refs;
    bool done;
};
struct point {
    uint64_t time;
    struct ticket *pending;
};

#define MAX_DEVICES 16
struct device {
    uint64_t anchor, anchor_real;
    uint64_t total, used, reserved;
    struct CUctx_st *primary;
    unsigned primary_refs, primary_flags;
    struct CUmemPoolHandle_st *default_pool, *pool;
};

struct CUctx_st {
    struct object head;
    int device;
    bool is_primary;
    unsigned flags;
    int error; /* sticky */
    struct CUstream_st *legacy, *streams;
    struct point left; /* unfinished work of destroyed streams */
    size_t limits[CU_LIMIT_MAX];
    CUfunc_cache cache;
    uint32_t peers; /* a bit for each device */
};

struct capture {
    int refs;
    uint64_t id;
    struct CUgraph_st *graph;
    struct CUstream_st *origin;
    CUstreamCaptureMode mode;
    pthread_t thread;
    bool invalid, foreign_graph;
};
struct nodes {
    struct CUgraphNode_st **v;
    size_t n;
};

struct CUstream_st {
    struct object head;
    struct CUstream_st *next; /* next stream of the context */
    unsigned flags;
    int priority;
    bool blocking;
    struct point last;
    struct capture *capture;
    struct nodes tail; /* used in a capture */
};

struct CUevent_st {
    struct object head;
    unsigned flags;
    bool recorded;
    struct point when;
    struct capture *capture;
    struct nodes nodes;
};

struct CUmemPoolHandle_st {
    struct object head;
    int device;
    uint64_t used, used_high, threshold;
    int reuse[3];
};

struct region {
    char *base;
    size_t size, mapped;
    enum simgpu_memory memory;
    int device;
    struct CUctx_st *ctx;
    struct CUmemPoolHandle_st *pool;
    unsigned flags;
    bool registered;                /* the program's own memory */
    struct CUphysical_st *physical; /* mapped by cuMemMap */
    bool of_graph, is_unused;       /* memory of a graph's node: unused before its launch and after its free */
    uint64_t id;
};

/* Physical memory, which lives as long as a handle or a mapping refers to it. */
struct CUphysical_st {
    struct object head;
    CUmemAllocationProp_v1 properties;
    size_t size;
    unsigned handles, mappings;
    int fd; /* its bytes */
};

struct CUarray_st {
    struct object head;
    CUDA_ARRAY3D_DESCRIPTOR_v2 desc;
    size_t pitch, slice, size;
    char *data;
};

struct global {
    char *name;
    CUdeviceptr_v2 address;
    size_t size;
};
struct CUmod_st { /* also a CUlibrary */
    struct object head;
    char *ptx; /* NULL: the image is binary, and any name is accepted */
    struct CUfunc_st **functions;
    size_t nr_functions;
    struct global *globals;
    size_t nr_globals;
    bool library;
};
struct CUfunc_st { /* also a CUkernel */
    struct object head;
    struct CUmod_st *module;
    const char *name;
    const struct cost *cost;
    int attributes[CU_FUNC_ATTRIBUTE_MAX];
};

struct copy {
    char *dst;
    const char *src;
    size_t dst_pitch, dst_slice, src_pitch, src_slice, width, height, depth;
    enum simgpu_memory source, target;
    int source_device, target_device;
    bool async;
};
struct set {
    char *dst;
    size_t pitch, width, height;
    unsigned value, element;
};
enum op_kind {
    OP_EMPTY,
    OP_KERNEL,
    OP_COPY,
    OP_SET,
    OP_HOST,
    OP_RECORD,
    OP_WAIT,
    OP_ALLOC,
    OP_FREE,
    OP_WRITE,
    OP_POLL,
    OP_CHILD,
    OP_CONDITION
};
struct op {
    enum op_kind kind;
    union {
        CUDA_KERNEL_NODE_PARAMS_v2 kernel;
        struct copy copy;
        struct set set;
        struct {
            CUhostFn fn;
            CUstreamCallback callback; /* called with the stream, instead of fn */
            CUstream stream;
            void *user;
        } host;
        CUevent event;
        struct {
            char *base;
            size_t size;
            int device;
            CUDA_MEM_ALLOC_NODE_PARAMS_v1 params;
        } memory;
        struct {
            char *to;
            uint64_t value;
            unsigned size, flags;
        } write; /* also for the value that a stream waits for */
        struct CUgraph_st *child;
        struct {
            unsigned type, size, value; /* type: enum CUgraphConditionalNodeType; value: at each launch */
            struct CUgraph_st **body;
        } condition;
    };
    simgpu_wait wait; /* for a kernel that waits for other processes; NULL: for an ordinary kernel */
    void *wait_user;
    CUDA_MEMCPY3D_v2 copy_params; /* as the caller passed them for a graph node */
    CUDA_MEMSET_NODE_PARAMS_v2 set_params;
    CUcontext node_ctx;
};

struct CUgraphNode_st {
    struct object head;
    struct CUgraph_st *graph;
    struct op op;
    struct nodes before;
    uint32_t origin; /* id of the node this one was cloned from */
    uint32_t local;  /* number in its graph; the nodes of a copy keep it */
    bool disabled;
    unsigned mark;
    struct CUgraphNode_st *twin; /* its copy, while its graph is copied */
    struct point done;           /* set during a launch */
};
struct CUgraph_st {
    struct object head;
    struct nodes nodes;
    struct CUgraphNode_st *parent; /* of the graph that contains this child graph */
    uint32_t locals;               /* numbers that its nodes have used so far */
    bool capturing;
};
struct CUgraphExec_st {
    struct object head;
    struct CUgraph_st *graph; /* a copy; its id is also the executable graph's */
    unsigned long long flags;
    struct point last;
};

/* The origin of a piece of work. */
struct where {
    struct CUctx_st *ctx;
    struct CUstream_st *stream;
    uint32_t stream_id, correlation, graph;
    uint64_t node, submitted;
};

/* ---- base.c: configuration, the lock, objects ---- */
extern struct device sim_devices[MAX_DEVICES];
extern int sim_nr_devices, sim_physical[]; /* the number of each device in the machine */
extern bool sim_initialised, sim_real, sim_forked;
void sim_configure(void);
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
pthread_mutex_t *sim_mutex(void);
int sim_lock(void);
void sim_unlock(int *held);
#define LOCKED __attribute__((cleanup(sim_unlock), unused)) int locked_ = sim_lock()
void *sim_new(enum magic magic, size_t size, struct CUctx_st *ctx);
void sim_delete(void *object);
static inline bool is(const void *object, enum magic magic)
{
    return object && ((uintptr_t)object & 7) == 0 && (uintptr_t)object > 4096 &&
           ((const struct object *)object)->magic == magic;
}
uint64_t sim_clock(void);
void sim_advance(uint64_t until);
const char *sim_intern(const char *text);
void *sim_grow(void *array, size_t n, size_t size);

/* ---- call.c: one API call ---- */
extern __thread unsigned sim_per_thread;
extern __thread bool sim_in_host_function;
extern __thread uint64_t sim_waited; /* the latest time that this call has waited for; 0: none */
int sim_begin(struct simgpu_frame *frame, const char *symbol);
uint32_t sim_correlation(void);
void sim_report(struct simgpu_activity *activity);
void sim_report_sync(const char *what, struct CUctx_st *ctx, uint32_t stream, uint64_t start);

/* ---- script.c ---- */
void sim_script_load(void);
const struct cost *sim_cost_of(const char *name);
uint64_t sim_cost(const struct cost *cost, uint64_t blocks, uint64_t threads, uint64_t bytes);
uint64_t sim_latency(void);
int sim_injected(const char *symbol);

/* ---- log.c ---- */
void sim_log_open(void);
bool sim_logging(void);
void sim_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_log_device(int device);
void sim_log_event(const struct where *where, uint64_t time);

/* ---- engine.c ---- */
void sim_point_set(struct point *to, struct point from);
struct point sim_point_copy(struct point *from);
void sim_point_drop(struct point *point);
bool sim_point_known(struct point *point);
CUresult sim_run(const struct where *where, const struct op *op, struct point *deps, size_t nr_deps,
                 struct point *done);
CUresult sim_submit(struct CUstream_st *stream, const struct op *op);
CUresult sim_submit_after(struct CUstream_st *stream, struct point dep);
void sim_leave_behind(struct CUstream_st *stream);
void sim_stream_base(struct CUstream_st *stream, struct point *deps, size_t *nr_deps, size_t room);
void sim_wait(struct point *point); /* releases the lock while it waits */
void sim_engine_fork(void);

/* ---- context.c ---- */
CUresult sim_ctx(struct CUctx_st **ctx);
struct CUctx_st *sim_ctx_current(void);
CUresult sim_stream(CUstream handle, struct CUstream_st **stream);
bool sim_device_ok(CUdevice dev);

/* ---- memory.c ---- */
struct region *sim_region(const void *address);
CUresult sim_alloc(struct CUctx_st *ctx, int device, size_t size, enum simgpu_memory memory, CUmemoryPool pool,
                   void **out);
CUresult sim_free(void *base, enum simgpu_memory memory);
/* Reserves addresses for a node that allocates; they take memory of the device from sim_graph_use to the free. */
CUresult sim_graph_alloc(struct CUctx_st *ctx, int device, size_t size, void **out);
void sim_graph_use(void *base);
void sim_graph_unuse(void *base);
struct region *sim_region_add(const struct region *region);
void sim_region_drop(struct region *region); /* takes it off the list and does not touch its bytes */
void sim_log_memory(const char *what, const char *kind, int device, uint64_t address, size_t size);
void sim_memory_of(struct CUctx_st *ctx); /* frees the allocations that the context still has */

/* ---- copy.c ---- */
CUresult sim_copy_of(const CUDA_MEMCPY3D_v2 *p, struct op *op);
CUresult sim_set_of(const CUDA_MEMSET_NODE_PARAMS_v1 *p, struct op *op);

/* ---- stream.c, capture.c, graph.c, node.c ---- */
struct CUstream_st *sim_stream_new(struct CUctx_st *ctx, unsigned flags, int priority);
void sim_stream_free(struct CUstream_st *stream);
CUresult sim_unsafe(void); /* returns the error of a call that is not allowed during a capture */
CUresult sim_capture_op(struct CUstream_st *stream, const struct op *op);
CUresult sim_capture_record(struct CUstream_st *stream, CUevent event);
CUresult sim_capture_wait(struct CUstream_st *stream, CUevent event);
CUresult sim_capture_refuse(struct CUstream_st *stream);
bool sim_capture_implicit(struct CUstream_st *stream);
void sim_event_leave_capture(CUevent event);
void sim_stream_leave_capture(struct CUstream_st *stream);
void sim_nodes_set(struct nodes *to, struct CUgraphNode_st *const *v, size_t n);
void sim_nodes_add(struct nodes *to, struct CUgraphNode_st *node);
struct CUgraph_st *sim_graph_new(void);
void sim_graph_free(struct CUgraph_st *graph);
CUresult sim_node_add(struct CUgraph_st *graph, const CUgraphNode *deps, size_t n, const struct op *op,
                      CUgraphNode *out);
struct CUgraphNode_st *sim_node_like(struct CUgraph_st *graph, CUgraphNode node);
/* Returns a node's id for tools: the graph's id in the upper half, the node's number in the lower half. */
static inline uint64_t sim_node_id(const struct CUgraphNode_st *node)
{
    return (uint64_t)node->graph->head.id << 32 | node->local;
}
struct CUgraph_st *sim_graph_copy(struct CUgraph_st *graph);
/* Returns the graphs inside a node, and their number. */
struct CUgraph_st **sim_inner_graphs(struct op *op, unsigned *n);

/* ---- module.c ---- */
struct CUfunc_st *sim_function(CUfunction handle);
CUresult sim_kernel_of(struct op *op, CUfunction f, const unsigned *grid, const unsigned *block, unsigned shared);

/* API() heads the body of a driver function. API_PTSZ() and API_PTDS() also define its per-thread variant. */
#define PUBLIC __attribute__((visibility("default")))
#define API_BEGIN(symbol, name, params, before, args, after)                                                           \
    static CUresult body_##symbol params;                                                                              \
    PUBLIC CUresult name params                                                                                        \
    {                                                                                                                  \
        struct simgpu_frame frame_;                                                                                    \
        int result_ = sim_begin(&frame_, #name);                                                                       \
        before;                                                                                                        \
        if (!result_) result_ = body_##symbol args;                                                                    \
        after;                                                                                                         \
        return (CUresult)simgpu_end(&frame_, result_);                                                                 \
    }
#define API(symbol, params, args)                                                                                      \
    API_BEGIN(symbol, symbol, params, , args, )                                                                        \
    static CUresult body_##symbol params
#define API_PTSZ(symbol, params, args)                                                                                 \
    API_BEGIN(symbol, symbol##_ptsz, params, sim_per_thread++, args, sim_per_thread--)                                 \
    API(symbol, params, args)
#define API_PTDS(symbol, params, args)                                                                                 \
    API_BEGIN(symbol, symbol##_ptds, params, sim_per_thread++, args, sim_per_thread--)                                 \
    API(symbol, params, args)
/* Defines an older or newer name of a function with the same parameters. */
#define ALIAS(name, symbol, params, args) API_BEGIN(symbol, name, params, , args, )
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        CUresult try_ = (call);                                                                                        \
        if (try_ != CUDA_SUCCESS) return try_;                                                                         \
    } while (0)
#define NEED(condition, error)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) return (error);                                                                              \
    } while (0)
#define NEED_VALUE(condition) NEED(condition, CUDA_ERROR_INVALID_VALUE)

#endif
