/* context.c - contexts: primary and created ones, each thread's stack of them, limits, synchronisation, peers. */
#include <stdlib.h>

#include "model.h"

#define MAX_STACK 64
static __thread struct CUctx_st *stack[MAX_STACK];
static __thread int top = -1;

struct CUctx_st *sim_ctx_current(void)
{
    return top >= 0 ? stack[top] : NULL;
}

/* Returns the current context, if it is usable. */
CUresult sim_ctx(struct CUctx_st **ctx)
{
    *ctx = sim_ctx_current();
    NEED(*ctx, CUDA_ERROR_INVALID_CONTEXT);
    NEED(is(*ctx, CONTEXT), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return (CUresult)(*ctx)->error;
}

bool sim_device_ok(CUdevice dev)
{
    return dev >= 0 && dev < sim_nr_devices;
}

static struct CUctx_st *create(int device, unsigned flags)
{
    struct CUctx_st *ctx = sim_new(CONTEXT, sizeof *ctx, NULL);
    ctx->head.ctx = ctx;
    ctx->device = device;
    ctx->flags = flags;
    ctx->limits[CU_LIMIT_STACK_SIZE] = 1024;
    ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
    ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    ctx->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    ctx->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    ctx->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    ctx->legacy = sim_stream_new(ctx, 0, 0);
    return ctx;
}

static void wait_all(struct CUctx_st *ctx)
{
    for (struct CUstream_st *s = ctx->streams; s; s = s->next) sim_wait(&s->last);
    sim_wait(&ctx->left);
}

static void destroy(struct CUctx_st *ctx)
{
    wait_all(ctx);
    while (ctx->streams) sim_stream_free(ctx->streams);
    sim_point_drop(&ctx->left);
    sim_memory_of(ctx);
    sim_delete(ctx);
}

/* ---- primary contexts ---- */

API(cuDevicePrimaryCtxRetain, (CUcontext * pctx, CUdevice dev), (pctx, dev))
{
    LOCKED;
    NEED_VALUE(pctx);
    NEED(sim_device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    struct device *d = &sim_devices[dev];
    if (!d->primary) {
        d->primary = create(dev, d->primary_flags);
        d->primary->is_primary = true;
    }
    d->primary_refs++;
    *pctx = d->primary;
    return CUDA_SUCCESS;
}

static CUresult reset(CUdevice dev)
{
    struct device *d = &sim_devices[dev];
    if (d->primary) destroy(d->primary);
    d->primary = NULL;
    return CUDA_SUCCESS;
}

ALIAS(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice dev), (dev))
API(cuDevicePrimaryCtxRelease_v2, (CUdevice dev), (dev))
{
    LOCKED;
    NEED(sim_device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    NEED(sim_devices[dev].primary_refs, CUDA_ERROR_INVALID_CONTEXT);
    return --sim_devices[dev].primary_refs ? CUDA_SUCCESS : reset(dev);
}

/* The reference count stays. The next retain makes a new context. */
ALIAS(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, (CUdevice dev), (dev))
API(cuDevicePrimaryCtxReset_v2, (CUdevice dev), (dev))
{
    LOCKED;
    NEED(sim_device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    return reset(dev);
}

ALIAS(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, (CUdevice dev, unsigned flags), (dev, flags))
API(cuDevicePrimaryCtxSetFlags_v2, (CUdevice dev, unsigned flags), (dev, flags))
{
    LOCKED;
    NEED(sim_device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    sim_devices[dev].primary_flags = flags;
    if (sim_devices[dev].primary) sim_devices[dev].primary->flags = flags;
    return CUDA_SUCCESS;
}

API(cuDevicePrimaryCtxGetState, (CUdevice dev, unsigned *flags, int *active), (dev, flags, active))
{
    LOCKED;
    NEED(sim_device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    if (flags) *flags = sim_devices[dev].primary_flags;
    if (active) *active = sim_devices[dev].primary != NULL;
    return CUDA_SUCCESS;
}

/* ---- created contexts ---- */

static CUresult create_current(CUcontext *pctx, unsigned flags, CUdevice dev)
{
    LOCKED;
    NEED_VALUE(pctx);
    NEED(sim_device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    NEED(top + 1 < MAX_STACK, CUDA_ERROR_INVALID_CONTEXT);
    stack[++top] = *pctx = create(dev, flags);
    return CUDA_SUCCESS;
}

API(cuCtxCreate_v2, (CUcontext * pctx, unsigned flags, CUdevice dev), (pctx, flags, dev))
{
    return create_current(pctx, flags, dev);
}
API(cuCtxCreate_v3, (CUcontext * pctx, CUexecAffinityParam *p, int n, unsigned flags, CUdevice dev),
    (pctx, p, n, flags, dev))
{
    return create_current(pctx, flags, dev);
}
API(cuCtxCreate_v4, (CUcontext * pctx, CUctxCreateParams *p, unsigned flags, CUdevice dev), (pctx, p, flags, dev))
{
    return create_current(pctx, flags, dev);
}

ALIAS(cuCtxDestroy, cuCtxDestroy_v2, (CUcontext ctx), (ctx))
API(cuCtxDestroy_v2, (CUcontext ctx), (ctx))
{
    LOCKED;
    NEED(is(ctx, CONTEXT) && !ctx->is_primary, CUDA_ERROR_INVALID_CONTEXT);
    if (sim_ctx_current() == ctx) top--;
    destroy(ctx);
    return CUDA_SUCCESS;
}

ALIAS(cuCtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext ctx), (ctx))
API(cuCtxPushCurrent_v2, (CUcontext ctx), (ctx))
{
    NEED(is(ctx, CONTEXT) && top + 1 < MAX_STACK, CUDA_ERROR_INVALID_CONTEXT);
    stack[++top] = ctx;
    return CUDA_SUCCESS;
}

ALIAS(cuCtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext * pctx), (pctx))
API(cuCtxPopCurrent_v2, (CUcontext * pctx), (pctx))
{
    NEED(top >= 0, CUDA_ERROR_INVALID_CONTEXT);
    if (pctx) *pctx = stack[top];
    top--;
    return CUDA_SUCCESS;
}

API(cuCtxSetCurrent, (CUcontext ctx), (ctx))
{
    if (!ctx) {
        if (top >= 0) top--;
        return CUDA_SUCCESS;
    }
    NEED(is(ctx, CONTEXT), CUDA_ERROR_INVALID_CONTEXT);
    if (top < 0) top = 0;
    stack[top] = ctx;
    return CUDA_SUCCESS;
}

API(cuCtxGetCurrent, (CUcontext * pctx), (pctx))
{
    NEED_VALUE(pctx);
    *pctx = sim_ctx_current();
    return CUDA_SUCCESS;
}

/* ---- queries ---- */

static CUresult which(CUcontext handle, struct CUctx_st **ctx)
{
    if (!handle) return sim_ctx(ctx);
    NEED(is(handle, CONTEXT), CUDA_ERROR_INVALID_CONTEXT);
    *ctx = handle;
    return CUDA_SUCCESS;
}

static CUresult device_of(CUdevice *device, CUcontext handle)
{
    struct CUctx_st *ctx;
    NEED_VALUE(device);
    TRY(which(handle, &ctx));
    *device = ctx->device;
    return CUDA_SUCCESS;
}
API(cuCtxGetDevice, (CUdevice * device), (device))
{
    return device_of(device, NULL);
}
API(cuCtxGetDevice_v2, (CUdevice * device, CUcontext ctx), (device, ctx))
{
    return device_of(device, ctx);
}

static CUresult synchronize(CUcontext handle)
{
    LOCKED;
    struct CUctx_st *ctx;
    uint64_t start = sim_clock();
    TRY(which(handle, &ctx));
    for (struct CUstream_st *s = ctx->streams; s; s = s->next)
        if (s->capture) s->capture->invalid = true;
    for (struct CUstream_st *s = ctx->streams; s; s = s->next) NEED(!s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    wait_all(ctx);
    sim_report_sync("context", ctx, 0, start);
    return (CUresult)ctx->error;
}
API(cuCtxSynchronize, (void), ())
{
    return synchronize(NULL);
}
API(cuCtxSynchronize_v2, (CUcontext ctx), (ctx))
{
    return synchronize(ctx);
}

API(cuCtxGetFlags, (unsigned *flags), (flags))
{
    struct CUctx_st *ctx;
    NEED_VALUE(flags);
    TRY(sim_ctx(&ctx));
    *flags = ctx->flags;
    return CUDA_SUCCESS;
}
API(cuCtxSetFlags, (unsigned flags), (flags))
{
    struct CUctx_st *ctx;
    TRY(sim_ctx(&ctx));
    ctx->flags = flags;
    return CUDA_SUCCESS;
}
API(cuCtxGetId, (CUcontext handle, unsigned long long *id), (handle, id))
{
    struct CUctx_st *ctx;
    NEED_VALUE(id);
    TRY(which(handle, &ctx));
    *id = ctx->head.id;
    return CUDA_SUCCESS;
}
API(cuCtxGetApiVersion, (CUcontext handle, unsigned *version), (handle, version))
{
    struct CUctx_st *ctx;
    NEED_VALUE(version);
    TRY(which(handle, &ctx));
    *version = 3020;
    return CUDA_SUCCESS;
}
API(cuCtxGetLimit, (size_t * value, CUlimit limit), (value, limit))
{
    struct CUctx_st *ctx;
    NEED_VALUE(value);
    TRY(sim_ctx(&ctx));
    NEED((unsigned)limit < CU_LIMIT_MAX, CUDA_ERROR_UNSUPPORTED_LIMIT);
    *value = ctx->limits[limit];
    return CUDA_SUCCESS;
}
API(cuCtxSetLimit, (CUlimit limit, size_t value), (limit, value))
{
    struct CUctx_st *ctx;
    TRY(sim_ctx(&ctx));
    NEED((unsigned)limit < CU_LIMIT_MAX, CUDA_ERROR_UNSUPPORTED_LIMIT);
    ctx->limits[limit] = value;
    return CUDA_SUCCESS;
}
API(cuCtxGetCacheConfig, (CUfunc_cache * config), (config))
{
    struct CUctx_st *ctx;
    NEED_VALUE(config);
    TRY(sim_ctx(&ctx));
    *config = ctx->cache;
    return CUDA_SUCCESS;
}
API(cuCtxSetCacheConfig, (CUfunc_cache config), (config))
{
    struct CUctx_st *ctx;
    TRY(sim_ctx(&ctx));
    ctx->cache = config;
    return CUDA_SUCCESS;
}
API(cuCtxGetStreamPriorityRange, (int *least, int *greatest), (least, greatest))
{
    struct CUctx_st *ctx;
    TRY(sim_ctx(&ctx));
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
}
API(cuCtxResetPersistingL2Cache, (void), ())
{
    struct CUctx_st *ctx;
    return sim_ctx(&ctx);
}

/* ---- peers: every device reaches every other ---- */

API(cuDeviceCanAccessPeer, (int *can, CUdevice dev, CUdevice peer), (can, dev, peer))
{
    NEED_VALUE(can);
    NEED(sim_device_ok(dev) && sim_device_ok(peer), CUDA_ERROR_INVALID_DEVICE);
    *can = dev != peer;
    return CUDA_SUCCESS;
}
API(cuDeviceGetP2PAttribute, (int *value, CUdevice_P2PAttribute attribute, CUdevice dev, CUdevice peer),
    (value, attribute, dev, peer))
{
    NEED_VALUE(value);
    NEED(sim_device_ok(dev) && sim_device_ok(peer), CUDA_ERROR_INVALID_DEVICE);
    *value = dev != peer && attribute != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
    return CUDA_SUCCESS;
}
API(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags), (peer, flags))
{
    LOCKED;
    struct CUctx_st *ctx;
    TRY(sim_ctx(&ctx));
    NEED(is(peer, CONTEXT) && peer->device != ctx->device, CUDA_ERROR_INVALID_CONTEXT);
    NEED_VALUE(flags == 0);
    NEED(!(ctx->peers >> peer->device & 1), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    ctx->peers |= 1u << peer->device;
    return CUDA_SUCCESS;
}
API(cuCtxDisablePeerAccess, (CUcontext peer), (peer))
{
    LOCKED;
    struct CUctx_st *ctx;
    TRY(sim_ctx(&ctx));
    NEED(is(peer, CONTEXT), CUDA_ERROR_INVALID_CONTEXT);
    NEED(ctx->peers >> peer->device & 1, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    ctx->peers &= ~(1u << peer->device);
    return CUDA_SUCCESS;
}
