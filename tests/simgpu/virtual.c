/* virtual.c - virtual memory: ranges of addresses, physical memory, and mappings of the one at the other.
 *
 * The bytes of physical memory are a memfd, so that it can be mapped at several addresses. It ends with its last handle
 * and its last mapping. Sharing it with other processes is not supported.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "model.h"

enum { GRANULE = 2 << 20 };

struct range {
    char *base;
    size_t size;
};
static struct range *ranges;
static size_t nr_ranges;

static bool is_whole(uint64_t value)
{
    return value % GRANULE == 0;
}

/* ---- ranges of addresses ---- */

/* Returns the range that contains all of these addresses. */
static struct range *range_around(const char *base, size_t size)
{
    for (size_t i = 0; i < nr_ranges; i++)
        if (ranges[i].base <= base && size <= ranges[i].size &&
            base - ranges[i].base <= (ptrdiff_t)(ranges[i].size - size))
            return &ranges[i];
    return NULL;
}

static char *reserve(size_t size, size_t alignment)
{
    char *base = mmap(NULL, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return NULL;
    size_t before = (alignment - (uintptr_t)base % alignment) % alignment;
    if (before) munmap(base, before);
    munmap(base + before + size, alignment - before);
    return base + before;
}

/* The address that the caller proposes is a hint, which the driver may pass over. */
API(cuMemAddressReserve,
    (CUdeviceptr_v2 * ptr, size_t size, size_t alignment, CUdeviceptr_v2 addr, unsigned long long flags),
    (ptr, size, alignment, addr, flags))
{
    LOCKED;
    NEED_VALUE(ptr && size && is_whole(size) && flags == 0 && (alignment & (alignment - 1)) == 0);
    char *base = reserve(size, alignment > GRANULE ? alignment : GRANULE);
    NEED(base, CUDA_ERROR_OUT_OF_MEMORY);
    ranges = sim_grow(ranges, nr_ranges, sizeof *ranges);
    ranges[nr_ranges++] = (struct range){base, size};
    *ptr = (CUdeviceptr_v2)base;
    sim_log_memory("alloc", "reserved", -1, *ptr, size);
    return CUDA_SUCCESS;
}
API(cuMemAddressFree, (CUdeviceptr_v2 ptr, size_t size), (ptr, size))
{
    LOCKED;
    struct range *r = range_around((char *)ptr, size);
    NEED_VALUE(r && r->base == (char *)ptr && r->size == size);
    for (size_t at = 0; at < size; at += GRANULE) NEED_VALUE(!sim_region(r->base + at));
    munmap(r->base, size);
    *r = ranges[--nr_ranges];
    sim_log_memory("free", "reserved", -1, ptr, size);
    return CUDA_SUCCESS;
}

/* ---- physical memory ---- */

static bool is_supported(const CUmemAllocationProp_v1 *p)
{
    return p && p->type == CU_MEM_ALLOCATION_TYPE_PINNED && p->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           sim_device_ok(p->location.id);
}

API(cuMemGetAllocationGranularity,
    (size_t * granularity, const CUmemAllocationProp_v1 *prop, CUmemAllocationGranularity_flags option),
    (granularity, prop, option))
{
    LOCKED;
    NEED_VALUE(granularity && is_supported(prop));
    *granularity = GRANULE;
    return CUDA_SUCCESS;
}

API(cuMemCreate,
    (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp_v1 *prop, unsigned long long flags),
    (handle, size, prop, flags))
{
    LOCKED;
    NEED_VALUE(handle && size && is_whole(size) && is_supported(prop) && flags == 0);
    struct device *d = &sim_devices[prop->location.id];
    NEED(size <= d->total - d->used, CUDA_ERROR_OUT_OF_MEMORY);
    int fd = memfd_create("simgpu", MFD_CLOEXEC);
    NEED(fd >= 0, CUDA_ERROR_OUT_OF_MEMORY);
    if (ftruncate(fd, (off_t)size) != 0) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct CUphysical_st *p = sim_new(PHYSICAL, sizeof *p, NULL);
    p->properties = *prop;
    p->size = size;
    p->handles = 1;
    p->mappings = 0;
    p->fd = fd;
    d->used += size;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)p;
    sim_log_memory("alloc", "physical", prop->location.id, *handle, size);
    return CUDA_SUCCESS;
}

static struct CUphysical_st *physical_of(CUmemGenericAllocationHandle handle)
{
    struct CUphysical_st *p = (struct CUphysical_st *)(uintptr_t)handle;
    return is(p, PHYSICAL) && p->handles ? p : NULL;
}

static void end_if_unused(struct CUphysical_st *p)
{
    if (p->handles || p->mappings) return;
    close(p->fd);
    sim_devices[p->properties.location.id].used -= p->size;
    sim_log_memory("free", "physical", p->properties.location.id, (uintptr_t)p, p->size);
    sim_delete(p);
}

