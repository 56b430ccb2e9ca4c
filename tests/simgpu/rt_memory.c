/* rt_memory.c - the simulated runtime's allocations, pools and arrays, and queries about pointers. */
#include "rt.h"

RT(cudaMalloc, (void **p, size_t size), (p, size))
{
    NEED_VALUE(p);
    *p = NULL;
    return size ? (cudaError_t)DRV(cuMemAlloc)((CUdeviceptr *)p, size) : cudaSuccess;
}
SAME(cudaMallocPitch, (void **p, size_t *pitch, size_t width, size_t height), (p, pitch, width, height),
     cuMemAllocPitch, (CUdeviceptr *)p, pitch, width, height, 4)
RT(cudaMalloc3D, (struct cudaPitchedPtr * p, struct cudaExtent extent), (p, extent))
{
    NEED_VALUE(p);
    p->xsize = extent.width;
    p->ysize = extent.height;
    return (cudaError_t)DRV(cuMemAllocPitch)((CUdeviceptr *)&p->ptr, &p->pitch, extent.width,
                                             extent.height * extent.depth, 4);
}
SAME(cudaMallocManaged, (void **p, size_t size, unsigned flags), (p, size, flags), cuMemAllocManaged, (CUdeviceptr *)p,
     size, flags)
SAME(cudaMallocHost, (void **p, size_t size), (p, size), cuMemAllocHost, p, size)
SAME(cudaHostAlloc, (void **p, size_t size, unsigned flags), (p, size, flags), cuMemHostAlloc, p, size, flags)
SAME(cudaFree, (void *p), (p), cuMemFree, (CUdeviceptr)p)
SAME(cudaFreeHost, (void *p), (p), cuMemFreeHost, p)
SAME(cudaHostRegister, (void *p, size_t size, unsigned flags), (p, size, flags), cuMemHostRegister, p, size, flags)
SAME(cudaHostUnregister, (void *p), (p), cuMemHostUnregister, p)
SAME(cudaHostGetDevicePointer, (void **out, void *p, unsigned flags), (out, p, flags), cuMemHostGetDevicePointer,
     (CUdeviceptr *)out, p, flags)
SAME(cudaHostGetFlags, (unsigned *flags, void *p), (flags, p), cuMemHostGetFlags, flags, p)
SAME(cudaMemGetInfo, (size_t * avail, size_t *total), (avail, total), cuMemGetInfo, avail, total)

SAME_PTSZ(cudaMallocAsync, (void **p, size_t size, cudaStream_t stream), (p, size, stream), cuMemAllocAsync,
          (CUdeviceptr *)p, size, stream)
SAME_PTSZ(cudaMallocFromPoolAsync, (void **p, size_t size, cudaMemPool_t pool, cudaStream_t stream),
          (p, size, pool, stream), cuMemAllocFromPoolAsync, (CUdeviceptr *)p, size, pool, stream)
SAME_PTSZ(cudaFreeAsync, (void *p, cudaStream_t stream), (p, stream), cuMemFreeAsync, (CUdeviceptr)p, stream)

/* Runtime and driver lay the properties out alike. */
SAME(cudaMemPoolCreate, (cudaMemPool_t * pool, const struct cudaMemPoolProps *props), (pool, props), cuMemPoolCreate,
     pool, (const CUmemPoolProps *)props)
SAME(cudaMemPoolDestroy, (cudaMemPool_t pool), (pool), cuMemPoolDestroy, pool)
SAME(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t keep), (pool, keep), cuMemPoolTrimTo, pool, keep)
SAME(cudaMemPoolSetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr attr, void *value), (pool, attr, value),
     cuMemPoolSetAttribute, pool, (CUmemPool_attribute)attr, value)
SAME(cudaMemPoolGetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr attr, void *value), (pool, attr, value),
     cuMemPoolGetAttribute, pool, (CUmemPool_attribute)attr, value)
SAME(cudaMemPoolSetAccess, (cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t n), (pool, list, n),
     cuMemPoolSetAccess, pool, (const CUmemAccessDesc *)list, n)
SAME(cudaMemPoolGetAccess, (enum cudaMemAccessFlags * flags, cudaMemPool_t pool, struct cudaMemLocation *location),
     (flags, pool, location), cuMemPoolGetAccess, (CUmemAccess_flags *)flags, pool, (CUmemLocation *)location)

