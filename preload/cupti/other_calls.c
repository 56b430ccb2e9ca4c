/* other_calls.c - wraps the functions of cupti.def: shares CUPTI between us and the program's own profiler.
 *
 * The program's buffer callbacks are stored; CUPTI has ours (see other_clients.c for sharing buffers). The first
 * buffer of a window is requested when the window begins, as CUPTI would request it: kineto does not flush while no
 * buffer of its own is out.
 *
 * Not passed on while we record:
 * - buffer callbacks;
 * - a timestamp callback that CUPTI has already: each registration costs it the times of some more kernels;
 * - the disabling of a kind or call that we want too;
 * - kernels one at a time, a kind that excludes ours: CUPTI would record none of it, and ours are handed over as such;
 * - buffers by thread and zeroed buffers, which can't be changed in the middle;
 * - cuptiFinalize, which would end our records and is known to spoil later ones: the program's kinds are disabled, and
 *   the call returns success.
 *
 * The program's timestamp callback is passed on, because its records must have its unit; ours are converted
 * (device_clock.c). All other calls are passed on unchanged. All calls are passed on while our client is not on; requests
 * are then only noted, in case it is started later. Calls of a second CUPTI (of another version) in the process are
 * never ours.
 *
 * All of it is atomic words: no lock is held anywhere, and a call keeps errno as CUPTI leaves it.
 */
#include "base/process.h"
#include "cupti/other_clients.h"

#define LIBRARY(name, soname)
#define HOOK_CUSTOM(class, ret, symbol, params, names) [TFI_HOOK_##symbol - TFI_LIBRARY_cupti] = (void *)symbol,
static void *const wrappers[] = {
#include "cupti/cupti.def"
};
#undef LIBRARY
#undef HOOK_CUSTOM

void *tfi_other_wrapper(unsigned hook)
{
    return wrappers[hook - TFI_LIBRARY_cupti];
}

#define MISSING CUPTI_ERROR_NOT_INITIALIZED

/* True if a call has to be shared: it is for the library that our client uses, and no other client owns the
 * device. */
static bool shared(const void *real, const void *ours)
{
    return __atomic_load_n(&tfi_cupti->on, __ATOMIC_ACQUIRE) && real == ours &&
           !__atomic_load_n(&tfi_cupti_away, __ATOMIC_ACQUIRE);
}

/* True if a call is for another library than ours. */
static bool elsewhere(const void *real, const void *ours)
{
    return __atomic_load_n(&tfi_cupti->on, __ATOMIC_ACQUIRE) && real != ours;
}

static bool ours_wants(uint32_t kind)
{
    return kind < 64 && tfi_cupti->kinds >> kind & 1;
}

/* True if our records serve the program as that kind of its own. */
static bool ours_serves(uint32_t kind)
{
    return ours_wants(kind) || (kind == TFI_CUPTI_KERNEL && ours_wants(TFI_CUPTI_CONCURRENT_KERNEL));
}

static bool ours_wants_call(uint32_t domain, uint32_t number)
{
    return ours_wants(domain) || tfi_cupti_call_index(domain, number) >= 0;
}

/* Returns the current or latest window. */
static struct tfi_other_window *window(void)
{
    return &tfi_other.windows[(tfi_other.edges - 1) / 2 % TFI_OTHER_WINDOWS];
}

static void set(uint64_t *word, uint64_t bits, bool on)
{
    if (on) __atomic_or_fetch(word, bits, __ATOMIC_RELAXED);
    else __atomic_and_fetch(word, ~bits, __ATOMIC_RELAXED);
}

static bool any_wanted(void)
{
    uint64_t any = tfi_other.wanted;
    for (unsigned i = 0; i < TFI_OTHER_WORDS; i++) any |= tfi_other.runtime.bits[i] | tfi_other.driver.bits[i];
    return any != 0;
}

/* ---- windows ---- */

static uint64_t cupti_now(void)
{
    uint64_t now = 0;
    if (!tfi_cupti->on || tfi_cupti_api.GetTimestamp(&now) != 0) return 0;
    tfi_cupti_clock_refresh();
    return tfi_cupti_clock_ns(now);
}

/* Called before the first kind of a window is enabled. */
static void begin_window(void)
{
    if (tfi_other.edges & 1) return;
    tfi_kinds_window(true);
    tfi_other.windows[tfi_other.edges / 2 % TFI_OTHER_WINDOWS] =
        (struct tfi_other_window){.start = cupti_now(), .before = tfi_other.seen};
    __atomic_add_fetch(&tfi_other.edges, 1, __ATOMIC_RELEASE);
}

