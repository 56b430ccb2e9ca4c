/* broker.c - the functions of cupti.def: one CUPTI, two clients, this library and the program's own profiler.
 *
 * The program's buffer callbacks are kept; CUPTI has ours. While the program has kinds enabled (a session), buffers come
 * from its callback, our records are read from them, then they are handed back to it. A buffer of ours that was open
 * during a session is copied into its buffers. The first of those is asked for when the session begins, as CUPTI would
 * ask for it: kineto does not flush while no buffer of its own is out. CUPTI records what either side wants; before a
 * buffer goes to the program what it would not have without us is taken out: a call has to lie in one of its sessions,
 * device work belongs to the session its call was made in, however late it runs.
 *
 * Not passed on while we record: the callbacks; a timestamp callback that CUPTI has already, for each time it is told
 * costs it the times of some more kernels; a disabling of what we want too; buffers by thread and zeroed buffers,
 * which can't be changed in the middle; cuptiFinalize, which would end our records and is known to spoil later ones: the
 * program's kinds are disabled, and it hears success. Its timestamp callback is passed on, for its records must have its
 * unit; ours are converted (cupti_clock.c). All else is passed on as it is, and everything is while our client is not on;
 * what was asked for then is only noted, for the case that it is started later. Calls of a second CUPTI (of another
 * version) in the process are never ours.
 *
 * All of it is atomic words: no lock is held anywhere, and a call keeps errno as CUPTI leaves it.
 */
#include <pthread.h>
#include <string.h>

#include "broker.h"

#define LIBRARY(name, soname)
#define HOOK_CUSTOM(class, ret, symbol, params, names) [TFI_HOOK_##symbol - TFI_LIBRARY_cupti] = (void *)symbol,
static void *const wrappers[] = {
#include "cupti.def"
};
#undef LIBRARY
#undef HOOK_CUSTOM

void *tfi_broker_wrapper(unsigned hook)
{
    return wrappers[hook - TFI_LIBRARY_cupti];
}

#define MISSING CUPTI_ERROR_NOT_INITIALIZED
#define CALLS 1024u /* callback ids; there are some 850 */
#define WORDS (CALLS / 64)

/* One bit for each of an API's calls. */
struct calls {
    uint64_t bits[WORDS];
};

/* A session: what was enabled in it at some time and, of single calls, not taken back. */
struct window {
    uint64_t start, end; /* in CUPTI's time; 0 if not known, or not yet */
    uint32_t before;     /* the last call's id that is known to be older, 0 if none is */
    uint32_t after;      /* the first one that is known to be younger */
    uint64_t kinds;
    struct calls runtime, driver;
};
#define WINDOWS 4u

static struct {
    CUpti_BuffersCallbackRequestFunc request;
    CUpti_BuffersCallbackCompleteFunc complete;
    CUpti_TimestampCallbackFunc clock;
    bool clock_taken; /* CUPTI has it */
    uint64_t wanted;  /* kinds that are enabled now */
    struct calls runtime, driver;
    uint32_t session; /* odd while anything is wanted */
    uint32_t seen;    /* the latest call's id in any buffer so far, 0 if there was none */
    struct window windows[WINDOWS];
    uint64_t dropped; /* counted by our reading, not told yet */
} client;

/* A buffer of the program's. */
struct copy {
    uint8_t *data;
    size_t size, used, max, count;
};

/* One that CUPTI has not seen: asked for ahead. */
static struct {
    struct copy copy;
    uint32_t state; /* atomic */
} ahead;
enum { NONE_AHEAD = 0, BUSY = 1, ONE_AHEAD = 2 };

/* True if a call is to be shared out: it is for the library that our client uses, and the device is not somebody
 * else's. */
static bool shared(const void *real, const void *ours)
{
    return __atomic_load_n(&tfi_cupti->on, __ATOMIC_ACQUIRE) && real == ours &&
           !__atomic_load_n(&tfi_cupti_away, __ATOMIC_ACQUIRE);
}

/* True if it is for another library than ours. */
static bool elsewhere(const void *real, const void *ours)
{
    return __atomic_load_n(&tfi_cupti->on, __ATOMIC_ACQUIRE) && real != ours;
}

