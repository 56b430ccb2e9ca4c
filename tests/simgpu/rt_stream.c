/* rt_stream.c - the simulated runtime's streams, events, captures and host functions. */
#include <stdlib.h>

#include "rt.h"

SAME(cudaStreamCreate, (cudaStream_t * stream), (stream), cuStreamCreate, stream, 0)
SAME(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags), (stream, flags), cuStreamCreate, stream, flags)
SAME(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned flags, int priority), (stream, flags, priority),
     cuStreamCreateWithPriority, stream, flags, priority)
SAME(cudaStreamDestroy, (cudaStream_t stream), (stream), cuStreamDestroy, stream)
SAME_PTSZ(cudaStreamGetPriority, (cudaStream_t stream, int *priority), (stream, priority), cuStreamGetPriority, stream,
          priority)
SAME_PTSZ(cudaStreamGetFlags, (cudaStream_t stream, unsigned *flags), (stream, flags), cuStreamGetFlags, stream, flags)
SAME_PTSZ(cudaStreamGetId, (cudaStream_t stream, unsigned long long *id), (stream, id), cuStreamGetId, stream, id)
#if CUDART_VERSION >= 12080
SAME_PTSZ(cudaStreamGetDevice, (cudaStream_t stream, int *device), (stream, device), cuStreamGetDevice, stream, device)
#endif
SAME_PTSZ(cudaStreamQuery, (cudaStream_t stream), (stream), cuStreamQuery, stream)
SAME_PTSZ(cudaStreamSynchronize, (cudaStream_t stream), (stream), cuStreamSynchronize, stream)
SAME_PTSZ(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags), (stream, event, flags),
          cuStreamWaitEvent, stream, event, flags)
SAME_PTSZ(cudaStreamAttachMemAsync, (cudaStream_t stream, void *p, size_t length, unsigned flags),
          (stream, p, length, flags), cuStreamAttachMemAsync, stream, (CUdeviceptr)p, length, flags)
SAME_PTSZ(cudaStreamCopyAttributes, (cudaStream_t dst, cudaStream_t src), (dst, src), cuStreamCopyAttributes, dst, src)
SAME_PTSZ(cudaStreamGetAttribute, (cudaStream_t stream, cudaStreamAttrID attr, cudaStreamAttrValue *value),
          (stream, attr, value), cuStreamGetAttribute, stream, (CUstreamAttrID)attr, (CUstreamAttrValue *)value)
SAME_PTSZ(cudaStreamSetAttribute, (cudaStream_t stream, cudaStreamAttrID attr, const cudaStreamAttrValue *value),
          (stream, attr, value), cuStreamSetAttribute, stream, (CUstreamAttrID)attr, (const CUstreamAttrValue *)value)

SAME(cudaEventCreate, (cudaEvent_t * event), (event), cuEventCreate, event, 0)
SAME(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned flags), (event, flags), cuEventCreate, event, flags)
SAME(cudaEventDestroy, (cudaEvent_t event), (event), cuEventDestroy, event)
SAME_PTSZ(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), (event, stream), cuEventRecord, event, stream)
SAME_PTSZ(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned flags), (event, stream, flags),
          cuEventRecordWithFlags, event, stream, flags)
SAME(cudaEventQuery, (cudaEvent_t event), (event), cuEventQuery, event)
SAME(cudaEventSynchronize, (cudaEvent_t event), (event), cuEventSynchronize, event)
SAME(cudaEventElapsedTime, (float *ms, cudaEvent_t start, cudaEvent_t end), (ms, start, end), cuEventElapsedTime, ms,
     start, end)

/* ---- host functions ---- */

SAME_PTSZ(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t fn, void *user), (stream, fn, user), cuLaunchHostFunc,
          stream, fn, user)

struct callback {
    cudaStreamCallback_t function;
    void *user;
};
static void call_back(CUstream stream, CUresult status, void *user)
{
    struct callback c = *(struct callback *)user;
    free(user);
    c.function(stream, (cudaError_t)status, c.user);
}
RT_PTSZ(cudaStreamAddCallback, (cudaStream_t stream, cudaStreamCallback_t function, void *user, unsigned flags),
        (stream, function, user, flags))
{
    struct callback *c = malloc(sizeof *c);
    NEED_VALUE(function && c);
    *c = (struct callback){function, user};
    cudaError_t result = (cudaError_t)DRV(cuStreamAddCallback)(stream, call_back, c, flags);
    if (result) free(c);
    return result;
}

/* ---- captures ---- */

SAME_PTSZ(cudaStreamBeginCapture, (cudaStream_t stream, enum cudaStreamCaptureMode mode), (stream, mode),
          cuStreamBeginCapture, stream, (CUstreamCaptureMode)mode)
SAME_PTSZ(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *graph), (stream, graph), cuStreamEndCapture, stream,
          graph)
SAME_PTSZ(cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status), (stream, status),
          cuStreamIsCapturing, stream, (CUstreamCaptureStatus *)status)
SAME(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode * mode), (mode),
     cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *)mode)
#if CUDART_VERSION >= 12030
SAME_PTSZ(cudaStreamBeginCaptureToGraph,
          (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *deps, const cudaGraphEdgeData *edges,
           size_t n, enum cudaStreamCaptureMode mode),
          (stream, graph, deps, edges, n, mode), cuStreamBeginCaptureToGraph, stream, graph, deps,
          (const CUgraphEdgeData *)edges, n, (CUstreamCaptureMode)mode)
#endif
#if CUDART_VERSION >= 13000
SAME_PTSZ(cudaStreamGetCaptureInfo,
          (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
           const cudaGraphNode_t **deps, const cudaGraphEdgeData **edges, size_t *n),
          (stream, status, id, graph, deps, edges, n), cuStreamGetCaptureInfo, stream, (CUstreamCaptureStatus *)status,
          (cuuint64_t *)id, graph, deps, (const CUgraphEdgeData **)edges, n)
SAME_PTSZ(cudaStreamUpdateCaptureDependencies,
          (cudaStream_t stream, cudaGraphNode_t *deps, const cudaGraphEdgeData *edges, size_t n, unsigned flags),
          (stream, deps, edges, n, flags), cuStreamUpdateCaptureDependencies, stream, deps,
          (const CUgraphEdgeData *)edges, n, flags)
#endif
