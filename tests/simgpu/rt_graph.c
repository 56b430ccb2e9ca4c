/* rt_graph.c - the simulated runtime's graphs, whose handles are the driver's, and the user objects of graphs. */
#include <pthread.h>
#include <stdlib.h>

#include "rt.h"

typedef const cudaGraphNode_t *nodes;

/* ---- user objects: counted by references of the program and of graphs, copies and instances ---- */

struct CUuserObject_st {
    cudaHostFn_t destroy;
    void *data;
    unsigned references;
};
static pthread_mutex_t object_lock = PTHREAD_MUTEX_INITIALIZER;
static struct holding {
    struct holding *next;
    const void *owner;
    cudaUserObject_t object;
    unsigned count;
} * holdings;

static cudaError_t let_go(cudaUserObject_t object, unsigned count)
{
    pthread_mutex_lock(&object_lock);
    bool enough = object->references >= count, last = object->references == count;
    if (enough) object->references -= count;
    pthread_mutex_unlock(&object_lock);
    if (last) {
        object->destroy(object->data);
        free(object);
    }
    return enough ? cudaSuccess : cudaErrorInvalidValue;
}

static void hold(const void *owner, cudaUserObject_t object, unsigned count, bool move)
{
    struct holding *h = malloc(sizeof *h);
    if (!h) return;
    pthread_mutex_lock(&object_lock);
    *h = (struct holding){holdings, owner, object, count};
    holdings = h;
    if (!move) object->references += count;
    pthread_mutex_unlock(&object_lock);
}

/* Walks the list without the lock: only the thread that works on a graph changes what the graph keeps. */
static cudaError_t copied(cudaError_t error, const void *graph, const void *to)
{
    struct holding *h = error ? NULL : __atomic_load_n(&holdings, __ATOMIC_ACQUIRE);
    for (; h; h = h->next)
        if (h->owner == graph && h->count) hold(to, h->object, h->count, false);
    return error;
}

static cudaError_t destroyed(cudaError_t error, const void *owner)
{
    struct holding *h = error ? NULL : __atomic_load_n(&holdings, __ATOMIC_ACQUIRE);
    for (; h; h = h->next) {
        unsigned count = h->count;
        if (h->owner != owner || !count) continue;
        h->count = 0;
        h->owner = NULL;
        let_go(h->object, count);
    }
    return error;
}

RT_BARE(cudaUserObjectCreate,
        (cudaUserObject_t * out, void *data, cudaHostFn_t destroy, unsigned references, unsigned flags),
        (out, data, destroy, references, flags))
{
    NEED_VALUE(out && destroy && references && flags == cudaUserObjectNoDestructorSync);
    cudaUserObject_t object = malloc(sizeof *object);
    if (!object) return cudaErrorMemoryAllocation;
    *object = (struct CUuserObject_st){destroy, data, references};
    *out = object;
    return cudaSuccess;
}
RT_BARE(cudaUserObjectRelease, (cudaUserObject_t object, unsigned count), (object, count))
{
    NEED_VALUE(object && count);
    return let_go(object, count);
}
RT_BARE(cudaGraphRetainUserObject, (cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags),
        (graph, object, count, flags))
{
    NEED_VALUE(graph && object && count && flags <= cudaGraphUserObjectMove);
    hold(graph, object, count, flags == cudaGraphUserObjectMove);
    return cudaSuccess;
}

/* ---- graphs ---- */

SAME(cudaGraphCreate, (cudaGraph_t * graph, unsigned flags), (graph, flags), cuGraphCreate, graph, flags)
RT(cudaGraphDestroy, (cudaGraph_t graph), (graph))
{
    return destroyed((cudaError_t)DRV(cuGraphDestroy)(graph), graph);
}
RT(cudaGraphClone, (cudaGraph_t * clone, cudaGraph_t graph), (clone, graph))
{
    cudaError_t error = (cudaError_t)DRV(cuGraphClone)(clone, graph);
    return copied(error, graph, error ? NULL : *clone);
}
SAME(cudaGraphDestroyNode, (cudaGraphNode_t node), (node), cuGraphDestroyNode, node)
SAME(cudaGraphNodeFindInClone, (cudaGraphNode_t * out, cudaGraphNode_t node, cudaGraph_t clone), (out, node, clone),
     cuGraphNodeFindInClone, out, node, clone)
/* Runtime and driver number the kinds alike. */
SAME(cudaGraphNodeGetType, (cudaGraphNode_t node, enum cudaGraphNodeType *type), (node, type), cuGraphNodeGetType, node,
     (CUgraphNodeType *)type)
