/* plugin.c - is a profiler plugin of NCCL: records the algorithm, protocol, channels and warps that NCCL chose.
 *
 * NCCL asks a plugin for its versions, the newest first, and tells it of each collective, send and receive when it
 * enqueues them. NCCL takes STATIC_PLUGIN from the symbols of the process, where this library already is. So nothing is
 * loaded, and dlclose() of the program's handle unloads nothing. The constructor sets NCCL_PROFILER_PLUGIN, as the only
 * moment when no other thread can read the environment. A child inherits the variable and finds the plugin in its own
 * copy of this library; a child without this library has no such symbol, and NCCL goes on without a plugin. A value of
 * the user's own is left alone, also STATIC_PLUGIN if the program itself has a plugin.
 *
 * The plugin asks for collectives, sends and receives. It does not ask for the kernels and proxies below them, which
 * make NCCL poll. NCCL enqueues in the thread of the call or of the end of the group, which is what joins the events
 * with the calls. An event gets no handle, so that NCCL never stops it or reports its state; if it does, nothing
 * happens.
 *
 * `make bench`, a million calls of ncclAllReduce on an NCCL that does nothing: the plugin adds 57 ns to the 49 ns that
 * the wrapper adds, and 82 ns to the background thread's 155.
 */
#include "nccl/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/raw_dlsym.h"
#include "base/tfi.h"
#include "control/config.h"
#include "nccl/plugin_abi.h"
#include "record/clock.h"
#include "record/enter.h"
#include "record/log.h"
#include "record/strings.h"
#include "stage/recording_state.h"

#define VARIABLE "NCCL_PROFILER_PLUGIN"
#define STATIC "STATIC_PLUGIN"

enum { LONGEST = 64 }; /* bytes of a name that NCCL gives */

static enum { OFF, ON, REFUSED } state; /* the constructor sets it */

/* ---- communicators ---- */

/* A communicator, found by the number that NCCL gives it. Our own number differs. */
struct context {
    uint32_t used; /* atomic */
    uint32_t ranks;
    uint64_t communicator; /* 0: unknown */
};

/* There is no lock and no memory to ask for: a process may fork at any moment. Communicators that find no free place
 * are unknown. */
static struct context contexts[1024], unknown;