static bool ours_wants(uint32_t kind)
{
    return kind < 64 && tfi_cupti->kinds >> kind & 1;
}

static bool ours_wants_call(uint32_t domain, uint32_t number)
{
    return ours_wants(domain) || tfi_cupti_call_index(domain, number) >= 0;
}

static struct calls *calls_of(uint32_t kind)
{
    return kind == TFI_CUPTI_RUNTIME ? &client.runtime : kind == TFI_CUPTI_DRIVER ? &client.driver : NULL;
}

/* The session's, the latest one's. */
static struct window *window(void)
{
    return &client.windows[(client.session - 1) / 2 % WINDOWS];
}

static struct calls *window_calls(struct window *w, uint32_t kind)
{
    return kind == TFI_CUPTI_RUNTIME ? &w->runtime : kind == TFI_CUPTI_DRIVER ? &w->driver : NULL;
}

static uint64_t bit(uint32_t n)
{
    return 1ull << n % 64;
}

static void set(uint64_t *word, uint64_t bits, bool on)
{
    if (on) __atomic_or_fetch(word, bits, __ATOMIC_RELAXED);
    else __atomic_and_fetch(word, ~bits, __ATOMIC_RELAXED);
}

static bool any_wanted(void)
{
    uint64_t any = client.wanted;
    for (unsigned i = 0; i < WORDS; i++) any |= client.runtime.bits[i] | client.driver.bits[i];
    return any != 0;
}

/* ---- sessions ---- */

uint32_t tfi_broker_session(void)
{
    return __atomic_load_n(&client.session, __ATOMIC_ACQUIRE);
}

static uint64_t cupti_now(void)
{
    uint64_t now = 0;
    if (!tfi_cupti->on || tfi_cupti_api.GetTimestamp(&now) != 0) return 0;
    tfi_cupti_clock_refresh();
    return tfi_cupti_clock_ns(now);
}

/* Before the first kind of a session is enabled. */
static void begin_session(void)
{
    if (client.session & 1) return;
    tfi_kinds_session(true);
    client.windows[client.session / 2 % WINDOWS] = (struct window){.start = cupti_now(), .before = client.seen};
    __atomic_add_fetch(&client.session, 1, __ATOMIC_RELEASE);
}

static void end_session(void)
{
    if (!(client.session & 1) || any_wanted()) return;
    window()->end = cupti_now();
    __atomic_add_fetch(&client.session, 1, __ATOMIC_RELEASE);
    tfi_kinds_session(false);
}

