/* event_launches.c - times launches by CUDA events: detours on the driver's launch functions; see event_times.c.
 *
 * The detours stand between our wrappers and the originals, for the functions of the driver that launch or that give
 * up a context. A wrapper calls the original of its row; tfi_event_times_begin() makes that one of ours. The program's
 * call is forwarded exactly as it came, even if ours fails.
 */
#include "cuda/event_times.h"

#include <errno.h>

#include "base/process.h"
#include "base/raw_dlsym.h"
#include "cuda/cuda_calls.h"
#include "hooks/hooks.h"
#include "record/background.h"
#include "stage/recording_state.h"

/* Finds the context and the stream of a launch; false if the stream is being captured or belongs to another
 * context than the current one. */
static bool find_place(void *stream, struct tfi_event_place *p)
{
    void *owner;
    int capturing = 0;
    p->stream = stream;
    if (tfi_event_times_driver.StreamIsCapturing(stream, &capturing) != 0 || capturing) return false;
    bool ok = tfi_event_times_driver.CtxGetCurrent(&p->context) == 0 && p->context &&
              tfi_event_times_driver.CtxGetId(p->context, &p->id) == 0 &&
              tfi_event_times_driver.StreamGetId(stream, &p->stream_id) == 0;
    if (ok && (uintptr_t)stream > 2)
        ok = tfi_event_times_driver.StreamGetCtx(stream, &owner) == 0 && owner == p->context;
    if (!ok) tfi_count_drop(TFI_DROP_EVENTS, 1);
    return ok;
}

struct launch {
    struct tfi_thread *thread; /* NULL: the launch is only forwarded */
    struct tfi_event_context *context;
    struct tfi_event_place place;
    uint32_t begin, end; /* events */
    bool again;          /* `end` is an event that was recorded before */
};

/* Returns the calling thread if this launch is to be timed. After a failed exec the same process has a new trace. */
static struct tfi_thread *timed_thread(void)
{
    struct tfi_thread *t = tfi_self;
    uint32_t gen = __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED);
    if (!t || !gen || t->gen != gen || tfi_guarded(t) || !tfi_call_wanted(t) || !tfi_recording(TFI_ACTIVITY_GPU))
        return NULL;
    if (TFI_UNLIKELY(tfi_event_times.gen != gen)) {
        if (!tfi_event_times.on || tfi_event_times.pid != tfi_getpid() ||
            !tfi_lock_within(&tfi_event_times.polling, TFI_EVENT_TIMES_LAUNCH_MS))
            return NULL;
        __atomic_store_n(&tfi_event_times.gen, gen, __ATOMIC_RELEASE);
        tfi_unlock(&tfi_event_times.polling);
    }
    return tfi_event_times.quiet || !__atomic_load_n(&t->stages, __ATOMIC_RELAXED) ? NULL : t;
}

static struct tfi_event_span *find_span(const struct launch *l, uint64_t range)
{
    for (uint32_t i = 0; i < tfi_event_times_spans; i++) {
        struct tfi_event_span *s = &tfi_event_times.span[i];
        if (s->range == range && s->context == l->context && s->stream == (uint32_t)l->place.stream_id) return s;
    }
    return NULL;
}

/* With `lists` held. True if the launch needs an event before it. Also looks for an event after an earlier launch that
 * can be recorded again, because nothing but open stages of this thread holds it. */
static bool needs_begin(struct launch *l)
{
    const struct tfi_thread *t = l->thread;
    uint32_t common = TFI_EVENT_TIMES_NONE, holders = 0;
    bool missing = false;
    for (uint32_t i = 0; i < t->nr_open; i++) {
        if (!(t->open[i].flags & TFI_RANGE_STAGE)) continue;
        const struct tfi_event_span *s = find_span(l, t->open[i].id);
        if (!s) missing = true;
        else if (common == TFI_EVENT_TIMES_NONE || common == s->end) holders++;
        if (s) common = s->end;
    }
    if (common != TFI_EVENT_TIMES_NONE && l->context->pool[common].users == holders) {
        l->end = common;
        l->again = true;
    }
    return missing;
}

