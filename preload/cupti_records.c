/* cupti_records.c - reads CUPTI's records and writes ours.
 *
 * A record is read by the offsets of cupti_layout.def, never beyond the size it has in the library's version; a newer
 * one by that prefix. CUPTI itself walks through a buffer, because it knows the sizes of kinds that we don't; once it
 * may not be called any more the sizes of the table have to do.
 *
 * A buffer is gone through three times, for records come in no order: the runtime's calls, the driver's, then the rest, so
 * that it is known where a record's call was made. A driver call inside a runtime call has the same id and is left out where the runtime's record
 * is known. Only the holder of the token runs here, except where a function says otherwise.
 */
#include <string.h>

#include <cupti.h>

#include "clock.h"
#include "cupti_client.h"
#include "fmt.h"
#include "hooks.h"
#include "strings.h"

#define AT(structure, record, field, offset, type)                                                                     \
    _Static_assert(offsetof(structure, field) == (offset), #record "." #field);                                        \
    _Static_assert(sizeof(((structure *)0)->field) == sizeof(type), #record "." #field);
#define SIZE(kind, since, bytes)
#include "cupti_layout.def"
#undef AT
_Static_assert(sizeof(CUpti_ActivityKernel9) == 208, "kernel records of 12.x");
#if CUPTI_API_VERSION >= 130000
_Static_assert(sizeof(CUpti_ActivityKernel10) == 216, "kernel records of 13.0");
#endif
#if CUPTI_API_VERSION >= 130100
_Static_assert(sizeof(CUpti_ActivityKernel11) == 224, "kernel records of 13.1");
#endif

/* AT_kernel_start and WIDTH_kernel_start ... */
#define AT(structure, record, field, offset, type)                                                                     \
    AT_##record##_##field = (offset), WIDTH_##record##_##field = sizeof(type),
enum {
#include "cupti_layout.def"
};
#undef AT
#undef SIZE

#define AT(structure, record, field, offset, type)
#define SIZE(kind, since, bytes) {kind, bytes, since},
static const struct {
    uint16_t kind, bytes;
    uint32_t since;
} sizes[] = {
#include "cupti_layout.def"
};
#undef AT
#undef SIZE

#define KINDS 64u
static struct {
    uint32_t version;
    uint16_t bytes[KINDS]; /* of the library's version */
} layout;

/* Runtime calls seen lately, by the low part of their ids. */
static uint32_t runtime_calls[1u << 14];
static struct {
    uint32_t timed, timeless; /* records of device work in this buffer */
    bool graphs;              /* nodes of graphs are among the timeless */
} tally;
static bool may_ask;                  /* the driver, about devices: not in a callback of CUPTI */
static uint32_t function_string[512]; /* of a call's function, in this trace; 0 if not asked for yet */

uint32_t tfi_record_bytes(uint32_t kind, uint32_t version)
{
    uint32_t bytes = 0;
    for (size_t i = 0; i < TFI_COUNT(sizes); i++)
        if (sizes[i].kind == kind && sizes[i].since <= version) bytes = sizes[i].bytes;
    return bytes;
}

/* Any thread; the same values are stored whoever does it. */
static uint32_t bytes_of(uint32_t kind)
{
    if (kind >= KINDS) return 0;
    if (TFI_UNLIKELY(layout.version != tfi_cupti_api.version)) {
        for (uint32_t k = 0; k < KINDS; k++) layout.bytes[k] = (uint16_t)tfi_record_bytes(k, tfi_cupti_api.version);
        layout.version = tfi_cupti_api.version;
    }
    return layout.bytes[kind];
}

void tfi_records_restart(void)
{
    memset(runtime_calls, 0, sizeof runtime_calls);
    memset(function_string, 0, sizeof function_string);
}

static uint64_t read_at(const void *record, uint32_t bytes, uint32_t offset, uint32_t width)
{
    uint64_t value = 0;
    if (width > sizeof value) width = sizeof value;
    if (offset + width <= bytes) memcpy(&value, (const char *)record + offset, width);
    return value;
}

#define GET(record, name, field) read_at(record, bytes_, AT_##name##_##field, WIDTH_##name##_##field)
#define GET32(record, name, field) ((uint32_t)GET(record, name, field))

uint32_t tfi_record_kind(const void *record)
{
    uint32_t kind;
    memcpy(&kind, record, sizeof kind);
    return kind;
}

uint32_t tfi_record_call(const void *record)
{
    uint32_t bytes_ = bytes_of(TFI_CUPTI_RUNTIME);
    return GET32(record, api, cbid);
}

uint32_t tfi_record_thread(const void *record)
{
    uint32_t bytes_ = bytes_of(TFI_CUPTI_RUNTIME);
    return GET32(record, api, threadId);
}

uint64_t tfi_record_start(const void *record)
{
    uint32_t kind = tfi_record_kind(record), bytes_ = bytes_of(kind);
    switch (kind) {
    case TFI_CUPTI_KERNEL:
    case TFI_CUPTI_CONCURRENT_KERNEL: return tfi_cupti_clock_ns(GET(record, kernel, start));
    case TFI_CUPTI_MEMCPY:
    case TFI_CUPTI_MEMCPY2: return tfi_cupti_clock_ns(GET(record, memcpy, start));
    case TFI_CUPTI_MEMSET: return tfi_cupti_clock_ns(GET(record, memset, start));
    case TFI_CUPTI_SYNCHRONIZATION: return tfi_cupti_clock_ns(GET(record, sync, start));
    case TFI_CUPTI_OVERHEAD: return tfi_cupti_clock_ns(GET(record, overhead, start));
    case TFI_CUPTI_RUNTIME:
    case TFI_CUPTI_DRIVER: return tfi_cupti_clock_ns(GET(record, api, start));
    default: return 0;
    }
}

uint32_t tfi_record_correlation(const void *record)
{
    uint32_t kind = tfi_record_kind(record), bytes_ = bytes_of(kind);
    switch (kind) {
    case TFI_CUPTI_KERNEL:
    case TFI_CUPTI_CONCURRENT_KERNEL: return GET32(record, kernel, correlationId);
    case TFI_CUPTI_MEMCPY: return GET32(record, memcpy, correlationId);
    case TFI_CUPTI_MEMCPY2: return GET32(record, memcpy2, correlationId);
    case TFI_CUPTI_MEMSET: return GET32(record, memset, correlationId);
    case TFI_CUPTI_SYNCHRONIZATION: return GET32(record, sync, correlationId);
    case TFI_CUPTI_GRAPH_TRACE: return GET32(record, graph, correlationId);
    case TFI_CUPTI_RUNTIME:
    case TFI_CUPTI_DRIVER: return GET32(record, api, correlationId);
    default: return 0;
    }
}

/* ---- walking ---- */

/* By the sizes of our own table. */
static bool next_by_table(uint8_t *buffer, size_t valid, void **record, bool *whole)
{
    uint8_t *at = buffer;
    if (*record) at = (uint8_t *)*record + bytes_of(tfi_record_kind(*record));
    if (at == buffer + valid) return false;
    *whole = false;
    if (at < buffer || (size_t)(buffer + valid - at) < 8) return false;
    uint32_t bytes = bytes_of(tfi_record_kind(at));
    if (!bytes || bytes > (size_t)(buffer + valid - at)) return false;
    *whole = true;
    *record = at;
    return true;
}

bool tfi_record_next(uint8_t *buffer, size_t valid, void **record, bool *whole)
{
    enum { MAX_LIMIT_REACHED = 12 };
    *whole = true;
    if (!buffer || !valid) return false;
    if (__atomic_load_n(&tfi_cupti->quiet, __ATOMIC_ACQUIRE)) return next_by_table(buffer, valid, record, whole);
    void *before = *record;
    int result = tfi_cupti_api.ActivityGetNextRecord(buffer, valid, record);
    if (result != 0) {
        *whole = result == MAX_LIMIT_REACHED;
        return false;
    }
    uint8_t *at = *record;
    uint32_t bytes = at ? bytes_of(tfi_record_kind(at)) : 0;
    *whole = at && at != before && at >= buffer && at + (bytes ? bytes : 8) <= buffer + valid;
    return *whole;
}

uint32_t tfi_record_count(uint8_t *buffer, size_t valid)
{
    void *record = NULL;
    bool whole;
    uint32_t count = 0;
    while (tfi_record_next(buffer, valid, &record, &whole)) count++;
    return count;
}

static bool is_kernel(uint32_t kind)
{
    return kind == TFI_CUPTI_CONCURRENT_KERNEL || kind == TFI_CUPTI_KERNEL;
}

/* In callbacks of CUPTI, without the token. */
void tfi_records_intern(uint8_t *buffer, size_t valid)
{
    void *record = NULL;
    bool whole;
    while (tfi_record_next(buffer, valid, &record, &whole)) {
        uint32_t kind = tfi_record_kind(record), bytes_ = bytes_of(kind);
        if (!is_kernel(kind) || !bytes_) continue;
        const char *name = (const char *)(uintptr_t)GET(record, kernel, name);
        uint64_t number = name ? tfi_string(name, strnlen(name, TFI_STRING_MAX)) : 0;
        memcpy((char *)record + AT_kernel_name, &number, sizeof number);
    }
}

/* ---- calls ---- */

/* The description of a function: the hook's own where there is one, so that both kinds of records name it alike. */
static uint32_t describe(struct tfi_thread *lane, const struct tfi_cupti_call *call)
{
    char text[128];
    bool runtime = call->domain == TFI_CUPTI_RUNTIME;
    enum tfi_hook library = runtime ? TFI_LIBRARY_cudart : TFI_LIBRARY_cuda;
    enum tfi_hook hook = tfi_hook_named(library, call->symbol);
    if (hook != library) return tfi_hook_string(lane, hook);
    size_t n = tfi_fmt(text, sizeof text, "%s\x1f%s\x1f%s\x1f", runtime ? "cudart" : "cuda", call->class, call->symbol);
    return tfi_string(text, n);
}

static uint32_t function_of(struct tfi_thread *lane, int index)
{
    if (!function_string[index]) function_string[index] = describe(lane, &tfi_cupti_calls[index]);
    return function_string[index];
}

static uint32_t *runtime_entry(uint32_t id)
{
    return &runtime_calls[id % TFI_COUNT(runtime_calls)];
}

static void write_call(struct tfi_thread *lane, const void *record, uint32_t domain)
{
    uint32_t bytes_ = bytes_of(domain);
    uint32_t id = GET32(record, api, correlationId), thread = GET32(record, api, threadId);
    int index = tfi_cupti_call_index(domain, GET32(record, api, cbid));
    uint64_t start = tfi_cupti_clock_ns(GET(record, api, start)), end = tfi_cupti_clock_ns(GET(record, api, end));
    if (index < 0) return; /* another client wanted it */
    if (domain == TFI_CUPTI_RUNTIME) *runtime_entry(id) = id;
    else if (id && *runtime_entry(id) == id) return;
    if (!start || !end || end < start) {
        tfi_count_drop(TFI_DROP_DEVICE_TIMELESS, 1);
        return;
    }
    uint64_t time = tfi_cupti_clock_ticks(start);
    if (tfi_select_call(id, thread, time) == TFI_VERDICT_OUTSIDE) {
        tfi_count_drop(TFI_DROP_DEVICE_OUTSIDE, 1);
        return;
    }
    tfi_sums_call(id, thread, time, tfi_cupti_clock_ticks(end));
    uint32_t function = function_of(lane, index);
    struct tfi_rec_correlation *rec = TFI_RESERVE(lane, correlation);
    if (!rec) return;
    rec->correlation = id;
    rec->func = function;
    rec->thread = thread;
    rec->time = time;
    rec->duration = tfi_cupti_clock_ticks(end) - time;
    tfi_commit(lane, sizeof *rec);
}

/* ---- device records ---- */

/* What they have in common. */
struct span {
    uint64_t start, duration;
    uint32_t flags;
};

/* False if the record is not to be written, and counts why. */
static bool span_of(struct tfi_thread *lane, uint64_t start, uint64_t end, uint32_t id, int64_t device,
                    struct span *span)
{
    start = tfi_cupti_clock_ns(start);
    end = tfi_cupti_clock_ns(end);
    bool timeless = !start || !end || end < start;
    tally.timed += device >= 0;
    tally.timeless += device >= 0 && timeless;
    if (timeless) {
        tfi_count_drop(TFI_DROP_DEVICE_TIMELESS, 1);
        return false;
    }
    if ((id ? tfi_select_of(id) : tfi_select_at(tfi_cupti_clock_ticks(start))) == TFI_VERDICT_OUTSIDE) {
        tfi_count_drop(TFI_DROP_DEVICE_OUTSIDE, 1);
        return false;
    }
    span->start = start;
    span->duration = end - start;
    span->flags = device >= 0 ? tfi_cupti_device(lane, (uint32_t)device, may_ask) : 0;
    return true;
}

#define SPAN(record, name, id, device)                                                                                 \
    span_of(lane, GET(record, name, start), GET(record, name, end), id, device, &span)

static void write_kernel(struct tfi_thread *lane, const void *record, uint32_t bytes_, bool interned)
{
    struct span span;
    uint32_t id = GET32(record, kernel, correlationId);
    if (!SPAN(record, kernel, id, GET32(record, kernel, deviceId))) {
        tally.graphs |= GET32(record, kernel, graphId) != 0;
        return;
    }
    uint64_t name = GET(record, kernel, name);
    const char *text = (const char *)(uintptr_t)name;
    if (!interned) name = text ? tfi_string(text, strnlen(text, TFI_STRING_MAX)) : 0;
    struct tfi_rec_kernel *rec = TFI_RESERVE(lane, kernel);
    if (!rec) return;
    rec->name = (uint32_t)name;
    rec->start = span.start;
    rec->duration = span.duration;
    rec->correlation = id;
    rec->device = GET32(record, kernel, deviceId);
    rec->context = GET32(record, kernel, contextId);
    rec->stream = GET32(record, kernel, streamId);
    rec->grid_x = GET32(record, kernel, gridX);
    rec->grid_y = GET32(record, kernel, gridY);
    rec->grid_z = GET32(record, kernel, gridZ);
    rec->block_x = GET32(record, kernel, blockX);
    rec->block_y = GET32(record, kernel, blockY);
    rec->block_z = GET32(record, kernel, blockZ);
    rec->registers = GET32(record, kernel, registersPerThread);
    rec->static_shared = GET32(record, kernel, staticSharedMemory);
    rec->dynamic_shared = GET32(record, kernel, dynamicSharedMemory);
    rec->graph = GET32(record, kernel, graphId);
    rec->node = GET(record, kernel, graphNodeId);
    rec->queued = tfi_cupti_clock_ns(GET(record, kernel, queued));
    rec->submitted = tfi_cupti_clock_ns(GET(record, kernel, submitted));
    rec->flags = span.flags;
    rec->reserved = 0;
    tfi_commit(lane, sizeof *rec);
    tfi_sums_work(id, span.duration);
}

/* A copy between two devices is as any other up to its stream; what follows lies elsewhere. */
#define SAME(field) _Static_assert((int)AT_memcpy_##field == (int)AT_memcpy2_##field, #field);
SAME(copyKind)
SAME(srcKind)
SAME(dstKind)
SAME(bytes)
SAME(start)
SAME(end)
SAME(deviceId)
SAME(contextId)
SAME(streamId)
#undef SAME

static void write_copy(struct tfi_thread *lane, const void *record, uint32_t bytes_, bool between)
{
    struct span span;
    uint32_t id = between ? GET32(record, memcpy2, correlationId) : GET32(record, memcpy, correlationId);
    uint32_t device = GET32(record, memcpy, deviceId);
    if (!SPAN(record, memcpy, id, device)) return;
    uint32_t from = GET32(record, memcpy2, srcDeviceId), to = GET32(record, memcpy2, dstDeviceId);
    struct tfi_rec_copy *rec = TFI_RESERVE(lane, copy);
    if (!rec) return;
    rec->direction = GET32(record, memcpy, copyKind);
    rec->start = span.start;
    rec->duration = span.duration;
    rec->bytes = GET(record, memcpy, bytes);
    rec->correlation = id;
    rec->device = device;
    rec->context = GET32(record, memcpy, contextId);
    rec->stream = GET32(record, memcpy, streamId);
    rec->source_kind = GET32(record, memcpy, srcKind);
    rec->destination_kind = GET32(record, memcpy, dstKind);
    rec->peer = between ? (int32_t)(device == from ? to : from) : -1;
    rec->graph = between ? GET32(record, memcpy2, graphId) : GET32(record, memcpy, graphId);
    rec->node = between ? GET(record, memcpy2, graphNodeId) : GET(record, memcpy, graphNodeId);
    rec->flags = span.flags;
    rec->reserved = 0;
    tfi_commit(lane, sizeof *rec);
    tfi_sums_work(id, span.duration);
}

static void write_set(struct tfi_thread *lane, const void *record, uint32_t bytes_)
{
    struct span span;
    uint32_t id = GET32(record, memset, correlationId);
    if (!SPAN(record, memset, id, GET32(record, memset, deviceId))) return;
    struct tfi_rec_set *rec = TFI_RESERVE(lane, set);
    if (!rec) return;
    rec->value = GET32(record, memset, value);
    rec->start = span.start;
    rec->duration = span.duration;
    rec->bytes = GET(record, memset, bytes);
    rec->correlation = id;
    rec->device = GET32(record, memset, deviceId);
    rec->context = GET32(record, memset, contextId);
    rec->stream = GET32(record, memset, streamId);
    rec->graph = GET32(record, memset, graphId);
    rec->flags = span.flags;
    rec->node = GET(record, memset, graphNodeId);
    tfi_commit(lane, sizeof *rec);
    tfi_sums_work(id, span.duration);
}

static void write_sync(struct tfi_thread *lane, const void *record, uint32_t bytes_)
{
    struct span span;
    uint32_t id = GET32(record, sync, correlationId);
    if (!SPAN(record, sync, id, -1)) return;
    struct tfi_rec_sync *rec = TFI_RESERVE(lane, sync);
    if (!rec) return;
    rec->type = GET32(record, sync, type);
    rec->start = span.start;
    rec->duration = span.duration;
    rec->correlation = id;
    rec->context = GET32(record, sync, contextId);
    rec->stream = GET32(record, sync, streamId);
    rec->event = GET32(record, sync, cudaEventId);
    tfi_commit(lane, sizeof *rec);
}

static void write_overhead(struct tfi_thread *lane, const void *record, uint32_t bytes_)
{
    struct span span;
    if (!SPAN(record, overhead, 0, -1)) return;
    struct tfi_rec_overhead *rec = TFI_RESERVE(lane, overhead);
    if (!rec) return;
    rec->type = GET32(record, overhead, overheadKind);
    rec->start = span.start;
    rec->duration = span.duration;
    rec->object = GET(record, overhead, objectId);
    tfi_commit(lane, sizeof *rec);
}

static void write_graph(struct tfi_thread *lane, const void *record, uint32_t bytes_)
{
    struct span span;
    uint32_t id = GET32(record, graph, correlationId);
    if (!SPAN(record, graph, id, GET32(record, graph, deviceId))) return;
    struct tfi_rec_graph_launch *rec = TFI_RESERVE(lane, graph_launch);
    if (!rec) return;
    rec->graph = GET32(record, graph, graphId);
    rec->start = span.start;
    rec->duration = span.duration;
    rec->correlation = id;
    rec->device = GET32(record, graph, deviceId);
    rec->context = GET32(record, graph, contextId);
    rec->stream = GET32(record, graph, streamId);
    tfi_commit(lane, sizeof *rec);
    tfi_sums_work(id, span.duration);
}

static void write_one(struct tfi_thread *lane, const void *record, uint32_t kind, bool interned)
{
    uint32_t bytes = bytes_of(kind);
    switch (kind) {
    case TFI_CUPTI_KERNEL:
    case TFI_CUPTI_CONCURRENT_KERNEL: write_kernel(lane, record, bytes, interned); break;
    case TFI_CUPTI_MEMCPY: write_copy(lane, record, bytes, false); break;
    case TFI_CUPTI_MEMCPY2: write_copy(lane, record, bytes, true); break;
    case TFI_CUPTI_MEMSET: write_set(lane, record, bytes); break;
    case TFI_CUPTI_SYNCHRONIZATION: write_sync(lane, record, bytes); break;
    case TFI_CUPTI_OVERHEAD: write_overhead(lane, record, bytes); break;
    case TFI_CUPTI_GRAPH_TRACE: write_graph(lane, record, bytes); break;
    default: break; /* a call, or another client wanted it */
    }
}

static bool write_calls(struct tfi_thread *lane, uint8_t *buffer, size_t valid, uint32_t domain)
{
    void *record = NULL;
    bool whole;
    while (tfi_record_next(buffer, valid, &record, &whole))
        if (tfi_record_kind(record) == domain) write_call(lane, record, domain);
    return whole;
}

void tfi_records_convert(struct tfi_thread *lane, uint8_t *buffer, size_t valid, bool interned, bool ask)
{
    void *record = NULL;
    bool whole;
    may_ask = ask;
    memset(&tally, 0, sizeof tally);
    write_calls(lane, buffer, valid, TFI_CUPTI_RUNTIME);
    write_calls(lane, buffer, valid, TFI_CUPTI_DRIVER);
    while (tfi_record_next(buffer, valid, &record, &whole)) write_one(lane, record, tfi_record_kind(record), interned);
    if (!whole) tfi_count_drop(TFI_DROP_DEVICE_UNREAD, 1);
    if (interned) tfi_kinds_judge(tally.timed, tally.timeless, tally.graphs);
}
