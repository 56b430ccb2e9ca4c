/* stream.c - streams, events, waits between them, host functions, and values that streams write to memory. */
#include <stdlib.h>

#include "model.h"

#define MAX_OWN 16
static __thread struct {
    uint32_t ctx;
    struct CUstream_st *stream;
} own[MAX_OWN]; /* this thread's per-thread streams, by the context's id */

/* Needs the lock. */
struct CUstream_st *sim_stream_new(struct CUctx_st *ctx, unsigned flags, int priority)
{
    struct CUstream_st *s = sim_new(STREAM, sizeof *s, ctx), **at = &ctx->streams;
    s->flags = flags;
    s->priority = priority;
    s->blocking = !(flags & CU_STREAM_NON_BLOCKING);
    while (*at) at = &(*at)->next;
    *at = s;
    return s;
}

/* Needs the lock. */
void sim_stream_free(struct CUstream_st *stream)
{
    struct CUstream_st **at = &stream->head.ctx->streams;
    while (*at != stream) at = &(*at)->next;
    *at = stream->next;
    sim_point_drop(&stream->last);
    sim_stream_leave_capture(stream);
    sim_delete(stream);
}

/* Needs the lock. Finds the stream that a handle denotes in this call. */
CUresult sim_stream(CUstream handle, struct CUstream_st **stream)
{
    struct CUctx_st *ctx;
    if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
        NEED(is(handle, STREAM), CUDA_ERROR_INVALID_HANDLE);
        *stream = handle;
        return (CUresult)handle->head.ctx->error;
    }
    TRY(sim_ctx(&ctx));
    *stream = ctx->legacy;
    if (handle == CU_STREAM_LEGACY || (!handle && !sim_per_thread)) return CUDA_SUCCESS;
    int i = 0;
    while (i < MAX_OWN - 1 && own[i].stream && own[i].ctx != ctx->head.id) i++;
    if (!own[i].stream || own[i].ctx != ctx->head.id) {
        own[i].ctx = ctx->head.id;
        own[i].stream = sim_stream_new(ctx, 0, 0);
    }
    *stream = own[i].stream;
    return CUDA_SUCCESS;
}

static CUresult create(CUstream *stream, unsigned flags, int priority)
{
    LOCKED;
    struct CUctx_st *ctx;
    NEED_VALUE(stream && !(flags & ~(unsigned)CU_STREAM_NON_BLOCKING));
    TRY(sim_ctx(&ctx));
    *stream = sim_stream_new(ctx, flags, priority < -5 ? -5 : priority > 0 ? 0 : priority);
    return CUDA_SUCCESS;
}
API(cuStreamCreate, (CUstream * stream, unsigned flags), (stream, flags))
{
    return create(stream, flags, 0);
}
API(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority), (stream, flags, priority))
{
    return create(stream, flags, priority);
}
/* The remaining work of the stream still runs; its events stay. */
ALIAS(cuStreamDestroy, cuStreamDestroy_v2, (CUstream stream), (stream))
API(cuStreamDestroy_v2, (CUstream stream), (stream))
{
    LOCKED;
    NEED(is(stream, STREAM) && stream != stream->head.ctx->legacy, CUDA_ERROR_INVALID_HANDLE);
    sim_leave_behind(stream);
    sim_stream_free(stream);
    return CUDA_SUCCESS;
}

#define QUERY(symbol, type, expression)                                                                                \
    API_PTSZ(symbol, (CUstream stream, type * out), (stream, out))                                                     \
    {                                                                                                                  \
        LOCKED;                                                                                                        \
        struct CUstream_st *s;                                                                                         \
        NEED_VALUE(out);                                                                                               \
        TRY(sim_stream(stream, &s));                                                                                   \
        *out = expression;                                                                                             \
        return CUDA_SUCCESS;                                                                                           \
    }
QUERY(cuStreamGetPriority, int, s->priority)
QUERY(cuStreamGetFlags, unsigned, s->flags)
QUERY(cuStreamGetId, unsigned long long, s->head.id)
QUERY(cuStreamGetCtx, CUcontext, s->head.ctx)
QUERY(cuStreamGetDevice, CUdevice, s->head.ctx->device)

API_PTSZ(cuStreamGetCtx_v2, (CUstream stream, CUcontext *ctx, CUgreenCtx *green), (stream, ctx, green))
{
    LOCKED;
    struct CUstream_st *s;
    NEED_VALUE(ctx);
    TRY(sim_stream(stream, &s));
    *ctx = s->head.ctx;
    if (green) *green = NULL;
    return CUDA_SUCCESS;
}

