/* copy.c - copies and sets: reduces every variant to one CUDA_MEMCPY3D or to one set of rows.
 *
 * Host and devices share one address space: if a call does not say on which side an address lies, the address itself
 * tells. A copy whose name lacks Async waits until it has ended.
 */
#include "model.h"

struct side {
    char *address;
    size_t pitch, slice;
    enum simgpu_memory memory;
    int device;
};

static CUresult side_of(struct side *s, CUmemorytype type, const void *host, CUdeviceptr_v2 device, CUarray array,
                        size_t pitch, size_t height)
{
    struct CUctx_st *ctx;
    TRY(sim_ctx(&ctx));
    if (type == CU_MEMORYTYPE_ARRAY) {
        NEED(is(array, ARRAY), CUDA_ERROR_INVALID_HANDLE);
        *s = (struct side){array->data, array->pitch, array->slice, SIMGPU_ARRAY, array->head.ctx->device};
        return CUDA_SUCCESS;
    }
    s->address = type == CU_MEMORYTYPE_HOST ? (char *)host : (char *)device;
    s->pitch = pitch;
    s->slice = pitch * height;
    const struct region *r = sim_region(s->address);
    NEED_VALUE(s->address && (type != CU_MEMORYTYPE_DEVICE || r));
    s->memory = r ? r->memory : SIMGPU_PAGEABLE;
    s->device = r ? r->device : ctx->device;
    return CUDA_SUCCESS;
}

/* True if this end of a copy lies wholly inside its region, or in no region, or in pinned memory. */
static bool fits(const char *from, size_t pitch, size_t slice, const struct copy *c)
{
    const struct region *r = sim_region(from);
    return !r || r->memory == SIMGPU_PINNED ||
           from + (c->depth - 1) * slice + (c->height - 1) * pitch + c->width <= r->base + r->size;
}

/* Needs the lock. */
CUresult sim_copy_of(const CUDA_MEMCPY3D_v2 *p, struct op *op)
{
    struct side src, dst;
    struct copy *c = &op->copy;
    size_t height = p->Height, depth = p->Depth;
    NEED_VALUE(p->srcLOD == 0 && p->dstLOD == 0);
    TRY(side_of(&src, p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, p->srcPitch,
                p->srcHeight ? p->srcHeight : height));
    TRY(side_of(&dst, p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, p->dstPitch,
                p->dstHeight ? p->dstHeight : height));
    *op = (struct op){.kind = OP_COPY, .copy_params = *p};
    *c = (struct copy){.dst = dst.address + p->dstZ * dst.slice + p->dstY * dst.pitch + p->dstXInBytes,
                       .src = src.address + p->srcZ * src.slice + p->srcY * src.pitch + p->srcXInBytes,
                       .dst_pitch = dst.pitch,
                       .dst_slice = dst.slice,
                       .src_pitch = src.pitch,
                       .src_slice = src.slice,
                       .width = p->WidthInBytes,
                       .height = height,
                       .depth = depth,
                       .source = src.memory,
                       .target = dst.memory,
                       .source_device = src.device,
                       .target_device = dst.device,
                       .async = true};
    NEED_VALUE(!c->width || !height || !depth ||
               (fits(c->dst, c->dst_pitch, c->dst_slice, c) && fits(c->src, c->src_pitch, c->src_slice, c)));
    return CUDA_SUCCESS;
}

static CUresult run(const CUDA_MEMCPY3D_v2 *p, CUstream stream, bool async)
{
    LOCKED;
    struct CUstream_st *s;
    struct op op;
    NEED_VALUE(p);
    TRY(sim_stream(stream, &s));
    if (!async) TRY(sim_unsafe());
    if (!p->WidthInBytes || !p->Height || !p->Depth) return CUDA_SUCCESS;
    TRY(sim_copy_of(p, &op));
    op.copy.async = async;
    TRY(sim_submit(s, &op));
    if (!async) sim_wait(&s->last);
    return CUDA_SUCCESS;
}

