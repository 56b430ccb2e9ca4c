/* records.c - converts CUPTI's records into ours.
 *
 * Records come in no order, so each buffer is read three times: the runtime's calls, the driver's, then the rest. The
 * call of a record and its place are thus known before the record. A driver call inside a runtime call has the same
 * id and is left out if the runtime's record is known. Only the holder of the token runs here, unless a function says
 * otherwise.
 */
#include "base/fmt.h"
#include "base/process.h"
#include "base/sys.h"
#include "cupti/layout.h"
#include "hooks/hooks.h"
#include "record/clock.h"
#include "record/strings.h"

/* Recent calls, at the index id % size. A driver call with the id of a runtime call is part of that call and is not
 * written. They are mapped when the first comes; without memory the last call is the only one that is known. */
#define RECENT_CALLS (1u << 14)
static struct recent {
    uint64_t start;
    uint32_t id;
    bool runtime;
} * recent_calls, last_call;
static struct {
    uint32_t timed, timeless; /* records of device work in this buffer */
    bool graphs;              /* nodes of graphs are among the timeless */
} tally;
static bool may_ask;                  /* the driver may be asked about devices: not in a callback of CUPTI */
static uint32_t function_string[512]; /* string of a call's function in this trace; 0 if not looked up yet */

void tfi_records_restart(void)
{
    if (recent_calls) memset(recent_calls, 0, RECENT_CALLS * sizeof *recent_calls);
    last_call = (struct recent){0};
    tfi_left_out_restart();
    memset(function_string, 0, sizeof function_string);
}

/* ---- calls ---- */

/* Returns the description of a function: the hook's own if there is one, so that both kinds of records name it
 * alike. */
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

static struct recent *recent_call(uint32_t id)
{
    bool mapped = recent_calls || tfi_map_once(&recent_calls, RECENT_CALLS * sizeof *recent_calls);
    return mapped ? &recent_calls[id % RECENT_CALLS] : &last_call;
}

/* The start of a call, or of one before it: ids grow with time, and the record of a call may come after its work's. */
static uint64_t not_before(uint32_t id)
{
    for (uint32_t i = id; i && id - i < 64; i--)
        if (recent_call(i)->id == i) return recent_call(i)->start;
    return 0;
}

/* True if a record has the times of something that happened. Work cannot start before the call that launched it. */
static bool has_times(uint64_t start, uint64_t end, uint32_t id)
{
    bool early = start + TFI_CUPTI_FAR < not_before(id);
    if (start && end >= start && !early && tfi_cupti_clock_holds(start, end)) return true;
    tfi_count_drop(TFI_DROP_DEVICE_TIMELESS, 1);
    return false;
}

static void write_call(struct tfi_thread *lane, const void *record, uint32_t domain)
{
    uint32_t bytes_ = tfi_record_size(domain);
    uint32_t id = GET32(record, api, correlationId), thread = tfi_sums_thread(GET32(record, api, threadId));
    int index = tfi_cupti_call_index(domain, GET32(record, api, cbid));
    uint64_t start = tfi_cupti_clock_ns(GET(record, api, start)), end = tfi_cupti_clock_ns(GET(record, api, end));
    if (index < 0) return; /* requested by another client */
    struct recent *recent = recent_call(id);
    if (domain == TFI_CUPTI_DRIVER && id && recent->id == id && recent->runtime) return;
    *recent = (struct recent){start, id, domain == TFI_CUPTI_RUNTIME};
    if (!has_times(start, end, 0)) return;
    uint64_t time = tfi_cupti_clock_ticks(start);
    tfi_sums_call(id, thread, time, tfi_cupti_clock_ticks(end));
    if (tfi_select_call(id, thread, time) == TFI_VERDICT_OUTSIDE) {
        tfi_count_drop(TFI_DROP_DEVICE_SUMMED, 1);
        return;
    }
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

/* Fields that all device records have. */
struct span {
    uint64_t start, duration;
    uint32_t flags;
};

/* Fills the span of a record; false, with the cause counted, if the record is not to be written. `work`: the place of
 * device work, which is added to the sums of its stage if it is left out; NULL for a record of anything else. */
static bool span_of(struct tfi_thread *lane, uint64_t start, uint64_t end, uint32_t id, struct tfi_left_out *work,
                    struct span *span)
{
    start = tfi_cupti_clock_ns(start);
    end = tfi_cupti_clock_ns(end);
    tally.timed += work != NULL;
    tally.timeless += work && (!start || end < start);
    if (!has_times(start, end, id)) return false;
    span->start = start;
    span->duration = end - start;
    span->flags = work ? tfi_cupti_device(lane, work->device, may_ask) : 0;
    if ((id ? tfi_select_of(id) : tfi_select_at(tfi_cupti_clock_ticks(start))) != TFI_VERDICT_OUTSIDE) return true;
    if (!work) {
        tfi_count_drop(TFI_DROP_DEVICE_SUMMED, 1);
        return false;
    }
    work->flags = span->flags;
    work->start = span->start;
    work->duration = span->duration;
    tfi_left_out_add(lane, id, work);
    return false;
}

#define SPAN_AT(record, name, id, work) span_of(lane, GET(record, name, start), GET(record, name, end), id, work, &span)
#define SPAN(record, name, id) SPAN_AT(record, name, id, NULL)
#define WORK_SPAN(record, name, id)                                                                                    \
    SPAN_AT(record, name, id,                                                                                          \
            (&(struct tfi_left_out){.device = GET32(record, name, deviceId),                                           \
                                    .context = GET32(record, name, contextId),                                         \
                                    .stream = GET32(record, name, streamId)}))

static void write_kernel(struct tfi_thread *lane, const void *record, uint32_t bytes_, bool interned)
{
    struct span span;
    uint32_t id = GET32(record, kernel, correlationId);
    if (!WORK_SPAN(record, kernel, id)) {
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

/* The record of a copy between two devices equals that of other copies up to its stream; the later fields lie
 * elsewhere. */
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
    if (!WORK_SPAN(record, memcpy, id)) return;
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
    if (!WORK_SPAN(record, memset, id)) return;
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
    if (!SPAN(record, sync, id)) return;
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
    if (!SPAN(record, overhead, 0)) return;
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
    if (!WORK_SPAN(record, graph, id)) return;
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
    uint32_t bytes = tfi_record_size(kind);
    switch (kind) {
    case TFI_CUPTI_KERNEL:
    case TFI_CUPTI_CONCURRENT_KERNEL: write_kernel(lane, record, bytes, interned); break;
    case TFI_CUPTI_MEMCPY: write_copy(lane, record, bytes, false); break;
    case TFI_CUPTI_MEMCPY2: write_copy(lane, record, bytes, true); break;
    case TFI_CUPTI_MEMSET: write_set(lane, record, bytes); break;
    case TFI_CUPTI_SYNCHRONIZATION: write_sync(lane, record, bytes); break;
    case TFI_CUPTI_OVERHEAD: write_overhead(lane, record, bytes); break;
    case TFI_CUPTI_GRAPH_TRACE: write_graph(lane, record, bytes); break;
    default: break; /* a call, or a kind that only another client requested */
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
    tfi_left_out_write(lane);
    if (!whole) tfi_count_drop(TFI_DROP_DEVICE_UNREAD, 1);
    if (interned) tfi_kinds_judge(tally.timed, tally.timeless, tally.graphs);
}
