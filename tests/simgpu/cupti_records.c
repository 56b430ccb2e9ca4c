/* cupti_records.c - a simulated CUPTI: the layouts of its records, by version.
 *
 * A new layout of a record only appends fields. So each record is written in its newest layout and cut to its size in
 * the simulated version. Fields that the device model does not know are 0. Layouts that the installed headers may lack
 * have their sizes here: the kernel's eleventh came with 13.1, its twelfth with 13.3; 13.4 has a thirteenth, and new
 * ones for copies and sets.
 */
#include <string.h>
#include <unistd.h>

#include "cupti_sim.h"

enum { KERNEL11 = 224, KERNEL12 = 232, KERNEL13 = 248, MEMCPY7 = 112, MEMSET5 = 104, CONTEXT4 = 40, DEVICE6 = 192 };
_Static_assert(sizeof(CUpti_ActivityKernel9) == 208 && sizeof(CUpti_ActivityKernel10) == 216, "the kernel records");
_Static_assert(KERNEL13 <= SIM_RECORD_MAX && DEVICE6 <= SIM_RECORD_MAX, "room");

size_t sim_record_size(CUpti_ActivityKind kind)
{
    unsigned v = sim_config()->version;
    switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return v >= 1304   ? KERNEL13
               : v >= 1303 ? KERNEL12
               : v >= 1301 ? KERNEL11
               : v >= 1300 ? sizeof(CUpti_ActivityKernel10)
                           : sizeof(CUpti_ActivityKernel9);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        return v >= 1304 ? MEMCPY7 : v >= 1208 ? sizeof(CUpti_ActivityMemcpy6) : sizeof(CUpti_ActivityMemcpy5);
    case CUPTI_ACTIVITY_KIND_MEMCPY2: return sizeof(CUpti_ActivityMemcpyPtoP4);
    case CUPTI_ACTIVITY_KIND_MEMSET: return v >= 1304 ? MEMSET5 : sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_DRIVER:
    case CUPTI_ACTIVITY_KIND_RUNTIME: return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
        return v >= 1208 ? sizeof(CUpti_ActivitySynchronization2) : sizeof(CUpti_ActivitySynchronization);
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
        return v >= 1204   ? sizeof(CUpti_ActivityOverhead3)
               : v >= 1203 ? sizeof(CUpti_ActivityOverhead2)
                           : sizeof(CUpti_ActivityOverhead);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
        return v >= 1203 ? sizeof(CUpti_ActivityGraphTrace2) : sizeof(CUpti_ActivityGraphTrace);
    case CUPTI_ACTIVITY_KIND_DEVICE: return v >= 1302 ? DEVICE6 : sizeof(CUpti_ActivityDevice5);
    case CUPTI_ACTIVITY_KIND_CONTEXT:
        return v >= 1301   ? CONTEXT4
               : v >= 1205 ? sizeof(CUpti_ActivityContext3)
               : v >= 1204 ? sizeof(CUpti_ActivityContext2)
                           : sizeof(CUpti_ActivityContext);
    default: return 0;
    }
}

/* Returns the kind of record for the work. For a kernel, sim_kernel_kind() tells which of its two kinds is enabled. */
CUpti_ActivityKind sim_work_kind(const struct simgpu_activity *w)
{
    switch (w->kind) {
    case SIMGPU_KERNEL: return CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    case SIMGPU_MEMSET: return CUPTI_ACTIVITY_KIND_MEMSET;
    case SIMGPU_SYNC: return CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
    case SIMGPU_MEMCPY:
        return w->source >= SIMGPU_DEVICE && w->target >= SIMGPU_DEVICE && w->source_device != w->target_device
                   ? CUPTI_ACTIVITY_KIND_MEMCPY2
                   : CUPTI_ACTIVITY_KIND_MEMCPY;
    default: return CUPTI_ACTIVITY_KIND_INVALID;
    }
}

static uint8_t copy_kind(const struct simgpu_activity *w)
{
    /* host, device, array: from, then to */
    static const uint8_t kinds[3][3] = {
        {CUPTI_ACTIVITY_MEMCPY_KIND_HTOH, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, CUPTI_ACTIVITY_MEMCPY_KIND_HTOA},
        {CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, CUPTI_ACTIVITY_MEMCPY_KIND_DTOA},
        {CUPTI_ACTIVITY_MEMCPY_KIND_ATOH, CUPTI_ACTIVITY_MEMCPY_KIND_ATOD, CUPTI_ACTIVITY_MEMCPY_KIND_ATOA}};
    static const uint8_t side[] = {0, 0, 1, 2, 1};
    return kinds[side[w->source]][side[w->target]];
}

