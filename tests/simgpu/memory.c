/* memory.c - memory of the devices and of the host, all of it host memory; queries about addresses.
 *
 * Every allocation is a mapping of its own. One sorted array lists them. A device holds as many bytes as SIMGPU_MEMORY
 * says. More is CUDA_ERROR_OUT_OF_MEMORY, though untouched pages cost nothing.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "model.h"

static struct region *regions;
static size_t nr_regions;
static uint64_t buffer_ids;

/* Returns the index of the first region that ends after the address. */
static size_t position(const char *address)
{
    size_t low = 0, high = nr_regions;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (regions[mid].base + regions[mid].size <= address) low = mid + 1;
        else high = mid;
    }
    return low;
}

/* Needs the lock. NULL if the address lies in no known region. */
struct region *sim_region(const void *address)
{
    size_t i = position(address);
    return i < nr_regions && regions[i].base <= (const char *)address ? &regions[i] : NULL;
}

struct region *sim_region_add(const struct region *region)
{
    size_t i = position(region->base);
    regions = sim_grow(regions, nr_regions, sizeof *regions);
    memmove(regions + i + 1, regions + i, (nr_regions - i) * sizeof *regions);
    nr_regions++;
    regions[i] = *region;
    regions[i].id = ++buffer_ids;
    return &regions[i];
}

void sim_region_drop(struct region *r)
{
    memmove(r, r + 1, (size_t)(regions + --nr_regions - r) * sizeof *r);
}

static bool is_device(enum simgpu_memory memory)
{
    return memory != SIMGPU_PINNED && memory != SIMGPU_PAGEABLE;
}

/* The log states the bytes that were asked for; `used` is what the device then has in use, in whole pages. */
void sim_log_memory(const char *what, const char *kind, int device, uint64_t address, size_t size)
{
    if (sim_logging())
        sim_log("{\"t\":\"memory\",\"what\":\"%s\",\"kind\":\"%s\",\"device\":%d,\"address\":%llu,\"bytes\":%llu,"
                "\"used\":%llu,\"correlation\":%u}",
                what, kind, device, (unsigned long long)address, (unsigned long long)size,
                device < 0 ? 0 : (unsigned long long)sim_devices[device].used, sim_correlation());
}

static void log_region(const char *what, const struct region *r)
{
    static const char *const kinds[] = {
        [SIMGPU_PINNED] = "pinned", [SIMGPU_DEVICE] = "device", [SIMGPU_ARRAY] = "array", [SIMGPU_MANAGED] = "managed"};
    const char *kind = r->of_graph ? "graph" : r->registered ? "registered" : r->pool ? "pool" : kinds[r->memory];
    sim_log_memory(what, kind, is_device(r->memory) ? r->device : -1, (uintptr_t)r->base, r->size);
}