/* With a buffer of ours in CUPTI's hands the program would not be asked for one, perhaps for all of the session. */
static void ask_ahead(void)
{
    uint32_t state = NONE_AHEAD;
    int error = errno;
    if (!__atomic_load_n(&tfi_cupti->on, __ATOMIC_ACQUIRE) || !client.request || !(client.session & 1)) return;
    if (!tfi_buffers_out()) return;
    if (!__atomic_compare_exchange_n(&ahead.state, &state, BUSY, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return;
    ahead.copy = (struct copy){0};
    client.request(&ahead.copy.data, &ahead.copy.size, &ahead.copy.max);
    bool given = ahead.copy.data && ahead.copy.size;
    __atomic_store_n(&ahead.state, given ? ONE_AHEAD : NONE_AHEAD, __ATOMIC_RELEASE);
    errno = error;
}

static struct copy take_ahead(void)
{
    struct copy copy = {0};
    uint32_t state = ONE_AHEAD;
    if (!__atomic_compare_exchange_n(&ahead.state, &state, BUSY, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return copy;
    copy = ahead.copy;
    __atomic_store_n(&ahead.state, NONE_AHEAD, __ATOMIC_RELEASE);
    return copy;
}

static void note_kind(uint32_t kind, bool on)
{
    struct calls *calls = calls_of(kind);
    if (kind >= 64) return;
    if (on) begin_session();
    for (unsigned i = 0; calls && i < WORDS; i++) {
        set(&calls->bits[i], ~0ull, on);
        if (on) set(&window_calls(window(), kind)->bits[i], ~0ull, true);
    }
    set(&client.wanted, bit(kind), on);
    if (on) set(&window()->kinds, bit(kind), true);
    else end_session();
}

static void note_call(uint32_t domain, uint32_t number, bool on)
{
    if (number >= CALLS) return;
    if (on) begin_session();
    set(&calls_of(domain)->bits[number / 64], bit(number), on);
    if (client.session & 1) set(&window_calls(window(), domain)->bits[number / 64], bit(number), on);
    if (!on) end_session();
}

/* ---- whose a record is ---- */

static uint32_t
    own_thread; /* the background thread, as records name it: what it asks the driver is not the program's */

void tfi_broker_own_thread(void)
{
    own_thread = (uint32_t)(uintptr_t)pthread_self();
}

static bool later(uint32_t id, uint32_t than)
{
    return (int32_t)(id - than) > 0;
}

/* Notes where the sessions' bounds lie among the ids, which grow with each call. */
static void note_id(const void *record)
{
    uint32_t id = tfi_record_correlation(record);
    uint64_t start = tfi_record_start(record);
    if (!id || !start) return;
    if (!client.seen || later(id, client.seen)) client.seen = id;
    for (unsigned i = 0; i < WINDOWS; i++) {
        struct window *w = &client.windows[i];
        if (start < w->start && (!w->before || later(id, w->before))) w->before = id;
        if (w->end && start >= w->end && (!w->after || later(w->after, id))) w->after = id;
    }
}

static void note_ids(uint8_t *buffer, size_t valid)
{
    void *record = NULL;
    bool whole;
    while (tfi_record_next(buffer, valid, &record, &whole))
        if (calls_of(tfi_record_kind(record))) note_id(record);
}

static bool lies_in(const struct window *w, uint64_t start)
{
    return !start || (start >= w->start && (!w->end || start < w->end));
}

/* True if the program would have this record of that session without us. */
static bool belongs_to(struct window *w, const void *record, uint32_t kind)
{
    const struct calls *calls = window_calls(w, kind);
    uint64_t start = tfi_record_start(record);
    uint32_t number, id = tfi_record_correlation(record);
    if (calls) {
        if (own_thread && tfi_record_thread(record) == own_thread) return false;
        number = tfi_record_call(record);
        return lies_in(w, start) && (number >= CALLS || calls->bits[number / 64] & bit(number));
    }
    if (!(w->kinds >> kind & 1)) return false;
    if (!id) return kind == TFI_CUPTI_OVERHEAD ? lies_in(w, start) : !start || start >= w->start;
    if (w->after && !later(w->after, id)) return false;
    return w->before ? later(id, w->before) : !start || start >= w->start;
}

static bool asked_for(const void *record)
{
    uint32_t kind = tfi_record_kind(record);
    if (kind >= 64 || !client.session) return true;
    for (unsigned i = 0; i < WINDOWS; i++)
        if (belongs_to(&client.windows[i], record, kind)) return true;
    return false;
}

bool tfi_broker_wants(uint32_t kind)
{
    return __atomic_load_n(&client.wanted, __ATOMIC_RELAXED) >> kind & 1;
}

/* ---- what buffers have to do with it: called by cupti_buffers.c ---- */

bool tfi_broker_request(uint8_t **buffer, size_t *size, size_t *max_records)
{
    if (!(tfi_broker_session() & 1) || !client.request) return false;
    struct copy first = take_ahead();
    *buffer = first.data;
    *size = first.size;
    if (first.data) *max_records = first.max;
    else client.request(buffer, size, max_records);
    return *buffer && *size;
}

/* Takes out of the program's buffer what it did not ask for; returns how much is left. One that can't be walked through
 * to its end stays as it is. */
static size_t sift(uint8_t *buffer, size_t valid)
{
    void *record = NULL, *next = NULL;
    bool whole = true;
    size_t used = 0;
    note_ids(buffer, valid);
    while (tfi_record_next(buffer, valid, &next, &whole)) continue;
    next = NULL;
    if (!whole || !tfi_record_next(buffer, valid, &next, &whole)) return valid;
    while ((record = next) != NULL) {
        if (!tfi_record_next(buffer, valid, &next, &whole)) next = NULL;
        size_t bytes = (size_t)((next ? (uint8_t *)next : buffer + valid) - (uint8_t *)record);
        if (!asked_for(record)) continue;
        memmove(buffer + used, record, bytes);
        used += bytes;
    }
    return used;
}

void tfi_broker_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    if (!client.complete) return;
    client.complete(context, stream, buffer, size, tfi_cupti->on ? sift(buffer, valid) : valid);
}

static void hand_over(struct copy *to)
{
    if (to->data) client.complete(NULL, 0, to->data, to->size, to->used);
    *to = (struct copy){0};
}

static void add(struct copy *to, const void *record, size_t bytes)
{
    if (to->data && (bytes > to->size - to->used || (to->max && to->count == to->max))) hand_over(to);
    if (!to->data) client.request(&to->data, &to->size, &to->max);
    if (!to->data || bytes > to->size) return;
    memcpy(to->data + to->used, record, bytes);
    to->used += bytes;
    to->count++;
}

void tfi_broker_copy(uint8_t *buffer, size_t valid)
{
    struct copy to = {0};
    void *record = NULL, *next = NULL;
    bool whole = true;
    note_ids(buffer, valid);
    if (!client.session || !client.request || !client.complete) return;
    if (client.session & 1) to = take_ahead();
    if (!tfi_record_next(buffer, valid, &next, &whole)) next = NULL;
    while ((record = next) != NULL) {
        if (!tfi_record_next(buffer, valid, &next, &whole)) next = NULL;
        if (!next && !whole) break;
        uint8_t *end = next ? next : buffer + valid;
        if (!asked_for(record)) continue;
        if (!to.data) to = take_ahead();
        add(&to, record, (size_t)(end - (uint8_t *)record));
    }
    hand_over(&to);
}

void tfi_broker_dropped(uint64_t count)
{
    if (tfi_broker_session() & 1) __atomic_add_fetch(&client.dropped, count, __ATOMIC_RELAXED);
}

bool tfi_broker_clock(uint64_t (**clock)(void))
{
    *clock = client.clock;
    return *clock != NULL;
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
    client.request = request;
    client.complete = complete;
    ask_ahead();
    if (shared(real, tfi_cupti_api.ActivityRegisterCallbacks)) return CUPTI_SUCCESS;
    return real(request, complete);
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
    CUptiResult (*real)(CUpti_ActivityKind) = tfi_real(TFI_HOOK_cuptiActivityEnable);
    if (!real) return MISSING;
    if (elsewhere(real, tfi_cupti_api.ActivityEnable)) return real(kind);
    note_kind((uint32_t)kind, true);
    CUptiResult result = real(kind);
    if (result != CUPTI_SUCCESS) note_kind((uint32_t)kind, false);
    else ask_ahead();
    return result;
}

/* The kind of an API of which we want some calls is disabled all the same, and those calls are enabled again. CUPTI may
 * take a kind of which only single calls were taken back for enabled: the program's next session would have no calls.
 * Calls of other threads in between have no record of CUPTI's; their wrappers' are there. */
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind)
{
    CUptiResult (*real)(CUpti_ActivityKind) = tfi_real(TFI_HOOK_cuptiActivityDisable);
    CUptiResult result = CUPTI_SUCCESS;
    if (!real) return MISSING;
    if (elsewhere(real, tfi_cupti_api.ActivityDisable)) return real(kind);
    bool share = shared(real, tfi_cupti_api.ActivityDisable), calls = calls_of((uint32_t)kind) != NULL;
    if (!share || !ours_wants((uint32_t)kind)) result = real(kind);
    if (share && calls && !ours_wants((uint32_t)kind)) tfi_kinds_enable_calls((uint32_t)kind);
    note_kind((uint32_t)kind, false);
    return result;
}

/* What both functions for single calls do. */
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
    *dropped += __atomic_exchange_n(&client.dropped, 0, __ATOMIC_RELAXED);
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
    if (client.clock == clock && client.clock_taken && shared(other, tfi_cupti_api.GetTimestamp)) return CUPTI_SUCCESS;
    if (tfi_cupti->on) tfi_cupti_clock_foreign(clock);
    client.clock = clock;
    CUptiResult result = real(clock);
    client.clock_taken = result == CUPTI_SUCCESS;
    return result;
}

/* The hardware's own tracing: from then on for the whole process, whoever asked for it. */
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
        if (client.wanted & bit(kind)) cuptiActivityDisable((CUpti_ActivityKind)kind);
    return CUPTI_SUCCESS;
}
