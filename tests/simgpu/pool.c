/* pool.c - stream-ordered allocation, memory pools, and arrays. */
#include <stdlib.h>

#include "model.h"

static struct CUmemPoolHandle_st *pool_new(int device)
{
    struct CUmemPoolHandle_st *p = sim_new(POOL, sizeof *p, NULL);
    p->device = device;
    p->reuse[0] = p->reuse[1] = p->reuse[2] = 1;
    return p;
}

static CUmemoryPool default_pool(int device)
{
    struct device *d = &sim_devices[device];
    if (!d->default_pool) d->pool = d->default_pool = pool_new(device);
    return d->default_pool;
}

API(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *props), (pool, props))
{
    LOCKED;
    NEED_VALUE(pool && props && props->location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    NEED(sim_device_ok(props->location.id), CUDA_ERROR_INVALID_DEVICE);
    NEED(props->handleTypes == CU_MEM_HANDLE_TYPE_NONE, CUDA_ERROR_NOT_SUPPORTED);
    *pool = pool_new(props->location.id);
    return CUDA_SUCCESS;
}
API(cuMemPoolDestroy, (CUmemoryPool pool), (pool))
{
    LOCKED;
    NEED_VALUE(is(pool, POOL) && pool != sim_devices[pool->device].default_pool);
    if (sim_devices[pool->device].pool == pool) sim_devices[pool->device].pool = default_pool(pool->device);
    sim_delete(pool);
    return CUDA_SUCCESS;
}
API(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep), (pool, keep))
{
    NEED_VALUE(is(pool, POOL));
    return CUDA_SUCCESS;
}

static uint64_t *pool_value(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: return &pool->used;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return &pool->used_high;
    default: return NULL;
    }
}
static int *pool_switch(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    unsigned i = (unsigned)attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES;
    return i < 3 ? &pool->reuse[i] : NULL;
}
API(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value), (pool, attribute, value))
{
    LOCKED;
    NEED_VALUE(is(pool, POOL) && value);
    if (pool_switch(pool, attribute)) *pool_switch(pool, attribute) = *(int *)value;
    else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) pool->threshold = *(uint64_t *)value;
    else if (pool_value(pool, attribute) == &pool->used_high && *(uint64_t *)value == 0) pool->used_high = pool->used;
    else return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
