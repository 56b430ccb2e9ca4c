/* nccl_plugin.c - loads a profiler plugin by NCCL's variable and rules, and tells it of what is enqueued.
 *
 * NCCL_PROFILER_PLUGIN is a file, the NAME of libnccl-profiler-NAME.so, STATIC_PLUGIN (the process itself) or none; unset,
 * it is libnccl-profiler.so. The newest version that NCCL knows is looked for first; the script says which one that is.
 * The first communicator loads the plugin, the last one that ends closes it. As in NCCL, a communicator of one rank and a
 * captured operation make no event; operations of a kernel come by size, the larger first, then sends and receives;
 * all-gather and broadcast count bytes; all-to-all, gather and scatter are sends and receives.
 * The layouts are of the public headers src/include/plugin/profiler/ of NCCL 2.30, written down again.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "nccl_sim.h"

enum { OLDEST = 3, NEWEST = 6, COLLECTIVE = 2, PEER = 4 };

struct init_v3 {
    const char *name;
    ncclResult_t (*init)(void **, int *);
};
struct init_v4 {
    const char *name;
    ncclResult_t (*init)(void **, int *, const char *, uint64_t, int, int, int, void *);
};
struct init_v5 {
    const char *name;
    ncclResult_t (*init)(void **, uint64_t, int *, const char *, int, int, int, void *);
};

/* A plugin of any version: only the parameters of `init` differ, and the event. */
struct plugin {
    const char *name;
    void (*init)(void);
    ncclResult_t (*start)(void *, void **, void *);
    ncclResult_t (*stop)(void *);
    ncclResult_t (*state)(void *, int, void *);
    ncclResult_t (*finalize)(void *);
};