API(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle))
{
    LOCKED;
    struct CUphysical_st *p = physical_of(handle);
    NEED_VALUE(p);
    p->handles--;
    end_if_unused(p);
    return CUDA_SUCCESS;
}
API(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void *addr), (handle, addr))
{
    LOCKED;
    const struct region *r = sim_region(addr);
    NEED_VALUE(handle && r && r->physical);
    r->physical->handles++;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)r->physical;
    return CUDA_SUCCESS;
}
API(cuMemGetAllocationPropertiesFromHandle, (CUmemAllocationProp_v1 * prop, CUmemGenericAllocationHandle handle),
    (prop, handle))
{
    LOCKED;
    NEED_VALUE(prop && physical_of(handle));
    *prop = physical_of(handle)->properties;
    return CUDA_SUCCESS;
}
API(cuMemExportToShareableHandle,
    (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags),
    (shareable, handle, type, flags))
{
    return CUDA_ERROR_NOT_SUPPORTED;
}
API(cuMemImportFromShareableHandle,
    (CUmemGenericAllocationHandle * handle, void *shareable, CUmemAllocationHandleType type), (handle, shareable, type))
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- mappings ---- */

/* A mapping takes all of its physical memory: an offset other than 0 is not supported, as by the driver. */
API(cuMemMap,
    (CUdeviceptr_v2 ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags),
    (ptr, size, offset, handle, flags))
{
    LOCKED;
    struct CUphysical_st *p = physical_of(handle);
    struct CUctx_st *ctx = sim_ctx_current();
    NEED_VALUE(p && size && is_whole(ptr) && is_whole(size) && size <= p->size && offset == 0 && flags == 0);
    NEED_VALUE(range_around((char *)ptr, size));
    for (size_t at = 0; at < size; at += GRANULE) NEED_VALUE(!sim_region((char *)ptr + at));
    void *base = mmap((void *)ptr, size, PROT_NONE, MAP_SHARED | MAP_FIXED, p->fd, 0);
    NEED(base != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    struct region r = {.base = base,
                       .size = size,
                       .mapped = size,
                       .memory = SIMGPU_DEVICE,
                       .device = p->properties.location.id,
                       .ctx = ctx,
                       .physical = p};
    sim_region_add(&r);
    p->mappings++;
    sim_log_memory("alloc", "mapped", r.device, ptr, size);
    return CUDA_SUCCESS;
}

/* True if the range consists of whole mappings. */
static bool is_mapped(const char *base, size_t size)
{
    size_t at = 0;
    while (at < size) {
        const struct region *r = sim_region(base + at);
        if (!r || !r->physical || r->base != base + at || r->size > size - at) return false;
        at += r->size;
    }
    return size != 0;
}

/* Waits for the devices, as the real driver does before addresses become invalid. */
API(cuMemUnmap, (CUdeviceptr_v2 ptr, size_t size), (ptr, size))
{
    LOCKED;
    struct CUctx_st *ctx = sim_ctx_current();
    NEED_VALUE(is_mapped((char *)ptr, size));
    for (struct CUstream_st *s = ctx ? ctx->streams : NULL; s; s = s->next) sim_wait(&s->last);
    mmap((void *)ptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    for (size_t at = 0; at < size;) {
        struct region r = *sim_region((char *)ptr + at);
        sim_region_drop(sim_region((char *)ptr + at));
        sim_log_memory("free", "mapped", r.device, (uintptr_t)r.base, r.size);
        r.physical->mappings--;
        end_if_unused(r.physical);
        at += r.size;
    }
    return CUDA_SUCCESS;
}

static int rights_of(unsigned long long flags)
{
    return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
           : flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                       : PROT_NONE;
}

API(cuMemSetAccess, (CUdeviceptr_v2 ptr, size_t size, const CUmemAccessDesc_v1 *desc, size_t count),
    (ptr, size, desc, count))
{
    LOCKED;
    NEED_VALUE(desc && count && is_mapped((char *)ptr, size));
    for (size_t i = 0; i < count; i++) {
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) continue;
        NEED(sim_device_ok(desc[i].location.id), CUDA_ERROR_INVALID_DEVICE);
        if (mprotect((void *)ptr, size, rights_of(desc[i].flags)) != 0) return CUDA_ERROR_INVALID_VALUE;
        for (size_t at = 0; at < size; at += sim_region((char *)ptr + at)->size)
            sim_region((char *)ptr + at)->flags = desc[i].flags;
    }
    return CUDA_SUCCESS;
}
API(cuMemGetAccess, (unsigned long long *flags, const CUmemLocation_v1 *location, CUdeviceptr_v2 ptr),
    (flags, location, ptr))
{
    LOCKED;
    const struct region *r = sim_region((void *)ptr);
    NEED_VALUE(flags && location && r && r->physical);
    *flags = r->flags;
    return CUDA_SUCCESS;
}