/* With `lists` held: takes the events of a launch. */
static bool take_events(struct launch *l)
{
    struct tfi_event_context *c = l->context;
    l->begin = l->end = TFI_EVENT_TIMES_NONE;
    l->again = false;
    bool begin = needs_begin(l);
    if (begin && (l->begin = tfi_event_times_pop(c)) == TFI_EVENT_TIMES_NONE) l->begin = tfi_event_times_make(c);
    if (l->again) c->pool[l->end].users++;
    else if ((l->end = tfi_event_times_pop(c)) == TFI_EVENT_TIMES_NONE) l->end = tfi_event_times_make(c);
    if ((!begin || l->begin != TFI_EVENT_TIMES_NONE) && l->end != TFI_EVENT_TIMES_NONE) return true;
    tfi_event_times_unuse(c, l->begin);
    tfi_event_times_unuse(c, l->end);
    return false;
}

static bool lock_and_take(struct launch *l)
{
    if (!tfi_lock_within(&tfi_event_times.lists, TFI_EVENT_TIMES_LAUNCH_MS)) return false;
    l->context = tfi_event_times_context(&l->place);
    bool ok = l->context && take_events(l);
    tfi_unlock(&tfi_event_times.lists);
    return ok;
}

/* In relaxed capture mode. If no event is free, looks for items that have completed. */
static bool prepare(struct launch *l)
{
    if (lock_and_take(l)) return true;
    if (l->context && tfi_lock_within(&tfi_event_times.polling, 0)) {
        if (tfi_event_times.gen == l->thread->gen) tfi_event_times_resolve(l->context, 64, false);
        tfi_unlock(&tfi_event_times.polling);
        if (lock_and_take(l)) return true;
    }
    tfi_count_drop(TFI_DROP_EVENTS, 1);
    return false;
}

static void give_back(struct launch *l)
{
    int cancel = tfi_cancel_off();
    if (tfi_lock(&tfi_event_times.lists)) {
        tfi_event_times_unuse(l->context, l->begin);
        tfi_event_times_unuse(l->context, l->end);
        tfi_unlock(&tfi_event_times.lists);
    }
    tfi_cancel_on(cancel);
    l->thread = NULL;
}

static void before(struct launch *l, void *stream)
{
    *l = (struct launch){.thread = timed_thread()};
    if (!l->thread) return;
    int error = errno, cancel = tfi_cancel_off(), mode = tfi_event_times_relaxed();
    tfi_signals_off();
    tfi_inside++;
    bool ok = mode >= 0 && find_place(stream, &l->place) && prepare(l);
    if (ok && l->begin != TFI_EVENT_TIMES_NONE &&
        tfi_event_times_driver.EventRecord(l->context->pool[l->begin].handle, stream) != 0) {
        tfi_count_drop(TFI_DROP_EVENTS, 1);
        give_back(l);
        ok = false;
    }
    tfi_inside--;
    tfi_signals_on();
    tfi_event_times_restore(mode);
    tfi_cancel_on(cancel);
    if (!ok) l->thread = NULL;
    errno = error;
}

/* With `lists` held: the open stages of the thread end, for the time being, with this launch. */
static void extend_spans(struct launch *l)
{
    struct tfi_event_context *c = l->context;
    for (uint32_t i = 0; i < l->thread->nr_open; i++) {
        const struct tfi_open *open = &l->thread->open[i];
        if (!(open->flags & TFI_RANGE_STAGE)) continue;
        struct tfi_event_span *s = find_span(l, open->id);
        if (!s && (l->begin == TFI_EVENT_TIMES_NONE || tfi_event_times_spans == TFI_EVENT_TIMES_MAX_SPANS)) {
            tfi_count_drop(TFI_DROP_EVENTS, 1);
            continue;
        }
        if (!s) {
            s = &tfi_event_times.span[tfi_event_times_spans];
            *s = (struct tfi_event_span){open->id, c, (uint32_t)l->place.stream_id, l->begin, TFI_EVENT_TIMES_NONE, 0};
            c->pool[l->begin].users++;
            __atomic_store_n(&tfi_event_times_spans, tfi_event_times_spans + 1, __ATOMIC_RELAXED);
        }
        s->launches++;
        if (s->end == l->end) continue;
        c->pool[l->end].users++;
        tfi_event_times_unuse(c, s->end);
        s->end = l->end;
    }
}