struct collective {
    uint64_t number;
    const char *function;
    const void *send;
    void *recv;
    size_t count;
    int root;
    const char *type;
    uint8_t channels, warps;
    const char *algorithm, *protocol;
    void *group; /* from version 5 on */
};
struct peer {
    const char *function;
    void *buffer;
    const char *type;
    size_t count;
    int peer;
    uint8_t channels; /* from version 4 on */
    void *group;
};
struct event_v3 {
    uint8_t type;
    void *parent;
    int rank;
    const char *communicator_name;
    uint64_t communicator;
    union {
        struct collective collective;
        struct peer peer;
    };
};
struct event_v4 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct collective collective;
        struct peer peer;
    };
};
struct event_v5 {
    uint64_t type;
    void *parent;
    int rank;
    union {
        struct collective collective;
        struct peer peer;
    };
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *library;
static const struct plugin *plugin;
static unsigned users;
static int version, mask;

static void *open_library(void)
{
    const char *name = getenv("NCCL_PROFILER_PLUGIN");
    char file[4096];
    if (name && strcasecmp(name, "none") == 0) return NULL;
    if (!name || !*name) return dlopen("libnccl-profiler.so", RTLD_NOW | RTLD_LOCAL);
    if (strncasecmp(name, "STATIC_PLUGIN", strlen(name)) == 0) return dlopen(NULL, RTLD_NOW | RTLD_LOCAL);
    void *found = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (found || strchr(name, '/')) return found;
    snprintf(file, sizeof file, "libnccl-profiler-%s.so", name);
    return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

static void load(void)
{
    char symbol[32];
    if (users++ || !(library = open_library())) return;
    for (version = simnccl_newest_plugin(); version >= OLDEST && !plugin; version--) {
        snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", version);
        if ((plugin = dlsym(library, symbol))) break;
    }
    if (!plugin) return;
    simnccl_log("{\"t\":\"plugin\",\"name\":\"%s\",\"version\":%d,\"pid\":%d}", plugin->name, version, (int)getpid());
}

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 5381;
    while (*text) hash = hash * 33 + (unsigned char)*text++;
    return hash;
}

void simnccl_plugin_begin(ncclComm_t comm)
{
    pthread_mutex_lock(&lock);
    load();
    comm->has_plugin = true;
    if (plugin && version == 3) {
        ((const struct init_v3 *)plugin)->init(&comm->plugin, &mask);
    } else if (plugin && version == 4) {
        ((const struct init_v4 *)plugin)
            ->init(&comm->plugin, &mask, NULL, hash_of(comm->id), 1, comm->ranks, comm->rank, NULL);
    } else if (plugin) {
        ((const struct init_v5 *)plugin)
            ->init(&comm->plugin, hash_of(comm->id), &mask, NULL, 1, comm->ranks, comm->rank, NULL);
    }
    pthread_mutex_unlock(&lock);
}

void simnccl_plugin_end(ncclComm_t comm)
{
    pthread_mutex_lock(&lock);
    if (comm->has_plugin) {
        if (plugin && comm->plugin) plugin->finalize(comm->plugin);
        comm->has_plugin = false;
        if (--users == 0) {
            if (plugin) simnccl_log("{\"t\":\"unplugged\"}");
            if (library) dlclose(library);
            library = NULL;
            plugin = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* ---- events ---- */

/* Returns the text that a word of the script stands for. */
static const char *text_of(const char *word)
{
    static const char longest[] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
                                  "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    if (strcmp(word, "(null)") == 0) return NULL;
    if (strcmp(word, "(long)") == 0) return longest;
    return strcmp(word, "(wild)") == 0 ? "\033[31mRED\n\xff\"" : word;
}

static const char *type_name(ncclDataType_t type)
{
    static const char *const names[] = {"ncclInt8",   "ncclUint8",   "ncclInt32",   "ncclUint32",  "ncclInt64",
                                        "ncclUint64", "ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16"};
    return type < (int)(sizeof names / sizeof *names) ? names[type] : "Unknown";
}

/* Hands an event over in the layout of the version: a collective, or a message if `c` is NULL. Each layout begins its
 * part behind another head. */
static void hand_over(ncclComm_t comm, unsigned kind, const struct collective *c, const struct peer *p)
{
    struct event_v3 v3 = {(uint8_t)kind, NULL, comm->rank, NULL, hash_of(comm->id), {{0}}};
    struct event_v4 v4 = {(uint8_t)kind, NULL, comm->rank, {{0}}};
    struct event_v5 v5 = {kind, NULL, comm->rank, {{0}}};
    void *event = version == 3 ? (void *)&v3 : version == 4 ? (void *)&v4 : (void *)&v5, *handle = event;
    if (c) v3.collective = v4.collective = v5.collective = *c;
    else if (p) v3.peer = v4.peer = v5.peer = *p;
    if (version == 3 && !c) v3.peer.channels = 0xee; /* version 3 ends before it */
    plugin->start(comm->plugin, &handle, event);
    if (!handle) return;
    plugin->stop(handle);
    plugin->state(handle, 0, NULL); /* late, as in 2.28.9 */
}

static void tell_collective(const struct task *t)
{
    bool bytes = t->function == ALL_GATHER || t->function == BROADCAST;
    struct choice chosen;
    char text[800];
    simnccl_choice(t, &chosen);
    hand_over(t->comm, COLLECTIVE,
              &(struct collective){.number = t->comm->enqueued[t->function]++,
                                   .function = simnccl_name(t->function),
                                   .send = t->send,
                                   .recv = t->recv,
                                   .count = t->count * (bytes ? simnccl_type_bytes(t->type) : 1),
                                   .root = t->peer < 0 ? 0 : t->peer,
                                   .type = bytes ? "ncclInt8" : type_name(t->type),
                                   .channels = (uint8_t)chosen.channels,
                                   .warps = (uint8_t)chosen.warps,
                                   .algorithm = text_of(chosen.algorithm),
                                   .protocol = text_of(chosen.protocol)},
              NULL);
    simnccl_task_text(text, sizeof text, t);
    simnccl_log("{\"t\":\"plan\",%s,\"algorithm\":\"%s\",\"protocol\":\"%s\",\"channels\":%d,\"warps\":%d}", text,
                chosen.algorithm, chosen.protocol, chosen.channels, chosen.warps);
}

static void tell_message(const struct task *t, bool sends, int peer)
{
    struct choice chosen;
    char text[800];
    simnccl_choice(t, &chosen);
    hand_over(t->comm, PEER, NULL,
              &(struct peer){.function = sends ? "Send" : "Recv",
                             .buffer = sends ? (void *)(uintptr_t)t->send : t->recv,
                             .type = type_name(t->type),
                             .count = t->count,
                             .peer = peer,
                             .channels = (uint8_t)chosen.channels});
    if (t->function < SEND) return;
    simnccl_task_text(text, sizeof text, t);
    simnccl_log("{\"t\":\"plan\",%s,\"channels\":%d}", text, chosen.channels);
}

static void tell_messages(const struct task *t)
{
    int rank = t->comm->rank;
    bool all = t->function == ALL_TO_ALL, gather = t->function == GATHER, scatter = t->function == SCATTER;
    if (t->function >= SEND) tell_message(t, t->function == SEND, t->peer);
    for (int r = 0; r < t->comm->ranks && t->function < SEND; r++) {
        if (all || (gather && r == t->peer) || (scatter && rank == t->peer)) tell_message(t, true, r);
        if (all || (scatter && r == t->peer) || (gather && rank == t->peer)) tell_message(t, false, r);
    }
}

static int larger_first(const void *a, const void *b)
{
    const struct task *x = *(struct task *const *)a, *y = *(struct task *const *)b;
    size_t left = x->count * simnccl_type_bytes(x->type), right = y->count * simnccl_type_bytes(y->type);
    return left != right ? (left > right ? -1 : 1) : (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

void simnccl_plugin_enqueued(struct task *const *tasks, size_t count)
{
    CUstreamCaptureStatus captured = CU_STREAM_CAPTURE_STATUS_NONE;
    ncclComm_t comm = tasks[0]->comm;
    simnccl_driver()->cuStreamIsCapturing((CUstream)tasks[0]->stream, &captured);
    if (!plugin || comm->ranks == 1 || captured != CU_STREAM_CAPTURE_STATUS_NONE) return;
    struct task **order = malloc(count * sizeof *order);
    memcpy(order, tasks, count * sizeof *order);
    qsort(order, count, sizeof *order, larger_first);
    for (size_t i = 0; i < count; i++)
        if (order[i]->function < ALL_TO_ALL && mask & COLLECTIVE) tell_collective(order[i]);
    for (size_t i = 0; i < count; i++)
        if (order[i]->function >= ALL_TO_ALL && mask & PEER) tell_messages(order[i]);
    free(order);
}