/* Needs the lock. */
CUresult sim_alloc(struct CUctx_st *ctx, int device, size_t size, enum simgpu_memory memory, CUmemoryPool pool,
                   void **out)
{
    struct device *d = &sim_devices[device];
    size_t mapped = (size + 4095) & ~(size_t)4095;
    NEED_VALUE(out && size);
    if (is_device(memory)) {
        NEED(mapped >= size && mapped <= d->total - d->used, CUDA_ERROR_OUT_OF_MEMORY);
        d->used += mapped;
    }
    void *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    NEED(base != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    struct region r = {
        .base = base, .size = size, .mapped = mapped, .memory = memory, .device = device, .ctx = ctx, .pool = pool};
    log_region("alloc", sim_region_add(&r));
    if (pool) {
        pool->used += mapped;
        if (pool->used > pool->used_high) pool->used_high = pool->used;
    }
    *out = base;
    return CUDA_SUCCESS;
}

CUresult sim_graph_alloc(struct CUctx_st *ctx, int device, size_t size, void **out)
{
    size_t mapped = (size + 4095) & ~(size_t)4095;
    NEED_VALUE(out && size);
    void *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    NEED(base != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    struct region r = {.base = base,
                       .size = size,
                       .mapped = mapped,
                       .memory = SIMGPU_DEVICE,
                       .device = device,
                       .ctx = ctx,
                       .of_graph = true,
                       .is_unused = true};
    sim_region_add(&r);
    *out = base;
    return CUDA_SUCCESS;
}
void sim_graph_use(void *base)
{
    struct region *r = sim_region(base);
    if (!r || !r->of_graph || !r->is_unused) return;
    r->is_unused = false;
    sim_devices[r->device].used += r->mapped;
    log_region("alloc", r);
}
void sim_graph_unuse(void *base)
{
    struct region *r = sim_region(base);
    if (!r || !r->of_graph || r->is_unused) return;
    r->is_unused = true;
    sim_devices[r->device].used -= r->mapped;
    log_region("free", r);
}

/* The addresses of a graph's node stay its own. */
static void release(struct region *r)
{
    if (r->of_graph) {
        sim_graph_unuse(r->base);
        return;
    }
    if (!r->registered) munmap(r->base, r->mapped);
    if (is_device(r->memory)) sim_devices[r->device].used -= r->mapped;
    if (r->pool) r->pool->used -= r->mapped;
    log_region("free", r);
    sim_region_drop(r);
}

/* Needs the lock. The address must be an allocation's, in memory of that side. */
CUresult sim_free(void *base, enum simgpu_memory memory)
{
    struct region *r = sim_region(base);
    NEED_VALUE(r && r->base == base && !r->registered && !r->physical && is_device(r->memory) == is_device(memory));
    release(r);
    return CUDA_SUCCESS;
}

/* Needs the lock. */
void sim_memory_of(struct CUctx_st *ctx)
{
    for (size_t i = nr_regions; i-- > 0;)
        if (regions[i].ctx == ctx && !regions[i].pool && !regions[i].physical) release(&regions[i]);
}

/* ---- the functions ---- */

static uint64_t held[MAX_DEVICES];

PUBLIC void simgpu_hold(unsigned device, uint64_t bytes)
{
    if (device < MAX_DEVICES) __atomic_add_fetch(&held[device], bytes, __ATOMIC_RELAXED);
}

API(cuMemGetInfo_v2, (size_t * avail, size_t *total), (avail, total))
{
    LOCKED;
    struct CUctx_st *ctx;
    NEED_VALUE(avail && total);
    TRY(sim_ctx(&ctx));
    *total = sim_devices[ctx->device].total;
    uint64_t taken = sim_devices[ctx->device].used + __atomic_load_n(&held[ctx->device], __ATOMIC_RELAXED);
    *avail = taken < *total ? *total - taken : 0;
    return CUDA_SUCCESS;
}

static CUresult allocate(void **out, size_t size, enum simgpu_memory memory, unsigned flags)
{
    LOCKED;
    struct CUctx_st *ctx;
    TRY(sim_ctx(&ctx));
    TRY(sim_unsafe());
    TRY(sim_alloc(ctx, ctx->device, size, memory, NULL, out));
    sim_region(*out)->flags = flags;
    return CUDA_SUCCESS;
}

API(cuMemAlloc_v2, (CUdeviceptr_v2 * dptr, size_t bytesize), (dptr, bytesize))
{
    return allocate((void **)dptr, bytesize, SIMGPU_DEVICE, 0);
}
API(cuMemAllocPitch_v2, (CUdeviceptr_v2 * dptr, size_t *pitch, size_t width, size_t height, unsigned element),
    (dptr, pitch, width, height, element))
{
    NEED_VALUE(pitch && (element == 4 || element == 8 || element == 16));
    *pitch = (width + 511) & ~(size_t)511;
    return allocate((void **)dptr, *pitch * height, SIMGPU_DEVICE, 0);
}
API(cuMemAllocManaged, (CUdeviceptr_v2 * dptr, size_t bytesize, unsigned flags), (dptr, bytesize, flags))
{
    NEED_VALUE(flags & (CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST));
    return allocate((void **)dptr, bytesize, SIMGPU_MANAGED, flags);
}
API(cuMemAllocHost_v2, (void **pp, size_t bytesize), (pp, bytesize))
{
    return allocate(pp, bytesize, SIMGPU_PINNED, 0);
}
API(cuMemHostAlloc, (void **pp, size_t bytesize, unsigned flags), (pp, bytesize, flags))
{
    return allocate(pp, bytesize, SIMGPU_PINNED, flags);
}

/* Waits for the whole context before it frees, as the real driver does. */
static CUresult deallocate(void *p, enum simgpu_memory memory)
{
    LOCKED;
    struct CUctx_st *ctx;
    if (!p) return CUDA_SUCCESS;
    TRY(sim_ctx(&ctx));
    TRY(sim_unsafe());
    for (struct CUstream_st *s = ctx->streams; s; s = s->next) sim_wait(&s->last);
    return sim_free(p, memory);
}
API(cuMemFree_v2, (CUdeviceptr_v2 dptr), (dptr))
{
    return deallocate((void *)dptr, SIMGPU_DEVICE);
}
API(cuMemFreeHost, (void *p), (p))
{
    return deallocate(p, SIMGPU_PINNED);
}

static CUresult host_register(void *p, size_t bytesize, unsigned flags)
{
    LOCKED;
    struct CUctx_st *ctx;
    NEED_VALUE(p && bytesize);
    TRY(sim_ctx(&ctx));
    NEED(!sim_region(p), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    struct region r = {.base = p,
                       .size = bytesize,
                       .memory = SIMGPU_PINNED,
                       .device = ctx->device,
                       .ctx = ctx,
                       .flags = flags,
                       .registered = true};
    log_region("alloc", sim_region_add(&r));
    return CUDA_SUCCESS;
}
ALIAS(cuMemHostRegister, cuMemHostRegister_v2, (void *p, size_t bytesize, unsigned flags), (p, bytesize, flags))
API(cuMemHostRegister_v2, (void *p, size_t bytesize, unsigned flags), (p, bytesize, flags))
{
    return host_register(p, bytesize, flags);
}
API(cuMemHostUnregister, (void *p), (p))
{
    LOCKED;
    struct region *r = sim_region(p);
    NEED(r && r->registered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    release(r);
    return CUDA_SUCCESS;
}
API(cuMemHostGetDevicePointer_v2, (CUdeviceptr_v2 * pdptr, void *p, unsigned flags), (pdptr, p, flags))
{
    LOCKED;
    NEED_VALUE(pdptr && flags == 0 && sim_region(p));
    *pdptr = (CUdeviceptr_v2)p;
    return CUDA_SUCCESS;
}
API(cuMemHostGetFlags, (unsigned *flags, void *p), (flags, p))
{
    LOCKED;
    struct region *r = sim_region(p);
    NEED_VALUE(flags && r && r->memory == SIMGPU_PINNED);
    *flags = r->flags;
    return CUDA_SUCCESS;
}
API(cuMemGetAddressRange_v2, (CUdeviceptr_v2 * base, size_t *size, CUdeviceptr_v2 dptr), (base, size, dptr))
{
    LOCKED;
    struct region *r = sim_region((void *)dptr);
    NEED(r, CUDA_ERROR_NOT_FOUND);
    if (base) *base = (CUdeviceptr_v2)r->base;
    if (size) *size = r->size;
    return CUDA_SUCCESS;
}

/* ---- queries about addresses ---- */

static CUresult attribute(void *data, CUpointer_attribute what, const struct region *r, CUdeviceptr_v2 ptr)
{
    NEED_VALUE(data);
    switch (what) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)data = r->ctx; break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(CUmemorytype *)data = r->memory == SIMGPU_PINNED ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr_v2 *)data = ptr; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        NEED_VALUE(r->memory != SIMGPU_DEVICE);
        *(void **)data = (void *)ptr;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)data = r->id; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)data = r->memory == SIMGPU_MANAGED; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = r->device; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr_v2 *)data = (CUdeviceptr_v2)r->base; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data = r->size; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(unsigned *)data = 1; break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: *(unsigned *)data = 0; break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: *(unsigned long long *)data = 0; break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: *(CUmemoryPool *)data = r->pool; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