static void note_launch(struct launch *l)
{
    if (!tfi_lock(&tfi_event_times.lists)) return;
    extend_spans(l);
    tfi_event_times_unuse(l->context, l->begin);
    tfi_event_times_unuse(l->context, l->end);
    tfi_unlock(&tfi_event_times.lists);
}

static void after(struct launch *l, int result)
{
    if (!l->thread) return;
    if (result != 0) {
        give_back(l);
        return;
    }
    int error = errno, cancel = tfi_cancel_off(), mode = tfi_event_times_relaxed();
    tfi_signals_off();
    tfi_inside++;
    bool ok = tfi_event_times_driver.EventRecord(l->context->pool[l->end].handle, l->place.stream) == 0;
    tfi_event_times_restore(mode);
    if (ok) {
        note_launch(l);
    } else {
        tfi_count_drop(TFI_DROP_EVENTS, 1);
        give_back(l);
    }
    tfi_caller_start();
    if (tfi_event_times.waiting > TFI_EVENT_TIMES_MAX_EVENTS / 8 && tfi_event_times.waiting % 64 == 0)
        tfi_caller_signal();
    tfi_inside--;
    tfi_signals_on();
    tfi_cancel_on(cancel);
    errno = error;
}

/* ---- the detours ---- */

#define ROUNDS                                                                                                         \
    ROUND(cuLaunchKernel, launch, )                                                                                    \
    ROUND(cuLaunchKernel_ptsz, launch, _ptsz)                                                                          \
    ROUND(cuLaunchCooperativeKernel, cooperative, )                                                                    \
    ROUND(cuLaunchCooperativeKernel_ptsz, cooperative, _ptsz)                                                          \
    ROUND(cuLaunchKernelEx, launch_ex, )                                                                               \
    ROUND(cuLaunchKernelEx_ptsz, launch_ex, _ptsz)                                                                     \
    ROUND(cuGraphLaunch, graph, )                                                                                      \
    ROUND(cuGraphLaunch_ptsz, graph, _ptsz)                                                                            \
    ROUND(cuCtxDestroy, destroy, )                                                                                     \
    ROUND(cuCtxDestroy_v2, destroy, _v2)                                                                               \
    ROUND(cuDevicePrimaryCtxRelease, release, )                                                                        \
    ROUND(cuDevicePrimaryCtxRelease_v2, release, _v2)                                                                  \
    ROUND(cuDevicePrimaryCtxReset, reset, )                                                                            \
    ROUND(cuDevicePrimaryCtxReset_v2, reset, _v2)

#define ROUND(symbol, function, suffix) ORIGINAL_##function##suffix,
enum { ROUNDS NR_ORIGINALS };
#undef ROUND
static void *original[NR_ORIGINALS];

/* Replaces 0, the default stream: a function and its variant for per-thread streams mean different streams by it. */
#define LEGACY(stream) ((stream) ? (stream) : (void *)1)
#define PER_THREAD(stream) ((stream) ? (stream) : (void *)2)

#define LAUNCH(name, stream_of)                                                                                        \
    static int name(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,             \
                    unsigned shared, void *stream, void **params, void **extra)                                        \
    {                                                                                                                  \
        int (*real)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,     \
                    void **) = original[ORIGINAL_##name];                                                              \
        struct launch l;                                                                                               \
        before(&l, stream_of(stream));                                                                                 \
        int result = real(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);                                   \
        after(&l, result);                                                                                             \
        return result;                                                                                                 \
    }