static CUresult flat(CUmemorytype to, void *dst, CUmemorytype from, const void *src, size_t n, CUstream stream,
                     bool async)
{
    CUDA_MEMCPY3D_v2 p = {.srcMemoryType = from, .dstMemoryType = to, .WidthInBytes = n, .Height = 1, .Depth = 1};
    p.srcHost = src, p.srcDevice = (CUdeviceptr_v2)src;
    p.dstHost = dst, p.dstDevice = (CUdeviceptr_v2)dst;
    return run(&p, stream, async);
}

#define HOST CU_MEMORYTYPE_HOST
#define DEV CU_MEMORYTYPE_DEVICE
#define ANY CU_MEMORYTYPE_UNIFIED

API_PTDS(cuMemcpy, (CUdeviceptr_v2 dst, CUdeviceptr_v2 src, size_t n), (dst, src, n))
{
    return flat(ANY, (void *)dst, ANY, (void *)src, n, NULL, false);
}
API_PTSZ(cuMemcpyAsync, (CUdeviceptr_v2 dst, CUdeviceptr_v2 src, size_t n, CUstream stream), (dst, src, n, stream))
{
    return flat(ANY, (void *)dst, ANY, (void *)src, n, stream, true);
}
API_PTDS(cuMemcpyHtoD_v2, (CUdeviceptr_v2 dst, const void *src, size_t n), (dst, src, n))
{
    return flat(DEV, (void *)dst, HOST, src, n, NULL, false);
}
API_PTSZ(cuMemcpyHtoDAsync_v2, (CUdeviceptr_v2 dst, const void *src, size_t n, CUstream stream), (dst, src, n, stream))
{
    return flat(DEV, (void *)dst, HOST, src, n, stream, true);
}
API_PTDS(cuMemcpyDtoH_v2, (void *dst, CUdeviceptr_v2 src, size_t n), (dst, src, n))
{
    return flat(HOST, dst, DEV, (void *)src, n, NULL, false);
}
API_PTSZ(cuMemcpyDtoHAsync_v2, (void *dst, CUdeviceptr_v2 src, size_t n, CUstream stream), (dst, src, n, stream))
{
    return flat(HOST, dst, DEV, (void *)src, n, stream, true);
}
API_PTDS(cuMemcpyDtoD_v2, (CUdeviceptr_v2 dst, CUdeviceptr_v2 src, size_t n), (dst, src, n))
{
    return flat(DEV, (void *)dst, DEV, (void *)src, n, NULL, false);
}
API_PTSZ(cuMemcpyDtoDAsync_v2, (CUdeviceptr_v2 dst, CUdeviceptr_v2 src, size_t n, CUstream stream),
         (dst, src, n, stream))
{
    return flat(DEV, (void *)dst, DEV, (void *)src, n, stream, true);
}
API_PTDS(cuMemcpyPeer, (CUdeviceptr_v2 dst, CUcontext to, CUdeviceptr_v2 src, CUcontext from, size_t n),
         (dst, to, src, from, n))
{
    NEED(is(to, CONTEXT) && is(from, CONTEXT), CUDA_ERROR_INVALID_CONTEXT);
    return flat(DEV, (void *)dst, DEV, (void *)src, n, NULL, false);
}
API_PTSZ(cuMemcpyPeerAsync,
         (CUdeviceptr_v2 dst, CUcontext to, CUdeviceptr_v2 src, CUcontext from, size_t n, CUstream stream),
         (dst, to, src, from, n, stream))
{
    NEED(is(to, CONTEXT) && is(from, CONTEXT), CUDA_ERROR_INVALID_CONTEXT);
    return flat(DEV, (void *)dst, DEV, (void *)src, n, stream, true);
}

/* ---- arrays; the offset into an array counts bytes ---- */

