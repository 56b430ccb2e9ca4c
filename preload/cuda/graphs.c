/* graphs.c - records which call made a node of a CUDA graph, and which graph was made from which.
 *
 * A replayed kernel has a node, but only one call: the launch of its graph. The trace therefore states the number of
 * a node when a call becomes that node, and both numbers when a graph is made from another. By these numbers the
 * analysis finds the state of the thread that captured: its operator and its stage. This file keeps only the handles
 * of streams that are being captured, so a graph of any size costs its records and no memory.
 *
 * Finding a node. While a stream of the process is being captured, this file asks the driver after each call that can
 * become a node. The stream then has exactly one node to continue from, the new one. If a call of the runtime is not
 * recorded, the driver calls inside it are watched too, and would name the same node again; `graph_node` of a thread
 * keeps the last one. Calls are watched outside the selected stages too, because a graph captured there may be replayed
 * inside.
 *
 * Finding its number. From 13.1 on the driver gives the number that tools see. Before that CUPTI gives it, also
 * without a subscriber. CUPTI is also asked while another client records, because that client would take our calls of
 * the driver for the program's. While it records driver calls, no stream is asked about, and captured nodes are of
 * unknown origin. Both number a node by its graph (upper half) and its place in it (lower half). The nodes of an
 * executable graph keep the place of those they were made from; torch relies on that as well
 * (torch/cuda/_graph_annotations.py). Neither gives the numbers of graphs inside executable graphs.
 */
#include "cuda/graphs.h"

#include <dlfcn.h>

#include "base/process.h"
#include "base/raw_dlsym.h"
#include "control/config.h"
#include "cupti/client.h"
#include "record/clock.h"
#include "record/enter.h"
#include "record/thread.h"

#define STREAMS 64u

uint8_t tfi_graph_roles[TFI_NR_HOOKS];
uint32_t tfi_graph_captures;

static uint32_t (*open_operator)(const struct tfi_thread *thread);
static int8_t stream_argument[TFI_NR_HOOKS];
static uint64_t streams[STREAMS]; /* streams that are being captured; 0: free */

enum { CAPTURE_ACTIVE = 1, PER_THREAD = 2, UNMATCHED = 903, WRONG_THREAD = 908 };

static struct {
    int (*info_edges)(uint64_t stream, int *status, uint64_t *id, uint64_t *graph, const uint64_t **nodes,
                      const void **edges, size_t *count);
    int (*info)(uint64_t stream, int *status, uint64_t *id, uint64_t *graph, const uint64_t **nodes, size_t *count);
    int (*is_capturing)(uint64_t stream, int *status);
    int (*child)(uint64_t node, uint64_t *graph);
    int (*node_id)(uint64_t node, uint64_t *id);
    int (*graph_id)(uint64_t graph, uint32_t *id);
    int (*exec_id)(uint64_t exec, uint32_t *id);
    int (*cupti_node_id)(uint64_t node, uint64_t *id);
    int (*cupti_graph_id)(uint64_t graph, uint32_t *id);
    int (*cupti_exec_id)(uint64_t exec, uint32_t *id);
} ask;
static uint32_t found; /* 1: ask is filled */

void tfi_graphs_operators(uint32_t (*open)(const struct tfi_thread *thread))
{
    open_operator = open;
}

/* ---- rows ---- */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static enum tfi_graph_role find_role(enum tfi_hook hook)
{
    static const struct {
        char begins[24];
        uint8_t role;
    } rows[] = {{"StreamBeginCapture", TFI_ROLE_BEGIN},    {"StreamEndCapture", TFI_ROLE_END},
                {"GraphLaunch", TFI_ROLE_REPLAY},          {"GraphInstantiate", TFI_ROLE_INSTANTIATE},
                {"GraphExecUpdate", TFI_ROLE_UPDATE},      {"GraphClone", TFI_ROLE_CLONE},
                {"GraphAddChildGraphNode", TFI_ROLE_CHILD}};
    const char *symbol = tfi_hook_symbol(hook), *class = tfi_hook_class(hook);
    while (*symbol == '_') symbol++;
    symbol += begins(symbol, "cuda") ? 4 : 2;
    for (size_t i = 0; i < TFI_COUNT(rows); i++)
        if (begins(symbol, rows[i].begins) && !strstr(symbol, "Cig")) return (enum tfi_graph_role)rows[i].role;
    if (begins(symbol, "GraphAdd") && tfi_hook_argument(hook, "node") >= 0) return TFI_ROLE_NODE;
    bool launches = strcmp(class, "LAUNCH") == 0 || strcmp(class, "COPY") == 0 || strcmp(class, "SET") == 0;
    return launches && stream_argument[hook] >= 0 ? TFI_ROLE_LAUNCH : TFI_ROLE_NONE;
}