static uint8_t memory_kind(uint32_t memory)
{
    static const uint8_t kinds[] = {CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE, CUPTI_ACTIVITY_MEMORY_KIND_PINNED,
                                    CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, CUPTI_ACTIVITY_MEMORY_KIND_ARRAY,
                                    CUPTI_ACTIVITY_MEMORY_KIND_MANAGED};
    return kinds[memory];
}

struct times {
    uint64_t start, end, submitted;
};

static void write_kernel(const struct sim_item *item, const struct times *t, const char *name,
                         CUpti_ActivityKernel10 *k)
{
    const struct simgpu_activity *w = &item->work;
    k->kind = item->kind;
    k->registersPerThread = (uint16_t)w->registers;
    k->start = t->start;
    k->end = k->completed = t->end;
    k->queued = k->submitted = t->submitted;
    k->deviceId = w->device;
    k->contextId = w->context;
    k->streamId = w->stream;
    k->gridX = (int32_t)w->grid[0];
    k->gridY = (int32_t)w->grid[1];
    k->gridZ = (int32_t)w->grid[2];
    k->blockX = (int32_t)w->block[0];
    k->blockY = (int32_t)w->block[1];
    k->blockZ = (int32_t)w->block[2];
    k->staticSharedMemory = (int32_t)w->shared_static;
    k->dynamicSharedMemory = (int32_t)w->shared_dynamic;
    k->sharedMemoryExecuted = w->shared_static + w->shared_dynamic;
    k->correlationId = w->correlation;
    k->gridId = (int64_t)w->sequence;
    k->name = name;
    k->graphNodeId = w->node;
    k->graphId = w->graph;
}

static void write_memcpy(const struct sim_item *item, const struct times *t, CUpti_ActivityMemcpy6 *m)
{
    const struct simgpu_activity *w = &item->work;
    m->kind = item->kind;
    m->copyKind = copy_kind(w);
    m->srcKind = memory_kind(w->source);
    m->dstKind = memory_kind(w->target);
    m->flags = w->async ? CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC : 0;
    m->bytes = w->bytes;
    m->start = t->start;
    m->end = t->end;
    m->deviceId = w->device;
    m->contextId = w->context;
    m->streamId = w->stream;
    m->correlationId = w->correlation;
    m->graphNodeId = w->node;
    m->graphId = w->graph;
    m->copyCount = 1;
}

static void write_peer(const struct sim_item *item, const struct times *t, CUpti_ActivityMemcpyPtoP4 *m)
{
    const struct simgpu_activity *w = &item->work;
    m->kind = item->kind;
    m->copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
    m->srcKind = memory_kind(w->source);
    m->dstKind = memory_kind(w->target);
    m->flags = w->async ? CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC : 0;
    m->bytes = w->bytes;
    m->start = t->start;
    m->end = t->end;
    m->deviceId = w->device;
    m->contextId = m->srcContextId = m->dstContextId = w->context;
    m->streamId = w->stream;
    m->srcDeviceId = w->source_device;
    m->dstDeviceId = w->target_device;
    m->correlationId = w->correlation;
    m->graphNodeId = w->node;
    m->graphId = w->graph;
}

static void write_memset(const struct sim_item *item, const struct times *t, CUpti_ActivityMemset4 *m)
{
    const struct simgpu_activity *w = &item->work;
    m->kind = item->kind;
    m->value = w->value;
    m->bytes = w->bytes;
    m->start = t->start;
    m->end = t->end;
    m->deviceId = w->device;
    m->contextId = w->context;
    m->streamId = w->stream;
    m->correlationId = w->correlation;
    m->flags = w->async ? CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC : 0;
    m->memoryKind = memory_kind(w->target);
    m->graphNodeId = w->node;
    m->graphId = w->graph;
}

