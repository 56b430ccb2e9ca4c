/* other_clients.c - decides which client a record of CUPTI belongs to: this library, or the program's own profiler.
 *
 * While the program has kinds enabled (a window), buffers come from its callback. Our records are read from them
 * before they are handed back to it. A buffer of ours that was open during a window is copied into the program's
 * buffers. CUPTI records the wishes of both sides. Before a buffer goes to the program, the records that it would not
 * have without us are removed: a call has to lie in one of its windows; device work belongs to the window of its
 * call, however late it runs; an external id belongs to its call. A client that asked for kernels one at a time gets
 * ours, which run as they would without it, as records of its kind.
 *
 * All of it is atomic words: no lock is held anywhere.
 */
#include "cupti/other_clients.h"

#include <pthread.h>
#include <string.h>

#include "base/sys.h"

struct tfi_other_client tfi_other;
struct tfi_other_ahead tfi_other_ahead;

uint32_t tfi_other_edges(void)
{
    return __atomic_load_n(&tfi_other.edges, __ATOMIC_ACQUIRE);
}

static struct tfi_other_copy take_ahead(void)
{
    struct tfi_other_copy copy = {0};
    uint32_t state = TFI_ONE_AHEAD;
    if (!__atomic_compare_exchange_n(&tfi_other_ahead.state, &state, TFI_BUSY, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return copy;
    copy = tfi_other_ahead.copy;
    __atomic_store_n(&tfi_other_ahead.state, TFI_NONE_AHEAD, __ATOMIC_RELEASE);
    return copy;
}

/* ---- the owner of a record ---- */

/* The calling thread's numbers in records: its calls of the driver and its flushes are not the program's. */
static uint32_t own_thread, own_tid;

void tfi_other_own_thread(void)
{
    own_thread = (uint32_t)(uintptr_t)pthread_self();
    own_tid = (uint32_t)tfi_gettid();
}

static bool is_own(uint32_t thread)
{
    return own_thread && (thread == own_thread || thread == own_tid);
}

static bool later(uint32_t id, uint32_t than)
{
    return (int32_t)(id - than) > 0;
}

/* Recent calls, at the index id % size: id << 1 | 1 if the program asked for the call's record. */
static uint64_t recent[1u << 12];

static bool belongs_to(struct tfi_other_window *w, const void *record, uint32_t kind);

static bool in_a_window(const void *record, uint32_t kind)
{
    for (unsigned i = 0; i < TFI_OTHER_WINDOWS; i++)
        if (belongs_to(&tfi_other.windows[i], record, kind)) return true;
    return false;
}

/* True if the program has the record of the call with an id, or can have it: both records come in any order. A runtime
 * call and the driver call inside it have one id. */
static bool has_call(uint32_t id)
{
    uint64_t entry = __atomic_load_n(&recent[id % TFI_COUNT(recent)], __ATOMIC_RELAXED);
    return entry >> 1 != id || entry & 1;
}

static void note_call_of(const void *record, uint32_t id)
{
    uint64_t asked = in_a_window(record, tfi_record_kind(record)), *entry = &recent[id % TFI_COUNT(recent)];
    if (*entry >> 1 == id) asked |= *entry & 1;
    __atomic_store_n(entry, (uint64_t)id << 1 | asked, __ATOMIC_RELAXED);
}

/* Notes the bounds of the windows among the ids, which grow with each call. */
static void note_id(const void *record)
{
    uint32_t id = tfi_record_correlation(record);
    uint64_t start = tfi_record_start(record);
    if (!id || !start) return;
    note_call_of(record, id);
    if (!tfi_other.seen || later(id, tfi_other.seen)) tfi_other.seen = id;
    for (unsigned i = 0; i < TFI_OTHER_WINDOWS; i++) {
        struct tfi_other_window *w = &tfi_other.windows[i];
        if (start < w->start && (!w->before || later(id, w->before))) w->before = id;
        if (w->end && start >= w->end && (!w->after || later(w->after, id))) w->after = id;
    }
}

static void note_ids(uint8_t *buffer, size_t valid)
{
    void *record = NULL;
    bool whole;
    while (tfi_record_next(buffer, valid, &record, &whole))
        if (tfi_other_calls(tfi_record_kind(record))) note_id(record);
}

static bool lies_in(const struct tfi_other_window *w, uint64_t start)
{
    return !start || (start >= w->start && (!w->end || start < w->end));
}

/* True if the program would have this record in that window without us. */
static bool belongs_to(struct tfi_other_window *w, const void *record, uint32_t kind)
{
    const struct tfi_other_calls *calls = tfi_other_window_calls(w, kind);
    uint64_t start = tfi_record_start(record);
    uint32_t number, id = tfi_record_correlation(record);
    if (calls) {
        if (is_own(tfi_record_thread(record))) return false;
        number = tfi_record_call(record);
        return lies_in(w, start) && (number >= TFI_OTHER_CALLS || calls->bits[number / 64] & tfi_other_bit(number));
    }
    if (!(w->kinds >> kind & 1)) return false;
    if (kind == TFI_CUPTI_EXTERNAL_CORRELATION && !has_call(id)) return false;
    if (kind == TFI_CUPTI_OVERHEAD) {
        if (is_own(tfi_record_overhead_thread(record))) return false;
        return !start || (start >= w->overhead_start && (!w->overhead_end || start < w->overhead_end));
    }
    if (!id) return !start || start >= w->start;
    if (w->after && !later(w->after, id)) return false;
    return w->before ? later(id, w->before) : !start || start >= w->start;
}

/* The kind as which the program would have this record without us; 0 if it would not. */
static uint32_t kind_for_program(const void *record)
{
    uint32_t kind = tfi_record_kind(record);
    if (kind >= 64 || !tfi_other.edges || in_a_window(record, kind)) return kind;
    bool kernel = kind == TFI_CUPTI_CONCURRENT_KERNEL && in_a_window(record, TFI_CUPTI_KERNEL);
    return kernel ? TFI_CUPTI_KERNEL : 0;
}

bool tfi_other_wants(uint32_t kind)
{
    return __atomic_load_n(&tfi_other.wanted, __ATOMIC_RELAXED) >> kind & 1;
}

/* ---- buffers: called by buffers.c ---- */

bool tfi_other_request(uint8_t **buffer, size_t *size, size_t *max_records)
{
    if (!(tfi_other_edges() & 1) || !tfi_other.request) return false;
    struct tfi_other_copy first = take_ahead();
    *buffer = first.data;
    *size = first.size;
    if (first.data) *max_records = first.max;
    else tfi_other.request(buffer, size, max_records);
    return *buffer && *size;
}

/* Removes the records that the program did not ask for from its buffer; returns the remaining size. A buffer that
 * cannot be walked through to its end stays as it is. */
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
        uint32_t kind = kind_for_program(record);
        if (!kind) continue;
        memmove(buffer + used, record, bytes);
        memcpy(buffer + used, &kind, sizeof kind);
        used += bytes;
    }
    return used;
}

