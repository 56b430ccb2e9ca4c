/* rt_12.c - the simulated runtime's functions of release 12: parameters that changed in 13, and the names with _v2.
 *
 * The headers of 12.x check each prototype. With the headers of 13 this file is empty.
 */
#include "rt.h"

#if CUDART_VERSION < 13000

/* ---- memory: a location was a device, or -1 for the host ---- */

static CUmemLocation place(struct cudaMemLocation location)
{
    return (CUmemLocation){.type = (CUmemLocationType)location.type, .id = location.id};
}
static CUmemLocation device(int number)
{
    CUmemLocationType type = number < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
    return (CUmemLocation){.type = type, .id = number < 0 ? 0 : number};
}
SAME_PTSZ(cudaMemPrefetchAsync, (const void *p, size_t count, int to, cudaStream_t stream), (p, count, to, stream),
          cuMemPrefetchAsync, (CUdeviceptr)p, count, device(to), 0, stream)
SAME_PTSZ(cudaMemPrefetchAsync_v2,
          (const void *p, size_t count, struct cudaMemLocation location, unsigned flags, cudaStream_t stream),
          (p, count, location, flags, stream), cuMemPrefetchAsync, (CUdeviceptr)p, count, place(location), flags,
          stream)
SAME(cudaMemAdvise, (const void *p, size_t count, enum cudaMemoryAdvise advice, int to), (p, count, advice, to),
     cuMemAdvise, (CUdeviceptr)p, count, (CUmem_advise)advice, device(to))
SAME(cudaMemAdvise_v2, (const void *p, size_t count, enum cudaMemoryAdvise advice, struct cudaMemLocation location),
     (p, count, advice, location), cuMemAdvise, (CUdeviceptr)p, count, (CUmem_advise)advice, place(location))

/* ---- events and captures ---- */

SAME(cudaEventElapsedTime_v2, (float *ms, cudaEvent_t start, cudaEvent_t end), (ms, start, end), cuEventElapsedTime, ms,
     start, end)
SAME_PTSZ(cudaStreamGetCaptureInfo, (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id),
          (stream, status, id), cuStreamGetCaptureInfo, stream, (CUstreamCaptureStatus *)status, (cuuint64_t *)id, NULL,
          NULL, NULL, NULL)
SAME_PTSZ(cudaStreamGetCaptureInfo_v2,
          (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
           const cudaGraphNode_t **deps, size_t *n),
          (stream, status, id, graph, deps, n), cuStreamGetCaptureInfo, stream, (CUstreamCaptureStatus *)status,
          (cuuint64_t *)id, graph, deps, NULL, n)
SAME_PTSZ(cudaStreamGetCaptureInfo_v3,
          (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
           const cudaGraphNode_t **deps, const cudaGraphEdgeData **edges, size_t *n),
          (stream, status, id, graph, deps, edges, n), cuStreamGetCaptureInfo, stream, (CUstreamCaptureStatus *)status,
          (cuuint64_t *)id, graph, deps, (const CUgraphEdgeData **)edges, n)
SAME_PTSZ(cudaStreamUpdateCaptureDependencies, (cudaStream_t stream, cudaGraphNode_t *deps, size_t n, unsigned flags),
          (stream, deps, n, flags), cuStreamUpdateCaptureDependencies, stream, deps, NULL, n, flags)
SAME_PTSZ(cudaStreamUpdateCaptureDependencies_v2,
          (cudaStream_t stream, cudaGraphNode_t *deps, const cudaGraphEdgeData *edges, size_t n, unsigned flags),
          (stream, deps, edges, n, flags), cuStreamUpdateCaptureDependencies, stream, deps,
          (const CUgraphEdgeData *)edges, n, flags)

/* ---- edges of graphs ---- */

typedef const cudaGraphNode_t *nodes;
#define EDGES const cudaGraphEdgeData *
SAME(cudaGraphGetEdges, (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, size_t *n),
     (graph, from, to, n), cuGraphGetEdges, graph, from, to, NULL, n)
SAME(cudaGraphGetEdges_v2,
     (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *data, size_t *n),
     (graph, from, to, data, n), cuGraphGetEdges, graph, from, to, (CUgraphEdgeData *)data, n)
SAME(cudaGraphNodeGetDependencies, (cudaGraphNode_t node, cudaGraphNode_t *out, size_t *n), (node, out, n),
     cuGraphNodeGetDependencies, node, out, NULL, n)
SAME(cudaGraphNodeGetDependencies_v2, (cudaGraphNode_t node, cudaGraphNode_t *out, cudaGraphEdgeData *data, size_t *n),
     (node, out, data, n), cuGraphNodeGetDependencies, node, out, (CUgraphEdgeData *)data, n)
SAME(cudaGraphNodeGetDependentNodes, (cudaGraphNode_t node, cudaGraphNode_t *out, size_t *n), (node, out, n),
     cuGraphNodeGetDependentNodes, node, out, NULL, n)
SAME(cudaGraphNodeGetDependentNodes_v2,
     (cudaGraphNode_t node, cudaGraphNode_t *out, cudaGraphEdgeData *data, size_t *n), (node, out, data, n),
     cuGraphNodeGetDependentNodes, node, out, (CUgraphEdgeData *)data, n)
SAME(cudaGraphAddDependencies, (cudaGraph_t graph, nodes from, nodes to, size_t n), (graph, from, to, n),
     cuGraphAddDependencies, graph, from, to, NULL, n)
SAME(cudaGraphAddDependencies_v2, (cudaGraph_t graph, nodes from, nodes to, EDGES data, size_t n),
     (graph, from, to, data, n), cuGraphAddDependencies, graph, from, to, (const CUgraphEdgeData *)data, n)
SAME(cudaGraphRemoveDependencies, (cudaGraph_t graph, nodes from, nodes to, size_t n), (graph, from, to, n),
     cuGraphRemoveDependencies, graph, from, to, NULL, n)
SAME(cudaGraphRemoveDependencies_v2, (cudaGraph_t graph, nodes from, nodes to, EDGES data, size_t n),
     (graph, from, to, data, n), cuGraphRemoveDependencies, graph, from, to, (const CUgraphEdgeData *)data, n)

#endif
