/* rt_copy.c - the simulated runtime's copies and sets, also of registered variables. */
#include "rt.h"

/* Copies one row of bytes with the driver function of the direction, as the real runtime does. */
static cudaError_t flat(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind)
{
    if (!n) return cudaSuccess;
    switch (kind) {
    case cudaMemcpyHostToDevice: return (cudaError_t)DRV(cuMemcpyHtoD)((CUdeviceptr)dst, src, n);
    case cudaMemcpyDeviceToHost: return (cudaError_t)DRV(cuMemcpyDtoH)(dst, (CUdeviceptr)src, n);
    case cudaMemcpyDeviceToDevice: return (cudaError_t)DRV(cuMemcpyDtoD)((CUdeviceptr)dst, (CUdeviceptr)src, n);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault: return (cudaError_t)DRV(cuMemcpy)((CUdeviceptr)dst, (CUdeviceptr)src, n);
    default: return cudaErrorInvalidMemcpyDirection;
    }
}
static cudaError_t flat_async(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (!n) return cudaSuccess;
    switch (kind) {
    case cudaMemcpyHostToDevice: return (cudaError_t)DRV(cuMemcpyHtoDAsync)((CUdeviceptr)dst, src, n, stream);
    case cudaMemcpyDeviceToHost: return (cudaError_t)DRV(cuMemcpyDtoHAsync)(dst, (CUdeviceptr)src, n, stream);
    case cudaMemcpyDeviceToDevice:
        return (cudaError_t)DRV(cuMemcpyDtoDAsync)((CUdeviceptr)dst, (CUdeviceptr)src, n, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault: return (cudaError_t)DRV(cuMemcpyAsync)((CUdeviceptr)dst, (CUdeviceptr)src, n, stream);
    default: return cudaErrorInvalidMemcpyDirection;
    }
}
RT_PTDS(cudaMemcpy, (void *dst, const void *src, size_t n, enum cudaMemcpyKind kind), (dst, src, n, kind))
{
    return flat(dst, src, n, kind);
}
RT_PTSZ(cudaMemcpyAsync, (void *dst, const void *src, size_t n, enum cudaMemcpyKind kind, cudaStream_t stream),
        (dst, src, n, kind, stream))
{
    return flat_async(dst, src, n, kind, stream);
}
RT_PTDS(cudaMemcpyPeer, (void *dst, int to, const void *src, int from, size_t n), (dst, to, src, from, n))
{
    return flat(dst, src, n, cudaMemcpyDeviceToDevice);
}
RT_PTSZ(cudaMemcpyPeerAsync, (void *dst, int to, const void *src, int from, size_t n, cudaStream_t stream),
        (dst, to, src, from, n, stream))
{
    return flat_async(dst, src, n, cudaMemcpyDeviceToDevice, stream);
}

/* ---- rectangles and boxes ---- */

static CUmemorytype side(enum cudaMemcpyKind kind, bool source)
{
    if (kind == cudaMemcpyDefault) return CU_MEMORYTYPE_UNIFIED;
    bool host = kind == cudaMemcpyHostToHost || kind == (source ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost);
    return host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

static size_t element_of(cudaArray_const_t array)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {0};
    DRV(cuArray3DGetDescriptor)(&d, (CUarray)array);
    size_t size = d.Format == CU_AD_FORMAT_UNSIGNED_INT8 || d.Format == CU_AD_FORMAT_SIGNED_INT8 ? 1
                  : d.Format == CU_AD_FORMAT_UNSIGNED_INT32 || d.Format == CU_AD_FORMAT_SIGNED_INT32 ||
                          d.Format == CU_AD_FORMAT_FLOAT
                      ? 4
                      : 2;
    return size * d.NumChannels;
}

/* If an array takes part, widths and offsets count its elements, else bytes. */
CUDA_MEMCPY3D rt_box(const struct cudaMemcpy3DParms *p)
{
    size_t source = p->srcArray ? element_of(p->srcArray) : 1, target = p->dstArray ? element_of(p->dstArray) : 1;
    CUDA_MEMCPY3D q = {.srcXInBytes = p->srcPos.x * source,
                       .srcY = p->srcPos.y,
                       .srcZ = p->srcPos.z,
                       .srcMemoryType = p->srcArray ? CU_MEMORYTYPE_ARRAY : side(p->kind, true),
                       .srcHost = p->srcPtr.ptr,
                       .srcDevice = (CUdeviceptr)p->srcPtr.ptr,
                       .srcArray = (CUarray)p->srcArray,
                       .srcPitch = p->srcPtr.pitch,
                       .srcHeight = p->srcPtr.ysize,
                       .dstXInBytes = p->dstPos.x * target,
                       .dstY = p->dstPos.y,
                       .dstZ = p->dstPos.z,
                       .dstMemoryType = p->dstArray ? CU_MEMORYTYPE_ARRAY : side(p->kind, false),
                       .dstHost = p->dstPtr.ptr,
                       .dstDevice = (CUdeviceptr)p->dstPtr.ptr,
                       .dstArray = (CUarray)p->dstArray,
                       .dstPitch = p->dstPtr.pitch,
                       .dstHeight = p->dstPtr.ysize,
                       .WidthInBytes = p->extent.width * (p->srcArray ? source : target),
                       .Height = p->extent.height,
                       .Depth = p->extent.depth};
    return q;
}

static cudaError_t box(const CUDA_MEMCPY3D *q, cudaStream_t stream, bool async)
{
    return (cudaError_t)(async ? DRV(cuMemcpy3DAsync)(q, stream) : DRV(cuMemcpy3D)(q));
}
RT_PTDS(cudaMemcpy3D, (const struct cudaMemcpy3DParms *p), (p))
{
    NEED_VALUE(p);
    CUDA_MEMCPY3D q = rt_box(p);
    return box(&q, NULL, false);
}
RT_PTSZ(cudaMemcpy3DAsync, (const struct cudaMemcpy3DParms *p, cudaStream_t stream), (p, stream))
{
    NEED_VALUE(p);
    CUDA_MEMCPY3D q = rt_box(p);
    return box(&q, stream, true);
}

/* One side of a copy: an array with an offset, or a pointer with a pitch. */
struct flat_side {
    cudaArray_const_t array;
    size_t x, y;
    const void *pointer;
    size_t pitch;
};
static cudaError_t rectangle(struct flat_side to, struct flat_side from, size_t width, size_t height,
                             enum cudaMemcpyKind kind, cudaStream_t stream, bool async)
{
    CUDA_MEMCPY3D q = {.srcXInBytes = from.x,
                       .srcY = from.y,
                       .srcHost = from.pointer,
                       .srcDevice = (CUdeviceptr)from.pointer,
                       .srcArray = (CUarray)from.array,
                       .srcPitch = from.pitch,
                       .srcMemoryType = from.array ? CU_MEMORYTYPE_ARRAY : side(kind, true),
                       .dstXInBytes = to.x,
                       .dstY = to.y,
                       .dstHost = (void *)to.pointer,
                       .dstDevice = (CUdeviceptr)to.pointer,
                       .dstArray = (CUarray)to.array,
                       .dstPitch = to.pitch,
                       .dstMemoryType = to.array ? CU_MEMORYTYPE_ARRAY : side(kind, false),
                       .WidthInBytes = width,
                       .Height = height,
                       .Depth = 1};
    return box(&q, stream, async);
}
#define POINTER(p, row) ((struct flat_side){.pointer = (p), .pitch = (row)})
#define PLACE(a, h, w) ((struct flat_side){.array = (a), .x = (w), .y = (h)})
/* Defines a function and its Async variant. */
#define COPY_2D(name, params, async_params, args, async_args, to, from)                                                \
    RT_PTDS(name, params, args)                                                                                        \
    {                                                                                                                  \
        return rectangle(to, from, width, height, kind, NULL, false);                                                  \
    }                                                                                                                  \
    RT_PTSZ(name##Async, async_params, async_args)                                                                     \
    {                                                                                                                  \
        return rectangle(to, from, width, height, kind, stream, true);                                                 \
    }
COPY_2D(cudaMemcpy2D,
        (void *dst, size_t to_pitch, const void *src, size_t pitch, size_t width, size_t height,
         enum cudaMemcpyKind kind),
        (void *dst, size_t to_pitch, const void *src, size_t pitch, size_t width, size_t height,
         enum cudaMemcpyKind kind, cudaStream_t stream),
        (dst, to_pitch, src, pitch, width, height, kind), (dst, to_pitch, src, pitch, width, height, kind, stream),
        POINTER(dst, to_pitch), POINTER(src, pitch))
COPY_2D(cudaMemcpy2DToArray,
        (cudaArray_t dst, size_t x, size_t y, const void *src, size_t pitch, size_t width, size_t height,
         enum cudaMemcpyKind kind),
        (cudaArray_t dst, size_t x, size_t y, const void *src, size_t pitch, size_t width, size_t height,
         enum cudaMemcpyKind kind, cudaStream_t stream),
        (dst, x, y, src, pitch, width, height, kind), (dst, x, y, src, pitch, width, height, kind, stream),
        PLACE(dst, y, x), POINTER(src, pitch))
COPY_2D(cudaMemcpy2DFromArray,
        (void *dst, size_t pitch, cudaArray_const_t src, size_t x, size_t y, size_t width, size_t height,
         enum cudaMemcpyKind kind),
        (void *dst, size_t pitch, cudaArray_const_t src, size_t x, size_t y, size_t width, size_t height,
         enum cudaMemcpyKind kind, cudaStream_t stream),
        (dst, pitch, src, x, y, width, height, kind), (dst, pitch, src, x, y, width, height, kind, stream),
        POINTER(dst, pitch), PLACE(src, y, x))

/* ---- sets ---- */

SAME_PTDS(cudaMemset, (void *p, int value, size_t n), (p, value, n), cuMemsetD8, (CUdeviceptr)p, (unsigned char)value,
          n)
SAME_PTSZ(cudaMemsetAsync, (void *p, int value, size_t n, cudaStream_t stream), (p, value, n, stream), cuMemsetD8Async,
          (CUdeviceptr)p, (unsigned char)value, n, stream)
SAME_PTDS(cudaMemset2D, (void *p, size_t pitch, int value, size_t width, size_t height),
          (p, pitch, value, width, height), cuMemsetD2D8, (CUdeviceptr)p, pitch, (unsigned char)value, width, height)
SAME_PTSZ(cudaMemset2DAsync, (void *p, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
          (p, pitch, value, width, height, stream), cuMemsetD2D8Async, (CUdeviceptr)p, pitch, (unsigned char)value,
          width, height, stream)
SAME_PTDS(cudaMemset3D, (struct cudaPitchedPtr p, int value, struct cudaExtent e), (p, value, e), cuMemsetD2D8,
          (CUdeviceptr)p.ptr, p.pitch, (unsigned char)value, e.width, e.height *e.depth)
SAME_PTSZ(cudaMemset3DAsync, (struct cudaPitchedPtr p, int value, struct cudaExtent e, cudaStream_t stream),
          (p, value, e, stream), cuMemsetD2D8Async, (CUdeviceptr)p.ptr, p.pitch, (unsigned char)value, e.width,
          e.height *e.depth, stream)

/* ---- variables, by the address of their shadow on the host ---- */

static cudaError_t place_of(const void *symbol, size_t offset, size_t n, char **at)
{
    CUdeviceptr address;
    size_t size;
    TRY(rt_variable(symbol, &address, &size));
    NEED_VALUE(offset <= size && n <= size - offset);
    *at = (char *)address + offset;
    return cudaSuccess;
}
RT_PTDS(cudaMemcpyToSymbol, (const void *symbol, const void *src, size_t n, size_t offset, enum cudaMemcpyKind kind),
        (symbol, src, n, offset, kind))
{
    char *at;
    TRY(place_of(symbol, offset, n, &at));
    return flat(at, src, n, kind);
}
RT_PTSZ(cudaMemcpyToSymbolAsync,
        (const void *symbol, const void *src, size_t n, size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream),
        (symbol, src, n, offset, kind, stream))
{
    char *at;
    TRY(place_of(symbol, offset, n, &at));
    return flat_async(at, src, n, kind, stream);
}
RT_PTDS(cudaMemcpyFromSymbol, (void *dst, const void *symbol, size_t n, size_t offset, enum cudaMemcpyKind kind),
        (dst, symbol, n, offset, kind))
{
    char *at;
    TRY(place_of(symbol, offset, n, &at));
    return flat(dst, at, n, kind);
}
RT_PTSZ(cudaMemcpyFromSymbolAsync,
        (void *dst, const void *symbol, size_t n, size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream),
        (dst, symbol, n, offset, kind, stream))
{
    char *at;
    TRY(place_of(symbol, offset, n, &at));
    return flat_async(dst, at, n, kind, stream);
}
RT(cudaGetSymbolAddress, (void **p, const void *symbol), (p, symbol))
{
    size_t size;
    NEED_VALUE(p);
    return rt_variable(symbol, (CUdeviceptr *)p, &size);
}
RT(cudaGetSymbolSize, (size_t * size, const void *symbol), (size, symbol))
{
    CUdeviceptr address;
    NEED_VALUE(size);
    return rt_variable(symbol, &address, size);
}