RT(cudaPointerGetAttributes, (struct cudaPointerAttributes * out, const void *p), (out, p))
{
    CUmemorytype type = 0;
    unsigned managed = 0;
    int device = 0;
    CUdeviceptr on_device = 0;
    void *on_host = NULL;
    CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                  CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *values[] = {&type, &managed, &device, &on_device, &on_host};
    NEED_VALUE(out);
    TRY(DRV(cuPointerGetAttributes)(5, what, values, (CUdeviceptr)p));
    memset(out, 0, sizeof *out);
    out->type = managed                        ? cudaMemoryTypeManaged
                : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
                : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                                               : cudaMemoryTypeUnregistered;
    out->device = type ? device : -2;
    out->devicePointer = (void *)on_device;
    out->hostPointer = type ? on_host : (void *)p;
    return cudaSuccess;
}

/* ---- arrays ---- */

static CUarray_format format_of(const struct cudaChannelFormatDesc *d)
{
    if (d->f == cudaChannelFormatKindFloat) return d->x == 16 ? CU_AD_FORMAT_HALF : CU_AD_FORMAT_FLOAT;
    if (d->f == cudaChannelFormatKindSigned)
        return d->x == 8    ? CU_AD_FORMAT_SIGNED_INT8
               : d->x == 16 ? CU_AD_FORMAT_SIGNED_INT16
                            : CU_AD_FORMAT_SIGNED_INT32;
    return d->x == 8    ? CU_AD_FORMAT_UNSIGNED_INT8
           : d->x == 16 ? CU_AD_FORMAT_UNSIGNED_INT16
                        : CU_AD_FORMAT_UNSIGNED_INT32;
}
static cudaError_t array(cudaArray_t *out, const struct cudaChannelFormatDesc *d, size_t w, size_t h, size_t depth,
                         unsigned flags)
{
    NEED_VALUE(out && d);
    CUDA_ARRAY3D_DESCRIPTOR desc = {.Width = w, .Height = h, .Depth = depth, .Format = format_of(d), .Flags = flags};
    desc.NumChannels = 1u + (d->y > 0) + (d->z > 0) + (d->w > 0);
    return (cudaError_t)DRV(cuArray3DCreate)((CUarray *)out, &desc);
}
RT(cudaMallocArray,
   (cudaArray_t * out, const struct cudaChannelFormatDesc *desc, size_t width, size_t height, unsigned flags),
   (out, desc, width, height, flags))
{
    return array(out, desc, width, height, 0, flags);
}
RT(cudaMalloc3DArray,
   (cudaArray_t * out, const struct cudaChannelFormatDesc *desc, struct cudaExtent extent, unsigned flags),
   (out, desc, extent, flags))
{
    return array(out, desc, extent.width, extent.height, extent.depth, flags);
}
SAME(cudaFreeArray, (cudaArray_t a), (a), cuArrayDestroy, (CUarray)a)

PUBLIC struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, enum cudaChannelFormatKind f)
{
    return (struct cudaChannelFormatDesc){x, y, z, w, f};
}

/* ---- hints ---- */

#if CUDART_VERSION >= 13000 /* older headers: rt_12.c */
static CUmemLocation place(struct cudaMemLocation location)
{
    CUmemLocation l = {.type = (CUmemLocationType)location.type, .id = location.id};
    return l;
}
SAME_PTSZ(cudaMemPrefetchAsync,
          (const void *p, size_t count, struct cudaMemLocation location, unsigned flags, cudaStream_t stream),
          (p, count, location, flags, stream), cuMemPrefetchAsync, (CUdeviceptr)p, count, place(location), flags,
          stream)
SAME(cudaMemAdvise, (const void *p, size_t count, enum cudaMemoryAdvise advice, struct cudaMemLocation location),
     (p, count, advice, location), cuMemAdvise, (CUdeviceptr)p, count, (CUmem_advise)advice, place(location))
#endif

/* ---- memory of graphs, always 0 ---- */

static cudaError_t graph_memory(int device, enum cudaGraphMemAttributeType attr, const void *value)
{
    int n = 0;
    TRY(DRV(cuDeviceGetCount)(&n));
    if (device < 0 || device >= n) return cudaErrorInvalidDevice;
    NEED_VALUE(value && (unsigned)attr <= cudaGraphMemAttrReservedMemHigh);
    return cudaSuccess;
}
RT(cudaDeviceGetGraphMemAttribute, (int device, enum cudaGraphMemAttributeType attr, void *value),
   (device, attr, value))
{
    TRY(graph_memory(device, attr, value));
    *(cuuint64_t *)value = 0;
    return cudaSuccess;
}
/* A program may only reset the high marks to 0. */
RT(cudaDeviceSetGraphMemAttribute, (int device, enum cudaGraphMemAttributeType attr, void *value),
   (device, attr, value))
{
    TRY(graph_memory(device, attr, value));
    NEED_VALUE(attr == cudaGraphMemAttrUsedMemHigh || attr == cudaGraphMemAttrReservedMemHigh);
    return *(const cuuint64_t *)value ? cudaErrorInvalidValue : cudaSuccess;
}