API(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value), (pool, attribute, value))
{
    LOCKED;
    NEED_VALUE(is(pool, POOL) && value);
    if (pool_switch(pool, attribute)) *(int *)value = *pool_switch(pool, attribute);
    else if (pool_value(pool, attribute)) *(uint64_t *)value = *pool_value(pool, attribute);
    else return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
API(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *map, size_t count), (pool, map, count))
{
    NEED_VALUE(is(pool, POOL) && (map || !count));
    return CUDA_SUCCESS;
}
API(cuMemPoolGetAccess, (CUmemAccess_flags * flags, CUmemoryPool pool, CUmemLocation *location),
    (flags, pool, location))
{
    NEED_VALUE(is(pool, POOL) && flags && location);
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}
API(cuDeviceGetDefaultMemPool, (CUmemoryPool * pool, CUdevice dev), (pool, dev))
{
    LOCKED;
    NEED_VALUE(pool);
    NEED(sim_device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    *pool = default_pool(dev);
    return CUDA_SUCCESS;
}
API(cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice dev), (pool, dev))
{
    LOCKED;
    NEED_VALUE(pool);
    NEED(sim_device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    default_pool(dev);
    *pool = sim_devices[dev].pool;
    return CUDA_SUCCESS;
}
API(cuDeviceSetMemPool, (CUdevice dev, CUmemoryPool pool), (dev, pool))
{
    LOCKED;
    NEED(sim_device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    NEED_VALUE(is(pool, POOL) && pool->device == dev);
    default_pool(dev);
    sim_devices[dev].pool = pool;
    return CUDA_SUCCESS;
}

/* The address is valid at once; only the release is ordered in the stream. In a capture it becomes a node of the graph. */
static CUresult alloc_async(CUdeviceptr_v2 *dptr, size_t size, CUmemoryPool pool, CUstream stream)
{
    struct CUstream_st *s;
    struct op op = {.kind = OP_ALLOC};
    NEED_VALUE(dptr);
    TRY(sim_stream(stream, &s));
    int device = s->head.ctx->device;
    default_pool(device);
    if (!pool) pool = sim_devices[device].pool;
    NEED_VALUE(is(pool, POOL));
    if (s->capture) TRY(sim_graph_alloc(s->head.ctx, pool->device, size, (void **)dptr));
    else TRY(sim_alloc(s->head.ctx, pool->device, size, SIMGPU_DEVICE, pool, (void **)dptr));
    op.memory.base = (char *)*dptr;
    op.memory.size = size;
    op.memory.device = pool->device;
    op.memory.params = (CUDA_MEM_ALLOC_NODE_PARAMS_v1){.bytesize = size, .dptr = *dptr};
    return sim_submit(s, &op);
}
API_PTSZ(cuMemAllocAsync, (CUdeviceptr_v2 * dptr, size_t size, CUstream stream), (dptr, size, stream))
{
    LOCKED;
    return alloc_async(dptr, size, NULL, stream);
}
API_PTSZ(cuMemAllocFromPoolAsync, (CUdeviceptr_v2 * dptr, size_t size, CUmemoryPool pool, CUstream stream),
         (dptr, size, pool, stream))
{
    LOCKED;
    NEED_VALUE(is(pool, POOL));
    return alloc_async(dptr, size, pool, stream);
}
API_PTSZ(cuMemFreeAsync, (CUdeviceptr_v2 dptr, CUstream stream), (dptr, stream))
{
    LOCKED;
    struct CUstream_st *s;
    struct op op = {.kind = OP_FREE};
    TRY(sim_stream(stream, &s));
    const struct region *r = sim_region((void *)dptr);
    NEED_VALUE(r && r->base == (char *)dptr && r->memory == SIMGPU_DEVICE);
    op.memory.base = r->base;
    return sim_submit(s, &op);
}

/* ---- arrays: rows of elements in plain memory ---- */

static unsigned format_size(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return 4;
    default: return 0;
    }
}

static CUresult array_new(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR_v2 *desc)
{
    LOCKED;
    struct CUctx_st *ctx;
    void *data;
    NEED_VALUE(out && desc);
    TRY(sim_ctx(&ctx));
    TRY(sim_unsafe());
    size_t pitch = desc->Width * format_size(desc->Format) * desc->NumChannels;
    size_t rows = desc->Height ? desc->Height : 1, layers = desc->Depth ? desc->Depth : 1;
    NEED_VALUE(pitch);
    TRY(sim_alloc(ctx, ctx->device, pitch * rows * layers, SIMGPU_ARRAY, NULL, &data));
    struct CUarray_st *a = *out = sim_new(ARRAY, sizeof *a, ctx);
    a->desc = *desc;
    a->pitch = pitch;
    a->slice = pitch * rows;
    a->size = pitch * rows * layers;
    a->data = data;
    return CUDA_SUCCESS;
}
API(cuArrayCreate_v2, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR_v2 *d), (array, d))
{
    NEED_VALUE(d);
    CUDA_ARRAY3D_DESCRIPTOR_v2 desc = {
        .Width = d->Width, .Height = d->Height, .Format = d->Format, .NumChannels = d->NumChannels};
    return array_new(array, &desc);
}
API(cuArray3DCreate_v2, (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR_v2 *desc), (array, desc))
{
    return array_new(array, desc);
}
API(cuArrayGetDescriptor_v2, (CUDA_ARRAY_DESCRIPTOR_v2 * d, CUarray array), (d, array))
{
    NEED_VALUE(d);
    NEED(is(array, ARRAY), CUDA_ERROR_INVALID_HANDLE);
    *d = (CUDA_ARRAY_DESCRIPTOR_v2){array->desc.Width, array->desc.Height, array->desc.Format, array->desc.NumChannels};
    return CUDA_SUCCESS;
}
API(cuArray3DGetDescriptor_v2, (CUDA_ARRAY3D_DESCRIPTOR_v2 * d, CUarray array), (d, array))
{
    NEED_VALUE(d);
    NEED(is(array, ARRAY), CUDA_ERROR_INVALID_HANDLE);
    *d = array->desc;
    return CUDA_SUCCESS;
}
API(cuArrayDestroy, (CUarray array), (array))
{
    LOCKED;
    NEED(is(array, ARRAY), CUDA_ERROR_INVALID_HANDLE);
    sim_free(array->data, SIMGPU_ARRAY);
    sim_delete(array);
    return CUDA_SUCCESS;
}