API_PTSZ(cuStreamQuery, (CUstream stream), (stream))
{
    LOCKED;
    struct CUstream_st *s;
    TRY(sim_stream(stream, &s));
    TRY(sim_capture_refuse(s));
    if (s->capture) {
        s->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return sim_point_known(&s->last) && s->last.time <= simgpu_now() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
API_PTSZ(cuStreamSynchronize, (CUstream stream), (stream))
{
    LOCKED;
    struct CUstream_st *s;
    uint64_t start = sim_clock();
    TRY(sim_stream(stream, &s));
    TRY(sim_capture_refuse(s));
    if (s->capture) {
        s->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    sim_wait(&s->last);
    if (s == s->head.ctx->legacy) /* it follows all blocking streams */
        for (struct CUstream_st *o = s->head.ctx->streams; o; o = o->next)
            if (o->blocking) sim_wait(&o->last);
    sim_report_sync("stream", s->head.ctx, s->head.id, start);
    return (CUresult)s->head.ctx->error;
}

/* ---- events ---- */

API(cuEventCreate, (CUevent * event, unsigned flags), (event, flags))
{
    LOCKED;
    struct CUctx_st *ctx;
    NEED_VALUE(event && flags < 8);
    TRY(sim_ctx(&ctx));
    NEED(!(flags & CU_EVENT_INTERPROCESS), CUDA_ERROR_NOT_SUPPORTED);
    *event = sim_new(EVENT, sizeof **event, ctx);
    (*event)->flags = flags;
    return CUDA_SUCCESS;
}
ALIAS(cuEventDestroy, cuEventDestroy_v2, (CUevent event), (event))
API(cuEventDestroy_v2, (CUevent event), (event))
{
    LOCKED;
    NEED(is(event, EVENT), CUDA_ERROR_INVALID_HANDLE);
    sim_event_leave_capture(event);
    sim_point_drop(&event->when);
    sim_delete(event);
    return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream stream, unsigned flags)
{
    LOCKED;
    struct CUstream_st *s;
    struct op op = {.kind = OP_RECORD, .event = event};
    NEED(is(event, EVENT), CUDA_ERROR_INVALID_HANDLE);
    NEED_VALUE(flags <= CU_EVENT_RECORD_EXTERNAL);
    TRY(sim_stream(stream, &s));
    NEED(s->head.ctx->device == event->head.ctx->device, CUDA_ERROR_INVALID_HANDLE);
    if (s->capture && flags != CU_EVENT_RECORD_EXTERNAL) return sim_capture_record(s, event);
    TRY(sim_submit(s, &op));
    if (s->capture) return CUDA_SUCCESS;
    sim_event_leave_capture(event);
    event->recorded = true;
    sim_point_set(&event->when, sim_point_copy(&s->last));
    return CUDA_SUCCESS;
}
API_PTSZ(cuEventRecord, (CUevent event, CUstream stream), (event, stream))
{
    return record(event, stream, 0);
}
API_PTSZ(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags), (event, stream, flags))
{
    return record(event, stream, flags);
}

API(cuEventQuery, (CUevent event), (event))
{
    LOCKED;
    NEED(is(event, EVENT), CUDA_ERROR_INVALID_HANDLE);
    NEED(!event->capture, CUDA_ERROR_CAPTURED_EVENT);
    TRY((CUresult)event->head.ctx->error);
    TRY(sim_unsafe());
    return sim_point_known(&event->when) && event->when.time <= simgpu_now() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
API(cuEventSynchronize, (CUevent event), (event))
{
    LOCKED;
    uint64_t start = sim_clock();
    NEED(is(event, EVENT), CUDA_ERROR_INVALID_HANDLE);
    NEED(!event->capture, CUDA_ERROR_CAPTURED_EVENT);
    TRY((CUresult)event->head.ctx->error);
    TRY(sim_unsafe());
    sim_wait(&event->when);
    sim_report_sync("event", event->head.ctx, 0, start);
    return (CUresult)event->head.ctx->error;
}

ALIAS(cuEventElapsedTime, cuEventElapsedTime_v2, (float *ms, CUevent start, CUevent end), (ms, start, end))
API(cuEventElapsedTime_v2, (float *ms, CUevent start, CUevent end), (ms, start, end))
{
    LOCKED;
    NEED_VALUE(ms);
    NEED(is(start, EVENT) && is(end, EVENT), CUDA_ERROR_INVALID_HANDLE);
    NEED(!start->capture && !end->capture, CUDA_ERROR_CAPTURED_EVENT);
    NEED(start->recorded && end->recorded && !((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING),
         CUDA_ERROR_INVALID_HANDLE);
    if (!sim_point_known(&start->when) || !sim_point_known(&end->when) || end->when.time > simgpu_now())
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)(int64_t)(end->when.time - start->when.time) / 1e6);
    return CUDA_SUCCESS;
}

API_PTSZ(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), (stream, event, flags))
{
    LOCKED;
    struct CUstream_st *s;
    uint64_t start = sim_clock();
    NEED(is(event, EVENT), CUDA_ERROR_INVALID_HANDLE);
    NEED_VALUE(flags <= CU_EVENT_WAIT_EXTERNAL);
    TRY(sim_stream(stream, &s));
    TRY(sim_capture_refuse(s));
    if (flags == CU_EVENT_WAIT_EXTERNAL && s->capture)
        return sim_capture_op(s, &(struct op){.kind = OP_WAIT, .event = event});
    if (s->capture || event->capture) return sim_capture_wait(s, event);
    TRY(sim_submit_after(s, sim_point_copy(&event->when)));
    sim_report_sync("wait", s->head.ctx, s->head.id, start);
    return CUDA_SUCCESS;
}

/* ---- host functions and values ---- */

API_PTSZ(cuLaunchHostFunc, (CUstream stream, CUhostFn fn, void *user), (stream, fn, user))
{
    LOCKED;
    struct CUstream_st *s;
    struct op op = {.kind = OP_HOST, .host = {.fn = fn, .user = user}};
    NEED_VALUE(fn);
    TRY(sim_stream(stream, &s));
    return sim_submit(s, &op);
}
API_PTSZ(cuStreamAddCallback, (CUstream stream, CUstreamCallback callback, void *user, unsigned flags),
         (stream, callback, user, flags))
{
    LOCKED;
    struct CUstream_st *s;
    struct op op = {.kind = OP_HOST, .host = {.callback = callback, .stream = stream, .user = user}};
    NEED_VALUE(callback && flags == 0);
    TRY(sim_stream(stream, &s));
    NEED(!s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return sim_submit(s, &op);
}

static CUresult write_value(CUstream stream, CUdeviceptr_v2 address, uint64_t value, unsigned size)
{
    LOCKED;
    struct CUstream_st *s;
    struct op op = {.kind = OP_WRITE, .write = {(char *)address, value, size, 0}};
    NEED_VALUE(sim_region((void *)address) && address % size == 0);
    TRY(sim_stream(stream, &s));
    return sim_submit(s, &op);
}
API_PTSZ(cuStreamWriteValue32_v2, (CUstream stream, CUdeviceptr_v2 address, cuuint32_t value, unsigned flags),
         (stream, address, value, flags))
{
    return write_value(stream, address, value, 4);
}
API_PTSZ(cuStreamWriteValue64_v2, (CUstream stream, CUdeviceptr_v2 address, cuuint64_t value, unsigned flags),
         (stream, address, value, flags))
{
    return write_value(stream, address, value, 8);
}

static CUresult wait_value(CUstream stream, CUdeviceptr_v2 address, uint64_t value, unsigned size, unsigned flags)
{
    LOCKED;
    struct CUstream_st *s;
    struct op op = {.kind = OP_POLL, .write = {(char *)address, value, size, flags}};
    NEED_VALUE(sim_region((void *)address) && address % size == 0);
    TRY(sim_stream(stream, &s));
    return sim_submit(s, &op);
}
API_PTSZ(cuStreamWaitValue32_v2, (CUstream stream, CUdeviceptr_v2 address, cuuint32_t value, unsigned flags),
         (stream, address, value, flags))
{
    return wait_value(stream, address, value, 4, flags);
}
API_PTSZ(cuStreamWaitValue64_v2, (CUstream stream, CUdeviceptr_v2 address, cuuint64_t value, unsigned flags),
         (stream, address, value, flags))
{
    return wait_value(stream, address, value, 8, flags);
}

API_PTSZ(cuStreamAttachMemAsync, (CUstream stream, CUdeviceptr_v2 dptr, size_t length, unsigned flags),
         (stream, dptr, length, flags))
{
    LOCKED;
    struct CUstream_st *s;
    NEED_VALUE(sim_region((void *)dptr));
    return sim_stream(stream, &s);
}
API_PTSZ(cuStreamGetAttribute, (CUstream stream, CUstreamAttrID attr, CUstreamAttrValue *value), (stream, attr, value))
{
    LOCKED;
    struct CUstream_st *s;
    NEED_VALUE(value);
    TRY(sim_stream(stream, &s));
    memset(value, 0, sizeof *value);
    if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) value->priority = s->priority;
    return CUDA_SUCCESS;
}
API_PTSZ(cuStreamSetAttribute, (CUstream stream, CUstreamAttrID attr, const CUstreamAttrValue *value),
         (stream, attr, value))
{
    LOCKED;
    struct CUstream_st *s;
    NEED_VALUE(value);
    TRY(sim_stream(stream, &s));
    if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) s->priority = value->priority;
    return CUDA_SUCCESS;
}
API_PTSZ(cuStreamCopyAttributes, (CUstream dst, CUstream src), (dst, src))
{
    LOCKED;
    struct CUstream_st *d, *s;
    TRY(sim_stream(dst, &d));
    return sim_stream(src, &s);
}