API(cuPointerGetAttribute, (void *data, CUpointer_attribute what, CUdeviceptr_v2 ptr), (data, what, ptr))
{
    LOCKED;
    const struct region *r = sim_region((void *)ptr);
    NEED_VALUE(r);
    return attribute(data, what, r, ptr);
}

/* An address in no known region is no error: the answers are zeros. */
API(cuPointerGetAttributes, (unsigned n, CUpointer_attribute *what, void **data, CUdeviceptr_v2 ptr),
    (n, what, data, ptr))
{
    LOCKED;
    const struct region *r = sim_region((void *)ptr);
    NEED_VALUE(n && what && data);
    for (unsigned i = 0; i < n; i++) {
        bool wide = what[i] == CU_POINTER_ATTRIBUTE_CONTEXT || what[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
                    what[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER;
        if (r && attribute(data[i], what[i], r, ptr) == CUDA_SUCCESS) continue;
        memset(data[i], what[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? 0xff : 0, wide ? 8 : 4);
    }
    return CUDA_SUCCESS;
}

API(cuPointerSetAttribute, (const void *value, CUpointer_attribute what, CUdeviceptr_v2 ptr), (value, what, ptr))
{
    LOCKED;
    NEED_VALUE(value && what == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && sim_region((void *)ptr));
    return CUDA_SUCCESS;
}

API_PTSZ(cuMemPrefetchAsync_v2,
         (CUdeviceptr_v2 ptr, size_t count, CUmemLocation location, unsigned flags, CUstream stream),
         (ptr, count, location, flags, stream))
{
    LOCKED;
    struct CUstream_st *s;
    NEED_VALUE(flags == 0 && sim_region((void *)ptr));
    return sim_stream(stream, &s);
}
API(cuMemAdvise_v2, (CUdeviceptr_v2 ptr, size_t count, CUmem_advise advice, CUmemLocation location),
    (ptr, count, advice, location))
{
    LOCKED;
    NEED_VALUE(sim_region((void *)ptr));
    return CUDA_SUCCESS;
}

/* ---- sharing between processes, which is not supported ---- */

API(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr_v2 dptr), (handle, dptr))
{
    return CUDA_ERROR_NOT_SUPPORTED;
}
API(cuIpcOpenMemHandle_v2, (CUdeviceptr_v2 * dptr, CUipcMemHandle handle, unsigned flags), (dptr, handle, flags))
{
    return CUDA_ERROR_NOT_SUPPORTED;
}
API(cuIpcCloseMemHandle, (CUdeviceptr_v2 dptr), (dptr))
{
    return CUDA_ERROR_NOT_SUPPORTED;
}
API(cuIpcGetEventHandle, (CUipcEventHandle * handle, CUevent event), (handle, event))
{
    return CUDA_ERROR_NOT_SUPPORTED;
}
API(cuIpcOpenEventHandle, (CUevent * event, CUipcEventHandle handle), (event, handle))
{
    return CUDA_ERROR_NOT_SUPPORTED;
}