SAME(cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t *out, size_t *n), (graph, out, n), cuGraphGetNodes, graph,
     out, n)
SAME(cudaGraphGetRootNodes, (cudaGraph_t graph, cudaGraphNode_t *out, size_t *n), (graph, out, n), cuGraphGetRootNodes,
     graph, out, n)
SAME(cudaGraphDebugDotPrint, (cudaGraph_t graph, const char *path, unsigned flags), (graph, path, flags),
     cuGraphDebugDotPrint, graph, path, flags)

#if CUDART_VERSION >= 13000
#define EDGES const cudaGraphEdgeData *
SAME(cudaGraphGetEdges,
     (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *data, size_t *n),
     (graph, from, to, data, n), cuGraphGetEdges, graph, from, to, (CUgraphEdgeData *)data, n)
SAME(cudaGraphNodeGetDependencies, (cudaGraphNode_t node, cudaGraphNode_t *out, cudaGraphEdgeData *data, size_t *n),
     (node, out, data, n), cuGraphNodeGetDependencies, node, out, (CUgraphEdgeData *)data, n)
SAME(cudaGraphNodeGetDependentNodes, (cudaGraphNode_t node, cudaGraphNode_t *out, cudaGraphEdgeData *data, size_t *n),
     (node, out, data, n), cuGraphNodeGetDependentNodes, node, out, (CUgraphEdgeData *)data, n)
SAME(cudaGraphAddDependencies, (cudaGraph_t graph, nodes from, nodes to, EDGES data, size_t n),
     (graph, from, to, data, n), cuGraphAddDependencies, graph, from, to, (const CUgraphEdgeData *)data, n)
SAME(cudaGraphRemoveDependencies, (cudaGraph_t graph, nodes from, nodes to, EDGES data, size_t n),
     (graph, from, to, data, n), cuGraphRemoveDependencies, graph, from, to, (const CUgraphEdgeData *)data, n)
#endif

/* ---- nodes ---- */

static cudaError_t kernel(const struct cudaKernelNodeParams *p, CUDA_KERNEL_NODE_PARAMS_v2 *q)
{
    NEED_VALUE(p);
    *q = (CUDA_KERNEL_NODE_PARAMS_v2){.func = (CUfunction)rt_kernel(p->func),
                                      .gridDimX = p->gridDim.x,
                                      .gridDimY = p->gridDim.y,
                                      .gridDimZ = p->gridDim.z,
                                      .blockDimX = p->blockDim.x,
                                      .blockDimY = p->blockDim.y,
                                      .blockDimZ = p->blockDim.z,
                                      .sharedMemBytes = p->sharedMemBytes,
                                      .kernelParams = p->kernelParams,
                                      .extra = p->extra};
    return q->func ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}
static CUcontext context(void)
{
    CUcontext ctx = NULL;
    DRV(cuCtxGetCurrent)(&ctx);
    return ctx;
}
#define ADD_PARAMS(...) (cudaGraphNode_t * out, cudaGraph_t graph, nodes deps, size_t n, __VA_ARGS__)