void tfi_other_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    if (!tfi_other.complete) return;
    tfi_other.complete(context, stream, buffer, size, tfi_cupti->on ? sift(buffer, valid) : valid);
}

static void hand_over(struct tfi_other_copy *to)
{
    if (to->data) tfi_other.complete(NULL, 0, to->data, to->size, to->used);
    *to = (struct tfi_other_copy){0};
}

static void add_to_copy(struct tfi_other_copy *to, const void *record, uint32_t kind, size_t bytes)
{
    if (to->data && (bytes > to->size - to->used || (to->max && to->count == to->max))) hand_over(to);
    if (!to->data) tfi_other.request(&to->data, &to->size, &to->max);
    if (!to->data || bytes > to->size) return;
    memcpy(to->data + to->used, record, bytes);
    memcpy(to->data + to->used, &kind, sizeof kind);
    to->used += bytes;
    to->count++;
}

void tfi_other_copy_records(uint8_t *buffer, size_t valid)
{
    struct tfi_other_copy to = {0};
    void *record = NULL, *next = NULL;
    bool whole = true;
    note_ids(buffer, valid);
    if (!tfi_other.edges || !tfi_other.request || !tfi_other.complete) return;
    if (tfi_other.edges & 1) to = take_ahead();
    if (!tfi_record_next(buffer, valid, &next, &whole)) next = NULL;
    while ((record = next) != NULL) {
        if (!tfi_record_next(buffer, valid, &next, &whole)) next = NULL;
        if (!next && !whole) break;
        uint8_t *end = next ? next : buffer + valid;
        uint32_t kind = kind_for_program(record);
        if (!kind) continue;
        if (!to.data) to = take_ahead();
        add_to_copy(&to, record, kind, (size_t)(end - (uint8_t *)record));
    }
    hand_over(&to);
}

void tfi_other_dropped(uint64_t count)
{
    if (tfi_other_edges() & 1) __atomic_add_fetch(&tfi_other.dropped, count, __ATOMIC_RELAXED);
}

bool tfi_other_clock(uint64_t (**clock)(void))
{
    *clock = tfi_other.clock;
    return *clock != NULL;
}