static struct context *take_context(void)
{
    for (size_t i = 0; i < TFI_COUNT(contexts); i++) {
        uint32_t unused = 0;
        if (__atomic_compare_exchange_n(&contexts[i].used, &unused, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return &contexts[i];
    }
    return &unknown;
}

static void say_version(int version)
{
    static uint32_t said;
    if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
        tfi_log(TFI_LOG_INFO,
                "NCCL has loaded this library's profiler plugin, version %d: collectives are recorded with algorithm, "
                "protocol and channels",
                version);
}

static int begin_context(void **context, int *mask, uint64_t communicator, int ranks, int version)
{
    int error = errno;
    struct context *c = take_context();
    if (c != &unknown) {
        c->communicator = communicator;
        c->ranks = ranks > 0 ? (uint32_t)ranks : 0;
    }
    if (context) *context = c;
    if (mask) *mask = TFI_NCCL_EVENT_COLLECTIVE | TFI_NCCL_EVENT_PEER;
    say_version(version);
    errno = error;
    return 0;
}

static int finalize(void *context)
{
    struct context *c = context;
    if (c && c != &unknown) __atomic_store_n(&c->used, 0, __ATOMIC_RELEASE);
    return 0;
}

/* ---- events ---- */

/* An event, whichever version of the interface NCCL used. */
struct event {
    uint64_t communicator, sequence;
    const char *function, *type, *algorithm, *protocol;
    uint64_t count;
    int peer, rank;
    uint32_t ranks, channels, warps;
};

/* Short names, found by their address: NCCL has few, and three look-ups in the trace's table would cost as much as the
 * rest of a record. A place keeps its first text for ever, so that it is read without a lock; another text at the same
 * address is looked up. The number is stored again when another trace has begun. */
enum { SHORT = 16, EMPTY = 0, FILLING, FILLED };
static struct {
    uint64_t number; /* atomic: the trace's generation, and the number of the name in it */
    char text[SHORT];
    uint32_t state; /* atomic */
} names[64];

static inline bool is_short_text(const char *kept, const char *text)
{
    for (size_t i = 0; i < SHORT && kept[i] == text[i]; i++)
        if (!text[i]) return true;
    return false;
}

static TFI_COLD uint32_t look_up(uint32_t gen, size_t place, const char *text)
{
    size_t length = strnlen(text, LONGEST);
    uint32_t number = tfi_string(text, length), empty = EMPTY;
    if (number == TFI_STRING_LOST || length >= SHORT) return number;
    if (__atomic_compare_exchange_n(&names[place].state, &empty, FILLING, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
        memcpy(names[place].text, text, length);
        __atomic_store_n(&names[place].state, FILLED, __ATOMIC_RELEASE);
    } else if (empty == FILLING || !is_short_text(names[place].text, text)) {
        return number;
    }
    __atomic_store_n(&names[place].number, (uint64_t)gen << 32 | number, __ATOMIC_RELAXED);
    return number;
}

/* Number of a name that NCCL gives; 0 for none. */
static inline uint32_t name_of(const struct tfi_thread *t, const char *text)
{
    size_t place = ((uintptr_t)text * 0x9e3779b97f4a7c15u >> 32) % TFI_COUNT(names);
    if (!text) return 0;
    if (TFI_LIKELY(__atomic_load_n(&names[place].state, __ATOMIC_ACQUIRE) == FILLED)) {
        uint64_t number = __atomic_load_n(&names[place].number, __ATOMIC_RELAXED);
        if (TFI_LIKELY(number >> 32 == t->gen && is_short_text(names[place].text, text))) return (uint32_t)number;
    }
    return look_up(t->gen, place, text);
}

/* Bytes of an element by NCCL's name of its type, which has the bits in it: ncclFloat16, ncclFloat8e4m3. */
static inline uint64_t bytes_of_type(const char *type)
{
    uint64_t bits = 0;
    for (size_t i = 0; type && i < LONGEST && type[i] && bits <= 64; i++) {
        bool digit = type[i] >= '0' && type[i] <= '9';
        if (digit) bits = bits * 10 + (uint64_t)(type[i] - '0');
        else if (bits) break;
    }
    return bits <= 64 ? bits / 8 : 0;
}

static inline void write_event(struct tfi_thread *t, const struct event *e)
{
    uint64_t bytes;
    uint32_t function = name_of(t, e->function), algorithm = name_of(t, e->algorithm),
             protocol = name_of(t, e->protocol);
    if (__builtin_mul_overflow(e->count, bytes_of_type(e->type), &bytes)) bytes = 0;
    TFI_WRITE(t, nccl_plan, .function = function, .time = tfi_ticks(), .communicator = e->communicator,
              .sequence = e->sequence, .bytes = bytes, .algorithm = algorithm, .protocol = protocol, .peer = e->peer,
              .rank = e->rank, .ranks = e->ranks, .channels = e->channels, .warps = e->warps);
}

static void record(const struct event *e)
{
    if (state != ON) return;
    struct tfi_thread *t = tfi_enter(TFI_WHY_NONE);
    if (!t) return;
    if (tfi_call_wanted(t) && tfi_recording(TFI_ACTIVITY_NCCL)) write_event(t, e);
    tfi_leave(t);
}

static const struct context *known(const void *context)
{
    return context ? context : &unknown;
}

static void record_collective(const void *context, int rank, const struct tfi_nccl_collective *c)
{
    record(&(struct event){.communicator = known(context)->communicator,
                           .sequence = c->sequence,
                           .function = c->function,
                           .type = c->type,
                           .algorithm = c->algorithm,
                           .protocol = c->protocol,
                           .count = c->count,
                           .peer = c->root,
                           .rank = rank,
                           .ranks = known(context)->ranks,
                           .channels = c->channels,
                           .warps = c->warps});
}

static void record_peer(const void *context, int rank, const struct tfi_nccl_peer *p)
{
    record(&(struct event){.communicator = known(context)->communicator,
                           .function = p->function,
                           .type = p->type,
                           .count = p->count,
                           .peer = p->peer,
                           .rank = rank,
                           .ranks = known(context)->ranks,
                           .channels = p->channels});
}

static int start_v3(void *context, void **handle, const struct tfi_nccl_event_v3 *e)
{
    (void)context;
    if (handle) *handle = NULL;
    if (e && e->kind == TFI_NCCL_EVENT_COLLECTIVE)
        record(&(struct event){.communicator = e->collective.communicator,
                               .sequence = e->collective.sequence,
                               .function = e->collective.function,
                               .type = e->collective.type,
                               .algorithm = e->collective.algorithm,
                               .protocol = e->collective.protocol,
                               .count = e->collective.count,
                               .peer = e->collective.root,
                               .rank = e->rank,
                               .channels = e->collective.channels,
                               .warps = e->collective.warps});
    if (e && e->kind == TFI_NCCL_EVENT_PEER)
        record(&(struct event){.communicator = e->peer.communicator,
                               .function = e->peer.function,
                               .type = e->peer.type,
                               .count = e->peer.count,
                               .peer = e->peer.peer,
                               .rank = e->rank});
    return 0;
}

static int start_v4(void *context, void **handle, const struct tfi_nccl_event_v4 *e)
{
    if (handle) *handle = NULL;
    if (e && e->kind == TFI_NCCL_EVENT_COLLECTIVE) record_collective(context, e->rank, &e->collective);
    if (e && e->kind == TFI_NCCL_EVENT_PEER) record_peer(context, e->rank, &e->peer);
    return 0;
}

static int start_v5(void *context, void **handle, const struct tfi_nccl_event_v5 *e)
{
    if (handle) *handle = NULL;
    if (e && e->kind == TFI_NCCL_EVENT_COLLECTIVE) record_collective(context, e->rank, &e->collective);
    if (e && e->kind == TFI_NCCL_EVENT_PEER) record_peer(context, e->rank, &e->peer);
    return 0;
}

static int stop(void *handle)
{
    (void)handle;
    return 0;
}

static int record_state(void *handle, int at, const void *arguments)
{
    (void)handle, (void)at, (void)arguments;
    return 0;
}

/* ---- the plugin by version ---- */

static int init_v3(void **context, int *mask)
{
    return begin_context(context, mask, 0, 0, 3);
}

static int init_v4(void **context, int *mask, const char *name, uint64_t communicator, int nodes, int ranks, int rank,
                   void (*log)(void))
{
    (void)name, (void)nodes, (void)rank, (void)log;
    return begin_context(context, mask, communicator, ranks, 4);
}

static int init_v5(void **context, uint64_t communicator, int *mask, const char *name, int nodes, int ranks, int rank,
                   void (*log)(void))
{
    (void)name, (void)nodes, (void)rank, (void)log;
    return begin_context(context, mask, communicator, ranks, 5);
}

static int init_v6(void **context, uint64_t communicator, int *mask, const char *name, int nodes, int ranks, int rank,
                   void (*log)(void))
{
    (void)name, (void)nodes, (void)rank, (void)log;
    return begin_context(context, mask, communicator, ranks, 6);
}

/* The exported symbols are other names of these: a definition in the program would take the exported ones' place. */
#define NAME "tfinject"
static const struct tfi_nccl_plugin_v3 v3 = {NAME, init_v3, start_v3, stop, record_state, finalize};
static const struct tfi_nccl_plugin_v4 v4 = {NAME, init_v4, start_v4, stop, record_state, finalize};
static const struct tfi_nccl_plugin_v5 v5 = {NAME, init_v5, start_v5, stop, record_state, finalize};
static const struct tfi_nccl_plugin_v5 v6 = {NAME, init_v6, start_v5, stop, record_state, finalize};
extern const struct tfi_nccl_plugin_v3 ncclProfiler_v3 TFI_EXPORT __attribute__((alias("v3")));
extern const struct tfi_nccl_plugin_v4 ncclProfiler_v4 TFI_EXPORT __attribute__((alias("v4")));
extern const struct tfi_nccl_plugin_v5 ncclProfiler_v5 TFI_EXPORT __attribute__((alias("v5")));
extern const struct tfi_nccl_plugin_v5 ncclProfiler_v6 TFI_EXPORT __attribute__((alias("v6")));

/* ---- whose plugin NCCL loads ---- */

static bool is_ours(const void *symbol)
{
    return symbol == &v3 || symbol == &v4 || symbol == &v5 || symbol == &v6;
}

/* True if the program, or a library that it is linked with, has a plugin of its own. */
static bool has_another(void)
{
    static const char *const versions[] = {"ncclProfiler_v1", "ncclProfiler_v2", "ncclProfiler_v3", "ncclProfiler_v4",
                                           "ncclProfiler_v5", "ncclProfiler_v6", "ncclProfiler_v7"};
    for (size_t i = 0; i < TFI_COUNT(versions); i++) {
        void *first = tfi_dlsym(RTLD_DEFAULT, versions[i]);
        if ((first && !is_ours(first)) || tfi_dlsym(RTLD_NEXT, versions[i])) return true;
    }
    return false;
}

void tfi_nccl_plugin_constructor(void)
{
    if (!tfi_config.nccl_plugin || tfi_config.secure || !tfi_config_may_have(TFI_ACTIVITY_NCCL)) return;
    int error = errno;
    const char *chosen = getenv(VARIABLE);
    if (!chosen) state = setenv(VARIABLE, STATIC, 0) == 0 ? ON : OFF;
    else state = strcasecmp(chosen, STATIC) == 0 && !has_another() ? ON : REFUSED;
    errno = error;
}

void tfi_nccl_plugin_note(void)
{
    if (state == REFUSED)
        tfi_log(TFI_LOG_WARN,
                "TFI_NCCL_PLUGIN=1 has no effect: " VARIABLE
                " names another plugin (%s), which NCCL loads. Unset it to "
                "record algorithm, protocol and channels",
                getenv(VARIABLE));
}

bool tfi_nccl_plugin_hides(void *handle, const char *name, void **found)
{
    static const char start[] = "ncclProfiler_v";
    if (state == ON || strncmp(name, start, sizeof start - 1) != 0) return false;
    int error = errno;
    bool ours = is_ours(tfi_dlsym(handle, name));
    if (ours) *found = tfi_dlsym(RTLD_NEXT, name);
    errno = error;
    return ours;
}