static CUresult with_array(CUarray to, size_t to_offset, void *dst, CUarray from, size_t from_offset, const void *src,
                           CUmemorytype other, size_t n)
{
    NEED(!to || is(to, ARRAY), CUDA_ERROR_INVALID_HANDLE);
    NEED(!from || is(from, ARRAY), CUDA_ERROR_INVALID_HANDLE);
    NEED_VALUE((!to || to_offset + n <= to->size) && (!from || from_offset + n <= from->size));
    return flat(to ? ANY : other, to ? to->data + to_offset : dst, from ? ANY : other,
                from ? from->data + from_offset : src, n, NULL, false);
}
API_PTDS(cuMemcpyDtoA_v2, (CUarray dst, size_t offset, CUdeviceptr_v2 src, size_t n), (dst, offset, src, n))
{
    return with_array(dst, offset, NULL, NULL, 0, (void *)src, DEV, n);
}
API_PTDS(cuMemcpyAtoD_v2, (CUdeviceptr_v2 dst, CUarray src, size_t offset, size_t n), (dst, src, offset, n))
{
    return with_array(NULL, 0, (void *)dst, src, offset, NULL, DEV, n);
}
API_PTDS(cuMemcpyHtoA_v2, (CUarray dst, size_t offset, const void *src, size_t n), (dst, offset, src, n))
{
    return with_array(dst, offset, NULL, NULL, 0, src, HOST, n);
}
API_PTDS(cuMemcpyAtoH_v2, (void *dst, CUarray src, size_t offset, size_t n), (dst, src, offset, n))
{
    return with_array(NULL, 0, dst, src, offset, NULL, HOST, n);
}
API_PTDS(cuMemcpyAtoA_v2, (CUarray dst, size_t to, CUarray src, size_t from, size_t n), (dst, to, src, from, n))
{
    return with_array(dst, to, NULL, src, from, NULL, DEV, n);
}

/* ---- rectangles and boxes ---- */

static CUresult rectangle(const CUDA_MEMCPY2D_v2 *p, CUstream stream, bool async)
{
    NEED_VALUE(p);
    CUDA_MEMCPY3D_v2 q = {.srcXInBytes = p->srcXInBytes,
                          .srcY = p->srcY,
                          .srcMemoryType = p->srcMemoryType,
                          .srcHost = p->srcHost,
                          .srcDevice = p->srcDevice,
                          .srcArray = p->srcArray,
                          .srcPitch = p->srcPitch,
                          .dstXInBytes = p->dstXInBytes,
                          .dstY = p->dstY,
                          .dstMemoryType = p->dstMemoryType,
                          .dstHost = p->dstHost,
                          .dstDevice = p->dstDevice,
                          .dstArray = p->dstArray,
                          .dstPitch = p->dstPitch,
                          .WidthInBytes = p->WidthInBytes,
                          .Height = p->Height,
                          .Depth = 1};
    if (!q.srcPitch) q.srcPitch = q.WidthInBytes;
    if (!q.dstPitch) q.dstPitch = q.WidthInBytes;
    return run(&q, stream, async);
}
API_PTDS(cuMemcpy2D_v2, (const CUDA_MEMCPY2D_v2 *p), (p))
{
    return rectangle(p, NULL, false);
}
API_PTDS(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D_v2 *p), (p))
{
    return rectangle(p, NULL, false);
}
API_PTSZ(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D_v2 *p, CUstream stream), (p, stream))
{
    return rectangle(p, stream, true);
}
API_PTDS(cuMemcpy3D_v2, (const CUDA_MEMCPY3D_v2 *p), (p))
{
    return run(p, NULL, false);
}
API_PTSZ(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D_v2 *p, CUstream stream), (p, stream))
{
    return run(p, stream, true);
}