static void end_window(void)
{
    if (!(tfi_other.edges & 1) || any_wanted()) return;
    window()->end = cupti_now();
    __atomic_add_fetch(&tfi_other.edges, 1, __ATOMIC_RELEASE);
    tfi_kinds_window(false);
}

/* Requests the window's first buffer. While CUPTI holds a buffer of ours, it would not ask the program for one,
 * perhaps for the whole window. */
static void ask_ahead(void)
{
    uint32_t state = TFI_NONE_AHEAD;
    int error = errno;
    if (!__atomic_load_n(&tfi_cupti->on, __ATOMIC_ACQUIRE) || !tfi_other.request || !(tfi_other.edges & 1)) return;
    if (!tfi_buffers_out()) return;
    if (!__atomic_compare_exchange_n(&tfi_other_ahead.state, &state, TFI_BUSY, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return;
    tfi_other_ahead.copy = (struct tfi_other_copy){0};
    tfi_other.request(&tfi_other_ahead.copy.data, &tfi_other_ahead.copy.size, &tfi_other_ahead.copy.max);
    bool given = tfi_other_ahead.copy.data && tfi_other_ahead.copy.size;
    __atomic_store_n(&tfi_other_ahead.state, given ? TFI_ONE_AHEAD : TFI_NONE_AHEAD, __ATOMIC_RELEASE);
    errno = error;
}

static void note_overhead(bool on)
{
    struct tfi_other_window *w = window();
    if (!on) w->overhead_end = cupti_now();
    else if (w->overhead_start) w->overhead_end = 0;
    else w->overhead_start = cupti_now();
}

static void note_kind(uint32_t kind, bool on)
{
    struct tfi_other_calls *calls = tfi_other_calls(kind);
    if (kind >= 64) return;
    if (on) begin_window();
    if (kind == TFI_CUPTI_OVERHEAD && tfi_other.edges & 1) note_overhead(on);
    for (unsigned i = 0; calls && i < TFI_OTHER_WORDS; i++) {
        set(&calls->bits[i], ~0ull, on);
        if (on) set(&tfi_other_window_calls(window(), kind)->bits[i], ~0ull, true);
    }
    set(&tfi_other.wanted, tfi_other_bit(kind), on);
    if (on) set(&window()->kinds, tfi_other_bit(kind), true);
    else end_window();
}

/* A call that is taken out of a kind of calls is not of the window. One that was enabled alone was, until now. */
static void note_call(uint32_t domain, uint32_t number, bool on)
{
    if (number >= TFI_OTHER_CALLS) return;
    if (on) begin_window();
    set(&tfi_other_calls(domain)->bits[number / 64], tfi_other_bit(number), on);
    if (tfi_other.edges & 1 && (on || tfi_other_wants(domain)))
        set(&tfi_other_window_calls(window(), domain)->bits[number / 64], tfi_other_bit(number), on);
    if (!on) end_window();
}

/* ---- the functions ---- */

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete)
{
    CUptiResult (*real)(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc) =
        tfi_real(TFI_HOOK_cuptiActivityRegisterCallbacks);
    if (!real) return MISSING;
    if (!request || !complete || elsewhere(real, tfi_cupti_api.ActivityRegisterCallbacks))
        return real(request, complete);
    tfi_other.request = request;
    tfi_other.complete = complete;
    ask_ahead();
    if (shared(real, tfi_cupti_api.ActivityRegisterCallbacks)) return CUPTI_SUCCESS;
    return real(request, complete);
}

/* One of CUPTI's functions that enable a kind, for all contexts or for one. */
struct enabling {
    CUptiResult (*plain)(CUpti_ActivityKind);
    CUptiResult (*in_context)(CUcontext, CUpti_ActivityKind);
    CUcontext context;
};

static CUptiResult enable(const struct enabling *how, CUpti_ActivityKind kind, bool share)
{
    bool served = (uint32_t)kind == TFI_CUPTI_KERNEL && ours_serves((uint32_t)kind) && share;
    CUptiResult result = CUPTI_SUCCESS;
    note_kind((uint32_t)kind, true);
    if (!served) result = how->plain ? how->plain(kind) : how->in_context(how->context, kind);
    if (result != CUPTI_SUCCESS) note_kind((uint32_t)kind, false);
    else ask_ahead();
    return result;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
    CUptiResult (*real)(CUpti_ActivityKind) = tfi_real(TFI_HOOK_cuptiActivityEnable);
    if (!real) return MISSING;
    if (elsewhere(real, tfi_cupti_api.ActivityEnable)) return real(kind);
    return enable(&(struct enabling){.plain = real}, kind, shared(real, tfi_cupti_api.ActivityEnable));
}

CUptiResult cuptiActivityEnableAndDump(CUpti_ActivityKind kind)
{
    CUptiResult (*real)(CUpti_ActivityKind) = tfi_real(TFI_HOOK_cuptiActivityEnableAndDump);
    if (!real) return MISSING;
    const void *other =
        tfi_hook_sibling(TFI_HOOK_cuptiActivityEnableAndDump, "cuptiActivityEnable", __builtin_return_address(0));
    if (elsewhere(other, tfi_cupti_api.ActivityEnable)) return real(kind);
    return enable(&(struct enabling){.plain = real}, kind, shared(other, tfi_cupti_api.ActivityEnable));
}

/* A kind that is enabled in one context counts as enabled: records of the others reach the client as well. */
CUptiResult cuptiActivityEnableContext(CUcontext context, CUpti_ActivityKind kind)
{
    CUptiResult (*real)(CUcontext, CUpti_ActivityKind) = tfi_real(TFI_HOOK_cuptiActivityEnableContext);
    if (!real) return MISSING;
    const void *other =
        tfi_hook_sibling(TFI_HOOK_cuptiActivityEnableContext, "cuptiActivityEnable", __builtin_return_address(0));
    if (elsewhere(other, tfi_cupti_api.ActivityEnable)) return real(context, kind);
    return enable(&(struct enabling){.in_context = real, .context = context}, kind,
                  shared(other, tfi_cupti_api.ActivityEnable));
}

CUptiResult cuptiActivityDisableContext(CUcontext context, CUpti_ActivityKind kind)
{
    CUptiResult (*real)(CUcontext, CUpti_ActivityKind) = tfi_real(TFI_HOOK_cuptiActivityDisableContext);
    CUptiResult result = CUPTI_SUCCESS;
    if (!real) return MISSING;
    const void *other =
        tfi_hook_sibling(TFI_HOOK_cuptiActivityDisableContext, "cuptiActivityEnable", __builtin_return_address(0));
    if (elsewhere(other, tfi_cupti_api.ActivityEnable)) return real(context, kind);
    if (!shared(other, tfi_cupti_api.ActivityEnable) || !ours_serves((uint32_t)kind)) result = real(context, kind);
    note_kind((uint32_t)kind, false);
    return result;
}

/* Disables the kind of an API even if we want some of its calls, and then enables those calls again. If only
 * single calls were taken back, CUPTI might take the kind for enabled, and the program's next window would have
 * no calls. Calls of other threads in between get no record of CUPTI's, only those of our wrappers. */
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind)
{
    CUptiResult (*real)(CUpti_ActivityKind) = tfi_real(TFI_HOOK_cuptiActivityDisable);
    CUptiResult result = CUPTI_SUCCESS;
    if (!real) return MISSING;
    if (elsewhere(real, tfi_cupti_api.ActivityDisable)) return real(kind);
    bool share = shared(real, tfi_cupti_api.ActivityDisable), calls = tfi_other_calls((uint32_t)kind) != NULL;
    if (!share || !ours_serves((uint32_t)kind)) result = real(kind);
    if (share && calls && !ours_wants((uint32_t)kind)) tfi_kinds_enable_calls((uint32_t)kind);
    note_kind((uint32_t)kind, false);
    return result;
}