static void write_sync(const struct sim_item *item, const struct times *t, CUpti_ActivitySynchronization2 *s)
{
    const struct simgpu_activity *w = &item->work;
    s->kind = item->kind;
    s->type = *w->name == 'c'   ? CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE
              : *w->name == 's' ? CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE
              : *w->name == 'e' ? CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE
                                : CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT;
    s->start = t->start;
    s->end = t->end;
    s->correlationId = w->correlation;
    s->contextId = w->context;
    s->streamId = w->stream ? w->stream : CUPTI_SYNCHRONIZATION_INVALID_VALUE;
    s->cudaEventId = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
}

static void write_graph(const struct sim_item *item, const struct times *t, CUpti_ActivityGraphTrace2 *g)
{
    const struct simgpu_activity *w = &item->work;
    g->kind = item->kind;
    g->correlationId = w->correlation;
    g->start = t->start;
    g->end = t->end;
    g->deviceId = g->endDeviceId = w->device;
    g->contextId = g->endContextId = w->context;
    g->streamId = w->stream;
    g->graphId = w->graph;
}

static void write_device(const struct sim_item *item, CUpti_ActivityDevice5 *d)
{
    d->kind = item->kind;
    d->id = item->device;
    d->numThreadsPerWarp = 32;
    d->name = "simulated GPU";
    d->isCudaVisible = 1;
    memcpy(d->uuid.bytes, "simulated-gpu-", 14);
    d->uuid.bytes[15] = (char)item->device;
}

static void write_context(const struct sim_item *item, CUpti_ActivityContext3 *c)
{
    c->kind = item->kind;
    c->contextId = item->work.context;
    c->deviceId = item->work.device;
    c->computeApiKind = CUPTI_ACTIVITY_COMPUTE_API_CUDA;
}

static void write_work(const struct sim_item *item, const char *name, const struct times *t, void *to)
{
    switch (item->kind) {
    case CUPTI_ACTIVITY_KIND_MEMCPY: write_memcpy(item, t, to); break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2: write_peer(item, t, to); break;
    case CUPTI_ACTIVITY_KIND_MEMSET: write_memset(item, t, to); break;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: write_sync(item, t, to); break;
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: write_graph(item, t, to); break;
    default: write_kernel(item, t, name, to);
    }
}

/* A time of another clock. */
static uint64_t early(uint64_t time)
{
    const uint64_t by = 100000000000000;
    return time > by ? time - by : time / 2;
}

/* Writes a record to `to`, which has room for SIM_RECORD_MAX bytes; returns the size of the record. */
size_t sim_record_write(const struct sim_item *item, const char *name, enum sim_damage damage, bool latency, void *to)
{
    memset(to, 0, SIM_RECORD_MAX);
    switch (item->type) {
    case ITEM_API: memcpy(to, &item->api, sizeof item->api); break;
    case ITEM_EXTERNAL: memcpy(to, &item->external, sizeof item->external); break;
    case ITEM_OVERHEAD: memcpy(to, &item->overhead, sizeof item->overhead); break;
    case ITEM_DEVICE: write_device(item, to); break;
    case ITEM_CONTEXT: write_context(item, to); break;
    case ITEM_WORK:
    case ITEM_GRAPH: {
        const struct simgpu_activity *w = &item->work;
        struct times t = {0};
        bool zeroed = damage == SIM_ZEROED;
        if (!zeroed && (!item->cut || w->start <= item->cut)) t.start = sim_stamp_device(w->device, w->start);
        if (!zeroed && !item->cut) t.end = sim_stamp_device(w->device, w->end);
        if (damage == SIM_REVERSED) t.start = t.end + 1000;
        if (damage == SIM_EARLY) t = (struct times){.start = early(t.start), .end = early(t.end)};
        if (latency) t.submitted = sim_stamp_device(w->device, w->submitted);
        write_work(item, name, &t, to);
    }
    }
    return sim_record_size(item->kind);
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record)
{
    BEGIN;
    if (!buffer || !record) return CUPTI_ERROR_INVALID_PARAMETER;
    uint8_t *at = buffer;
    if (*record) {
        size_t size = sim_record_size((*record)->kind);
        if (!size) return CUPTI_ERROR_INVALID_KIND;
        at = (uint8_t *)*record + size;
    }
    if (at < buffer || at >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    CUpti_Activity *next = (CUpti_Activity *)at;
    size_t size = sim_record_size(next->kind);
    if (!size || size > (size_t)(buffer + valid - at)) return CUPTI_ERROR_INVALID_KIND;
    *record = next;
    return CUPTI_SUCCESS;
}