LAUNCH(launch, LEGACY)
LAUNCH(launch_ptsz, PER_THREAD)

#define COOPERATIVE(name, stream_of)                                                                                   \
    static int name(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,             \
                    unsigned shared, void *stream, void **params)                                                      \
    {                                                                                                                  \
        int (*real)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **) =   \
            original[ORIGINAL_##name];                                                                                 \
        struct launch l;                                                                                               \
        before(&l, stream_of(stream));                                                                                 \
        int result = real(f, gx, gy, gz, bx, by, bz, shared, stream, params);                                          \
        after(&l, result);                                                                                             \
        return result;                                                                                                 \
    }
COOPERATIVE(cooperative, LEGACY)
COOPERATIVE(cooperative_ptsz, PER_THREAD)

/* The beginning of a CUlaunchConfig: grid, block, shared memory, stream. */
struct config {
    unsigned shape[7];
    void *stream;
};
_Static_assert(offsetof(struct config, stream) == 32, "CUlaunchConfig");

#define LAUNCH_EX(name, stream_of)                                                                                     \
    static int name(const struct config *config, void *f, void **params, void **extra)                                 \
    {                                                                                                                  \
        int (*real)(const struct config *, void *, void **, void **) = original[ORIGINAL_##name];                      \
        struct launch l;                                                                                               \
        if (!config) return real(config, f, params, extra);                                                            \
        before(&l, stream_of(config->stream));                                                                         \
        int result = real(config, f, params, extra);                                                                   \
        after(&l, result);                                                                                             \
        return result;                                                                                                 \
    }
LAUNCH_EX(launch_ex, LEGACY)
LAUNCH_EX(launch_ex_ptsz, PER_THREAD)

#define GRAPH(name, stream_of)                                                                                         \
    static int name(void *exec, void *stream)                                                                          \
    {                                                                                                                  \
        int (*real)(void *, void *) = original[ORIGINAL_##name];                                                       \
        struct launch l;                                                                                               \
        before(&l, stream_of(stream));                                                                                 \
        int result = real(exec, stream);                                                                               \
        after(&l, result);                                                                                             \
        return result;                                                                                                 \
    }
GRAPH(graph, LEGACY)
GRAPH(graph_ptsz, PER_THREAD)

#define DESTROY(name)                                                                                                  \
    static int name(void *context)                                                                                     \
    {                                                                                                                  \
        int (*real)(void *) = original[ORIGINAL_##name];                                                               \
        if (context) tfi_event_times_leave(context, 0);                                                                \
        return real(context);                                                                                          \
    }
DESTROY(destroy)
DESTROY(destroy_v2)

#define LEAVE(name)                                                                                                    \
    static int name(int device)                                                                                        \
    {                                                                                                                  \
        int (*real)(int) = original[ORIGINAL_##name];                                                                  \
        tfi_event_times_leave(NULL, device);                                                                           \
        return real(device);                                                                                           \
    }
LEAVE(release)
LEAVE(release_v2)
LEAVE(reset)
LEAVE(reset_v2)

/* Makes `ours` the original of a wrapper, and the wrapper's former original the one that `ours` calls. */
static void put_before(enum tfi_hook hook, void *ours, void **real, void *driver)
{
    *real = __atomic_load_n(&tfi_hooks[hook].real, __ATOMIC_RELAXED);
    if (!*real) *real = tfi_dlsym(driver, tfi_hook_symbol(hook));
    if (*real) __atomic_store_n(&tfi_hooks[hook].real, ours, __ATOMIC_RELEASE);
}

void tfi_event_times_put_before(void *driver)
{
#define ROUND(symbol, function, suffix)                                                                                \
    put_before(TFI_HOOK_##symbol, (void *)function##suffix, &original[ORIGINAL_##function##suffix], driver);
    ROUNDS
#undef ROUND
}