/* Shared by both functions for single calls. */
static CUptiResult enable_call(uint32_t domain, CUptiResult (*real)(CUpti_CallbackId, uint8_t), const void *ours,
                               CUpti_CallbackId number, uint8_t enable)
{
    if (!real) return MISSING;
    if (elsewhere(real, ours)) return real(number, enable);
    note_call(domain, number, enable);
    if (!enable && shared(real, ours) && ours_wants_call(domain, number)) return CUPTI_SUCCESS;
    CUptiResult result = real(number, enable);
    if (enable && result == CUPTI_SUCCESS) ask_ahead();
    return result;
}

CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId number, uint8_t enable)
{
    CUptiResult (*real)(CUpti_CallbackId, uint8_t) = tfi_real(TFI_HOOK_cuptiActivityEnableRuntimeApi);
    return enable_call(TFI_CUPTI_RUNTIME, real, tfi_cupti_api.ActivityEnableRuntimeApi, number, enable);
}

CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId number, uint8_t enable)
{
    CUptiResult (*real)(CUpti_CallbackId, uint8_t) = tfi_real(TFI_HOOK_cuptiActivityEnableDriverApi);
    return enable_call(TFI_CUPTI_DRIVER, real, tfi_cupti_api.ActivityEnableDriverApi, number, enable);
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped)
{
    CUptiResult (*real)(CUcontext, uint32_t, size_t *) = tfi_real(TFI_HOOK_cuptiActivityGetNumDroppedRecords);
    if (!real) return MISSING;
    CUptiResult result = real(context, stream, dropped);
    if (result != CUPTI_SUCCESS || !dropped || !shared(real, tfi_cupti_api.ActivityGetNumDroppedRecords)) return result;
    tfi_count_drop(TFI_DROP_DEVICE_DROPPED, *dropped);
    *dropped += __atomic_exchange_n(&tfi_other.dropped, 0, __ATOMIC_RELAXED);
    return result;
}

CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t *size, void *value)
{
    CUptiResult (*real)(CUpti_ActivityAttribute, size_t *, void *) = tfi_real(TFI_HOOK_cuptiActivitySetAttribute);
    if (!real) return MISSING;
    bool ours = (int)attribute == TFI_CUPTI_ATTR_ZEROED_BUFFER || (int)attribute == TFI_CUPTI_ATTR_PER_THREAD_BUFFER;
    if (ours && size && value && shared(real, tfi_cupti_api.ActivitySetAttribute)) return CUPTI_SUCCESS;
    return real(attribute, size, value);
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock)
{
    CUptiResult (*real)(CUpti_TimestampCallbackFunc) = tfi_real(TFI_HOOK_cuptiActivityRegisterTimestampCallback);
    if (!real) return MISSING;
    const void *other = tfi_hook_sibling(TFI_HOOK_cuptiActivityRegisterTimestampCallback, "cuptiGetTimestamp",
                                         __builtin_return_address(0));
    if (!clock || elsewhere(other, tfi_cupti_api.GetTimestamp)) return real(clock);
    if (tfi_other.clock == clock && tfi_other.clock_taken && shared(other, tfi_cupti_api.GetTimestamp))
        return CUPTI_SUCCESS;
    if (tfi_cupti->on) tfi_cupti_clock_foreign(clock);
    tfi_other.clock = clock;
    CUptiResult result = real(clock);
    tfi_other.clock_taken = result == CUPTI_SUCCESS;
    return result;
}

/* Notes the hardware's own tracing: once enabled it holds for the whole process, whichever client enabled it. */
CUptiResult cuptiActivityEnableHWTrace(uint8_t enable)
{
    CUptiResult (*real)(uint8_t) = tfi_real(TFI_HOOK_cuptiActivityEnableHWTrace);
    if (!real) return MISSING;
    CUptiResult result = real(enable);
    if (result == CUPTI_SUCCESS) __atomic_store_n(&tfi_cupti_hes, enable != 0, __ATOMIC_RELEASE);
    return result;
}

CUptiResult cuptiFinalize(void)
{
    CUptiResult (*real)(void) = tfi_real(TFI_HOOK_cuptiFinalize);
    if (!real) return MISSING;
    const void *other = tfi_hook_sibling(TFI_HOOK_cuptiFinalize, "cuptiGetTimestamp", __builtin_return_address(0));
    CUptiResult (*unsubscribe)(CUpti_SubscriberHandle) = (CUptiResult(*)(CUpti_SubscriberHandle))tfi_hook_sibling(
        TFI_HOOK_cuptiFinalize, "cuptiUnsubscribe", __builtin_return_address(0));
    if (elsewhere(other, tfi_cupti_api.GetTimestamp)) return real();
    if (unsubscribe) tfi_v2_finalize(unsubscribe);
    if (!shared(other, tfi_cupti_api.GetTimestamp)) return real();
    for (uint32_t kind = 1; kind < 64; kind++)
        if (tfi_other.wanted & tfi_other_bit(kind)) cuptiActivityDisable((CUpti_ActivityKind)kind);
    return CUPTI_SUCCESS;
}