static enum tfi_graph_role role_of(enum tfi_hook hook)
{
    enum tfi_graph_role role = __atomic_load_n(&tfi_graph_roles[hook], __ATOMIC_ACQUIRE);
    if (TFI_LIKELY(role != TFI_ROLE_UNKNOWN)) return role;
    stream_argument[hook] = (int8_t)tfi_hook_argument(hook, "stream");
    role = find_role(hook);
    __atomic_store_n(&tfi_graph_roles[hook], (uint8_t)role, __ATOMIC_RELEASE);
    return role;
}

/* ---- sources of numbers ---- */

static void find_functions(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    void *cupti = *tfi_cupti_api.path ? dlopen(tfi_cupti_api.path, RTLD_NOLOAD | RTLD_LAZY) : NULL;
#define FIND(field, library, symbol) *(void **)&ask.field = (library) ? tfi_dlsym(library, symbol) : NULL
    FIND(info_edges, driver, "cuStreamGetCaptureInfo_v3");
    FIND(info, driver, "cuStreamGetCaptureInfo_v2");
    FIND(is_capturing, driver, "cuStreamIsCapturing");
    FIND(child, driver, "cuGraphChildGraphNodeGetGraph");
    FIND(node_id, driver, "cuGraphNodeGetToolsId");
    FIND(graph_id, driver, "cuGraphGetId");
    FIND(exec_id, driver, "cuGraphExecGetId");
    FIND(cupti_node_id, cupti, "cuptiGetGraphNodeId");
    FIND(cupti_graph_id, cupti, "cuptiGetGraphId");
    FIND(cupti_exec_id, cupti, "cuptiGetGraphExecId");
#undef FIND
    __atomic_store_n(&found, 1, __ATOMIC_RELEASE);
}

/* True if CUPTI is asked for a number instead of the driver. */
static bool by_cupti(bool driver, bool cupti)
{
    if (!cupti || !tfi_cupti->on || __atomic_load_n(&tfi_cupti->quiet, __ATOMIC_ACQUIRE)) return false;
    return !driver || tfi_other_edges() & 1;
}

static bool number_of_node(uint64_t node, uint64_t *id)
{
    if (by_cupti(ask.node_id, ask.cupti_node_id)) return ask.cupti_node_id(node, id) == 0;
    return ask.node_id && ask.node_id(node, id) == 0;
}

static uint32_t number_of_graph(uint64_t graph)
{
    uint32_t id = 0;
    if (!graph) return 0;
    if (by_cupti(ask.graph_id, ask.cupti_graph_id)) return ask.cupti_graph_id(graph, &id) == 0 ? id : 0;
    return ask.graph_id && ask.graph_id(graph, &id) == 0 ? id : 0;
}

static uint32_t number_of_exec(uint64_t exec)
{
    uint32_t id = 0;
    if (!exec) return 0;
    if (by_cupti(ask.exec_id, ask.cupti_exec_id)) return ask.cupti_exec_id(exec, &id) == 0 ? id : 0;
    return ask.exec_id && ask.exec_id(exec, &id) == 0 ? id : 0;
}

/* ---- streams that are being captured ---- */