RT(cudaGraphAddKernelNode, ADD_PARAMS(const struct cudaKernelNodeParams *p), (out, graph, deps, n, p))
{
    CUDA_KERNEL_NODE_PARAMS_v2 q;
    TRY(kernel(p, &q));
    return (cudaError_t)DRV(cuGraphAddKernelNode)(out, graph, deps, n, &q);
}
RT(cudaGraphKernelNodeSetParams, (cudaGraphNode_t node, const struct cudaKernelNodeParams *p), (node, p))
{
    CUDA_KERNEL_NODE_PARAMS_v2 q;
    TRY(kernel(p, &q));
    return (cudaError_t)DRV(cuGraphKernelNodeSetParams)(node, &q);
}
RT(cudaGraphExecKernelNodeSetParams, (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaKernelNodeParams *p),
   (exec, node, p))
{
    CUDA_KERNEL_NODE_PARAMS_v2 q;
    TRY(kernel(p, &q));
    return (cudaError_t)DRV(cuGraphExecKernelNodeSetParams)(exec, node, &q);
}
RT(cudaGraphAddMemcpyNode, ADD_PARAMS(const struct cudaMemcpy3DParms *p), (out, graph, deps, n, p))
{
    NEED_VALUE(p);
    CUDA_MEMCPY3D q = rt_box(p);
    return (cudaError_t)DRV(cuGraphAddMemcpyNode)(out, graph, deps, n, &q, context());
}
RT(cudaGraphAddMemcpyNode1D, ADD_PARAMS(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind),
   (out, graph, deps, n, dst, src, count, kind))
{
    struct cudaMemcpy3DParms p = {
        .srcPtr = {(void *)src, count, count, 1}, .dstPtr = {dst, count, count, 1}, .kind = kind};
    p.extent = (struct cudaExtent){count, 1, 1};
    CUDA_MEMCPY3D q = rt_box(&p);
    return (cudaError_t)DRV(cuGraphAddMemcpyNode)(out, graph, deps, n, &q, context());
}
RT(cudaGraphAddMemsetNode, ADD_PARAMS(const struct cudaMemsetParams *p), (out, graph, deps, n, p))
{
    NEED_VALUE(p);
    CUDA_MEMSET_NODE_PARAMS q = {(CUdeviceptr)p->dst, p->pitch, p->value, p->elementSize, p->width, p->height};
    return (cudaError_t)DRV(cuGraphAddMemsetNode)(out, graph, deps, n, &q, context());
}
RT(cudaGraphAddHostNode, ADD_PARAMS(const struct cudaHostNodeParams *p), (out, graph, deps, n, p))
{
    NEED_VALUE(p);
    CUDA_HOST_NODE_PARAMS q = {p->fn, p->userData};
    return (cudaError_t)DRV(cuGraphAddHostNode)(out, graph, deps, n, &q);
}
SAME(cudaGraphAddChildGraphNode, ADD_PARAMS(cudaGraph_t child), (out, graph, deps, n, child), cuGraphAddChildGraphNode,
     out, graph, deps, n, child)
SAME(cudaGraphAddEmptyNode, (cudaGraphNode_t * out, cudaGraph_t graph, nodes deps, size_t n), (out, graph, deps, n),
     cuGraphAddEmptyNode, out, graph, deps, n)
SAME(cudaGraphAddEventRecordNode, ADD_PARAMS(cudaEvent_t event), (out, graph, deps, n, event),
     cuGraphAddEventRecordNode, out, graph, deps, n, event)
SAME(cudaGraphAddEventWaitNode, ADD_PARAMS(cudaEvent_t event), (out, graph, deps, n, event), cuGraphAddEventWaitNode,
     out, graph, deps, n, event)

/* ---- executable graphs ---- */

static cudaError_t instantiated(cudaError_t error, cudaGraph_t graph, const cudaGraphExec_t *exec)
{
    return copied(error, graph, error ? NULL : *exec);
}
RT(cudaGraphInstantiate, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags), (exec, graph, flags))
{
    return instantiated((cudaError_t)DRV(cuGraphInstantiateWithFlags)(exec, graph, flags), graph, exec);
}
RT(cudaGraphInstantiateWithFlags, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
   (exec, graph, flags))
{
    return instantiated((cudaError_t)DRV(cuGraphInstantiateWithFlags)(exec, graph, flags), graph, exec);
}
RT_PTSZ(cudaGraphInstantiateWithParams, (cudaGraphExec_t * exec, cudaGraph_t graph, cudaGraphInstantiateParams *params),
        (exec, graph, params))
{
    CUDA_GRAPH_INSTANTIATE_PARAMS *p = (CUDA_GRAPH_INSTANTIATE_PARAMS *)params;
    return instantiated((cudaError_t)DRV(cuGraphInstantiateWithParams)(exec, graph, p), graph, exec);
}
RT(cudaGraphExecDestroy, (cudaGraphExec_t exec), (exec))
{
    return destroyed((cudaError_t)DRV(cuGraphExecDestroy)(exec), exec);
}
SAME(cudaGraphExecGetFlags, (cudaGraphExec_t exec, unsigned long long *flags), (exec, flags), cuGraphExecGetFlags, exec,
     (cuuint64_t *)flags)
SAME(cudaGraphExecUpdate, (cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info),
     (exec, graph, info), cuGraphExecUpdate, exec, graph, (CUgraphExecUpdateResultInfo *)info)
SAME(cudaGraphNodeSetEnabled, (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned enabled), (exec, node, enabled),
     cuGraphNodeSetEnabled, exec, node, enabled)
SAME(cudaGraphNodeGetEnabled, (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned *enabled), (exec, node, enabled),
     cuGraphNodeGetEnabled, exec, node, enabled)
SAME_PTSZ(cudaGraphUpload, (cudaGraphExec_t exec, cudaStream_t stream), (exec, stream), cuGraphUpload, exec, stream)
SAME_PTSZ(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream), (exec, stream), cuGraphLaunch, exec, stream)