/* The two structures differ only in the contexts, which take the place of reserved words. */
static CUresult box_peer(const CUDA_MEMCPY3D_PEER_v1 *p, CUstream stream, bool async)
{
    CUDA_MEMCPY3D_v2 q;
    _Static_assert(sizeof q == sizeof *p, "the layouts are the same");
    NEED_VALUE(p);
    memcpy(&q, p, sizeof q);
    q.reserved0 = q.reserved1 = NULL;
    return run(&q, stream, async);
}
API_PTDS(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER_v1 *p), (p))
{
    return box_peer(p, NULL, false);
}
API_PTSZ(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER_v1 *p, CUstream stream), (p, stream))
{
    return box_peer(p, stream, true);
}
API_PTSZ(cuMemcpyBatchAsync_v2,
         (CUdeviceptr_v2 * dsts, CUdeviceptr_v2 *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
          size_t *attr_index, size_t nr_attrs, CUstream stream),
         (dsts, srcs, sizes, count, attrs, attr_index, nr_attrs, stream))
{
    NEED_VALUE(dsts && srcs && sizes && count && attrs && attr_index && nr_attrs && stream);
    for (size_t i = 0; i < count; i++) TRY(flat(ANY, (void *)dsts[i], ANY, (void *)srcs[i], sizes[i], stream, true));
    return CUDA_SUCCESS;
}

/* ---- sets ---- */

/* Needs the lock. */
CUresult sim_set_of(const CUDA_MEMSET_NODE_PARAMS_v1 *p, struct op *op)
{
    const struct region *r = sim_region((void *)p->dst);
    NEED_VALUE(r && (p->elementSize == 1 || p->elementSize == 2 || p->elementSize == 4));
    size_t row = p->width * p->elementSize, pitch = p->height > 1 ? p->pitch : row;
    NEED_VALUE((char *)p->dst + pitch * (p->height ? p->height - 1 : 0) + row <= r->base + r->size);
    *op = (struct op){.kind = OP_SET};
    op->set = (struct set){(char *)p->dst, pitch, p->width, p->height, p->value, p->elementSize};
    op->set_params =
        (CUDA_MEMSET_NODE_PARAMS_v2){p->dst, p->pitch, p->value, p->elementSize, p->width, p->height, NULL};
    return CUDA_SUCCESS;
}

static CUresult set(CUdeviceptr_v2 dst, size_t pitch, unsigned value, unsigned element, size_t width, size_t height,
                    CUstream stream, bool async)
{
    LOCKED;
    struct CUstream_st *s;
    struct op op;
    CUDA_MEMSET_NODE_PARAMS_v1 p = {dst, pitch, value, element, width, height};
    TRY(sim_stream(stream, &s));
    if (!async) TRY(sim_unsafe());
    if (!width || !height) return CUDA_SUCCESS;
    TRY(sim_set_of(&p, &op));
    return sim_submit(s, &op);
}

#define SETS(bits, type)                                                                                               \
    API_PTDS(cuMemsetD##bits##_v2, (CUdeviceptr_v2 dst, type value, size_t n), (dst, value, n))                        \
    {                                                                                                                  \
        return set(dst, 0, value, bits / 8, n, 1, NULL, false);                                                        \
    }                                                                                                                  \
    API_PTSZ(cuMemsetD##bits##Async, (CUdeviceptr_v2 dst, type value, size_t n, CUstream stream),                      \
             (dst, value, n, stream))                                                                                  \
    {                                                                                                                  \
        return set(dst, 0, value, bits / 8, n, 1, stream, true);                                                       \
    }                                                                                                                  \
    API_PTDS(cuMemsetD2D##bits##_v2, (CUdeviceptr_v2 dst, size_t pitch, type value, size_t width, size_t height),      \
             (dst, pitch, value, width, height))                                                                       \
    {                                                                                                                  \
        return set(dst, pitch, value, bits / 8, width, height, NULL, false);                                           \
    }                                                                                                                  \
    API_PTSZ(cuMemsetD2D##bits##Async,                                                                                 \
             (CUdeviceptr_v2 dst, size_t pitch, type value, size_t width, size_t height, CUstream stream),             \
             (dst, pitch, value, width, height, stream))                                                               \
    {                                                                                                                  \
        return set(dst, pitch, value, bits / 8, width, height, stream, true);                                          \
    }
SETS(8, unsigned char)
SETS(16, unsigned short)
SETS(32, unsigned int)