static void begin_capture(uint64_t stream)
{
    for (uint32_t i = 0; i < STREAMS; i++)
        if (__atomic_load_n(&streams[i], __ATOMIC_ACQUIRE) == stream) return;
    for (uint32_t i = 0; i < STREAMS; i++) {
        uint64_t none = 0;
        if (!__atomic_compare_exchange_n(&streams[i], &none, stream, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        __atomic_add_fetch(&tfi_graph_captures, 1, __ATOMIC_RELEASE);
        return;
    }
    tfi_count_drop(TFI_DROP_GRAPH_NODES, 1);
}

static void end_capture(uint64_t stream, int64_t result)
{
    if (result == UNMATCHED || result == WRONG_THREAD) return; /* the capture continues */
    for (uint32_t i = 0; i < STREAMS; i++) {
        uint64_t mine = stream;
        if (__atomic_compare_exchange_n(&streams[i], &mine, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            __atomic_sub_fetch(&tfi_graph_captures, 1, __ATOMIC_RELEASE);
    }
}

/* ---- records ---- */

/* Name of the innermost open stage of a thread. */
static uint32_t stage_of(const struct tfi_thread *t)
{
    uint32_t stages = t->slot->stages;
    return stages ? t->slot->stage[stages < TFI_SLOT_STAGES ? stages - 1 : TFI_SLOT_STAGES - 1].name : 0;
}

static void write_node(struct tfi_thread *t, uint64_t time, uint64_t node)
{
    uint64_t id;
    if (!number_of_node(node, &id)) {
        tfi_count_drop(TFI_DROP_GRAPH_NODES, 1);
        return;
    }
    if (t->graph_node == id) return;
    t->graph_node = id;
    struct tfi_rec_graph_node *rec = TFI_RESERVE(t, graph_node);
    if (!rec) return;
    rec->op = open_operator ? open_operator(t) : 0;
    rec->time = time;
    rec->node = id;
    rec->stage = stage_of(t);
    rec->reserved = 0;
    tfi_commit(t, sizeof *rec);
}

static void write_graph(struct tfi_thread *t, uint64_t time, uint32_t graph, uint32_t source, uint32_t relation)
{
    if (!graph || !source) return;
    struct tfi_rec_graph_source *rec = TFI_RESERVE(t, graph_source);
    if (!rec) return;
    rec->graph = graph;
    rec->time = time;
    rec->source = source;
    rec->relation = relation;
    tfi_commit(t, sizeof *rec);
}

/* Writes a node that is a graph: its content is a copy of `source` and part of the graph `whole` that the node is
 * in. */
static void write_child(struct tfi_thread *t, uint64_t time, uint64_t node, uint32_t source, uint32_t whole)
{
    uint64_t child = 0;
    if (!ask.child || ask.child(node, &child) != 0) return;
    uint32_t copy = number_of_graph(child);
    write_graph(t, time, copy, source, TFI_GRAPH_COPIED);
    write_graph(t, time, copy, whole, TFI_GRAPH_PART);
}

/* The parameters of a node that is a condition, as the driver and the runtime have them alike. */
struct condition {
    uint32_t type, reserved[3];
    uint64_t handle;
    uint32_t kind, size;
    const uint64_t *bodies; /* graphs that the call made */
};
enum { CONDITIONAL = 13, MOST_BODIES = 64 };

/* Writes that the bodies of a conditional node are parts of the graph that the node is in. They get their nodes later. */
static void write_bodies(struct tfi_thread *t, uint64_t time, uint64_t params, uint32_t whole)
{
    const struct condition *condition = (const struct condition *)params;
    if (!condition || condition->type != CONDITIONAL || !condition->bodies) return;
    for (uint32_t i = 0; i < condition->size && i < MOST_BODIES; i++)
        write_graph(t, time, number_of_graph(condition->bodies[i]), whole, TFI_GRAPH_PART);
}

/* ---- after a call ---- */

struct after {
    enum tfi_hook hook;
    enum tfi_graph_role role;
    uint64_t time;
    const uint64_t *args;
    uint32_t count;
};

static uint64_t argument(const struct after *a, const char *name)
{
    int i = tfi_hook_argument(a->hook, name);
    return i >= 0 && (uint32_t)i < a->count ? a->args[i] : 0;
}

/* A call's argument as the plain functions of the driver take it: 0 is the thread's own stream for some functions. */
static uint64_t plain_stream(enum tfi_hook hook, uint64_t stream)
{
    const char *symbol = tfi_hook_symbol(hook);
    size_t length = strlen(symbol);
    bool per_thread = length > 5 && begins(symbol + length - 5, "_pt");
    return !stream && per_thread ? PER_THREAD : stream;
}

/* The stream of a call. */
static uint64_t stream_of(const struct after *a)
{
    int i = stream_argument[a->hook];
    return plain_stream(a->hook, i >= 0 && (uint32_t)i < a->count ? a->args[i] : 0);
}

/* The node that a capturing stream continues from. */
static bool last_node(uint64_t stream, uint64_t *node, uint64_t *graph)
{
    int status = 0, result = -1;
    uint64_t id;
    const uint64_t *nodes = NULL;
    const void *edges;
    size_t count = 0;
    if (ask.info_edges) result = ask.info_edges(stream, &status, &id, graph, &nodes, &edges, &count);
    else if (ask.info) result = ask.info(stream, &status, &id, graph, &nodes, &count);
    if (result != 0 || status != CAPTURE_ACTIVE || count != 1) return false;
    *node = nodes[0];
    return true;
}

static void captured(struct tfi_thread *t, const struct after *a)
{
    uint64_t node, graph, stream = stream_of(a);
    if (tfi_cupti_watched()) return; /* the client would record our question as the program's */
    if (!stream || !last_node(stream, &node, &graph)) return;
    if (a->role == TFI_ROLE_LAUNCH) write_node(t, a->time, node);
    else write_child(t, a->time, node, number_of_exec(argument(a, "graph_exec")), number_of_graph(graph));
}

static void write_records(struct tfi_thread *t, const struct after *a)
{
    switch (a->role) {
    case TFI_ROLE_LAUNCH:
    case TFI_ROLE_REPLAY: captured(t, a); break;
    case TFI_ROLE_NODE:
        write_node(t, a->time, argument(a, "node"));
        write_bodies(t, a->time, argument(a, "params"), number_of_graph(argument(a, "graph")));
        break;
    case TFI_ROLE_CHILD:
        write_child(t, a->time, argument(a, "node"), number_of_graph(argument(a, "child_graph")),
                    number_of_graph(argument(a, "graph")));
        break;
    case TFI_ROLE_INSTANTIATE:
    case TFI_ROLE_UPDATE:
        write_graph(t, a->time, number_of_exec(argument(a, "graph_exec")), number_of_graph(argument(a, "graph")),
                    a->role == TFI_ROLE_UPDATE ? TFI_GRAPH_UPDATED : TFI_GRAPH_INSTANTIATED);
        break;
    case TFI_ROLE_CLONE:
        write_graph(t, a->time, number_of_graph(argument(a, "graph")), number_of_graph(argument(a, "original")),
                    TFI_GRAPH_COPIED);
        break;
    default: break;
    }
}

static bool wanted(void)
{
    return tfi_config.activities & TFI_ACTIVITY_GPU && tfi_config.select != TFI_SELECT_NOTHING && tfi_cupti->on;
}

bool tfi_graphs_is_captured(uint64_t stream)
{
    int status = 0, error = errno;
    if (TFI_LIKELY(!__atomic_load_n(&tfi_graph_captures, __ATOMIC_ACQUIRE)) && wanted()) return false;
    if (tfi_cupti_watched()) { /* the client would record our question as the program's */
        for (uint32_t i = 0; i < STREAMS && !status; i++)
            status = stream && __atomic_load_n(&streams[i], __ATOMIC_ACQUIRE) == stream;
        return status;
    }
    if (!__atomic_load_n(&found, __ATOMIC_ACQUIRE)) find_functions();
    bool captured = ask.is_capturing && ask.is_capturing(stream, &status) == 0 && status == CAPTURE_ACTIVE;
    errno = error;
    return captured;
}

bool tfi_graphs_captures(enum tfi_hook hook, uint64_t stream)
{
    if (TFI_LIKELY(!__atomic_load_n(&tfi_graph_captures, __ATOMIC_ACQUIRE)) && wanted()) return false;
    stream = plain_stream(hook, stream);
    return stream && tfi_graphs_is_captured(stream);
}

void tfi_graphs_after(enum tfi_hook hook, uint64_t start, int64_t result, const uint64_t *args, uint32_t count)
{
    struct after after = {hook, role_of(hook), start, args, count};
    bool launches = after.role == TFI_ROLE_LAUNCH || after.role == TFI_ROLE_REPLAY;
    if (after.role == TFI_ROLE_NONE || !wanted()) return;
    if (launches && !__atomic_load_n(&tfi_graph_captures, __ATOMIC_ACQUIRE)) return; /* only its role was looked up */
    int error = errno;
    if (after.role == TFI_ROLE_BEGIN && result == 0) begin_capture(stream_of(&after));
    if (after.role == TFI_ROLE_END) end_capture(stream_of(&after), result);
    if (result == 0 && after.role != TFI_ROLE_BEGIN && after.role != TFI_ROLE_END) {
        if (!__atomic_load_n(&found, __ATOMIC_ACQUIRE)) find_functions();
        struct tfi_thread *t = tfi_enter(TFI_WHY_NONE);
        if (t) {
            write_records(t, &after);
            tfi_leave(t);
        }
    }
    errno = error;
}
