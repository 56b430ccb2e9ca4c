/* node.c - the kinds of graph nodes: adds nodes, and reads and changes their parameters, also in executable graphs. */
#include <stdlib.h>

#include "model.h"

/* ---- from parameters to operations; all need the lock ---- */

static CUresult kernel_op(struct op *op, CUfunction f, CUkernel k, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
    const unsigned grid[3] = {p->gridDimX, p->gridDimY, p->gridDimZ},
                   block[3] = {p->blockDimX, p->blockDimY, p->blockDimZ};
    return sim_kernel_of(op, f ? f : (CUfunction)k, grid, block, p->sharedMemBytes);
}
static CUresult host_op(struct op *op, CUhostFn fn, void *user)
{
    NEED_VALUE(fn);
    *op = (struct op){.kind = OP_HOST, .host = {.fn = fn, .user = user}};
    return CUDA_SUCCESS;
}
static CUresult event_op(struct op *op, enum op_kind kind, CUevent event)
{
    NEED_VALUE(is(event, EVENT));
    *op = (struct op){.kind = kind, .event = event};
    return CUDA_SUCCESS;
}
static CUresult child_op(struct op *op, CUgraph child)
{
    NEED_VALUE(is(child, GRAPH));
    *op = (struct op){.kind = OP_CHILD, .child = sim_graph_copy(child)};
    NEED_VALUE(op->child);
    return CUDA_SUCCESS;
}
static CUresult alloc_op(struct op *op, CUDA_MEM_ALLOC_NODE_PARAMS_v1 *p)
{
    struct CUctx_st *ctx;
    void *base;
    NEED_VALUE(p);
    TRY(sim_ctx(&ctx));
    NEED(sim_device_ok(p->poolProps.location.id), CUDA_ERROR_INVALID_DEVICE);
    TRY(sim_graph_alloc(ctx, p->poolProps.location.id, p->bytesize, &base));
    p->dptr = (CUdeviceptr_v2)base;
    *op = (struct op){.kind = OP_ALLOC, .memory = {base, p->bytesize, p->poolProps.location.id, *p}};
    return CUDA_SUCCESS;
}
static CUresult free_op(struct op *op, CUdeviceptr_v2 dptr)
{
    NEED_VALUE(sim_region((void *)dptr));
    *op = (struct op){.kind = OP_FREE, .memory = {.base = (char *)dptr}};
    return CUDA_SUCCESS;
}

/* A handle is a number, with the value at each launch in its lower half. */
API(cuGraphConditionalHandleCreate,
    (CUgraphConditionalHandle * handle, CUgraph graph, CUcontext ctx, unsigned value, unsigned flags),
    (handle, graph, ctx, value, flags))
{
    static uint32_t handles;
    LOCKED;
    NEED_VALUE(handle && is(graph, GRAPH) && flags <= CU_GRAPH_COND_ASSIGN_DEFAULT);
    *handle = (uint64_t)++handles << 32 | (flags ? value : 0);
    return CUDA_SUCCESS;
}
static CUresult condition_op(struct op *op, CUDA_CONDITIONAL_NODE_PARAMS *p)
{
    NEED_VALUE(p->size && p->size <= (p->type == CU_GRAPH_COND_TYPE_IF      ? 2
                                      : p->type == CU_GRAPH_COND_TYPE_WHILE ? 1
                                                                            : 64));
    *op = (struct op){.kind = OP_CONDITION, .condition = {p->type, p->size, (uint32_t)p->handle, NULL}};
    op->condition.body = calloc(p->size, sizeof *op->condition.body);
    for (unsigned i = 0; i < p->size; i++) op->condition.body[i] = sim_graph_new();
    p->phGraph_out = op->condition.body;
    return CUDA_SUCCESS;
}

static CUresult generic_op(struct op *op, CUgraphNodeParams *p)
{
    NEED_VALUE(p);
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_op(op, p->kernel.func, p->kernel.kern, (const CUDA_KERNEL_NODE_PARAMS_v1 *)&p->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return sim_copy_of(&p->memcpy.copyParams, op);
    case CU_GRAPH_NODE_TYPE_MEMSET: return sim_set_of((const CUDA_MEMSET_NODE_PARAMS_v1 *)&p->memset, op);
    case CU_GRAPH_NODE_TYPE_HOST: return host_op(op, p->host.fn, p->host.userData);
    case CU_GRAPH_NODE_TYPE_GRAPH: return child_op(op, p->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY: *op = (struct op){.kind = OP_EMPTY}; return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return event_op(op, OP_WAIT, p->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return event_op(op, OP_RECORD, p->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return free_op(op, p->free.dptr);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return condition_op(op, &p->conditional);
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* ---- additions ---- */

#define ADD_PARAMS(...) (CUgraphNode * out, CUgraph graph, const CUgraphNode *deps, size_t n, __VA_ARGS__)
#define ADD(make)                                                                                                      \
    LOCKED;                                                                                                            \
    struct op op;                                                                                                      \
    NEED_VALUE(out &&is(graph, GRAPH));                                                                                \
    TRY(make);                                                                                                         \
    return sim_node_add(graph, deps, n, &op, out)

API(cuGraphAddKernelNode, ADD_PARAMS(const CUDA_KERNEL_NODE_PARAMS_v1 *p), (out, graph, deps, n, p))
{
    NEED_VALUE(p);
    ADD(kernel_op(&op, p->func, NULL, p));
}
/* The first version is a prefix of the second. */
API(cuGraphAddKernelNode_v2, ADD_PARAMS(const CUDA_KERNEL_NODE_PARAMS_v2 *p), (out, graph, deps, n, p))
{
    NEED_VALUE(p);
    ADD(kernel_op(&op, p->func, p->kern, (const CUDA_KERNEL_NODE_PARAMS_v1 *)p));
}
API(cuGraphAddMemcpyNode, ADD_PARAMS(const CUDA_MEMCPY3D_v2 *p, CUcontext ctx), (out, graph, deps, n, p, ctx))
{
    NEED_VALUE(p);
    ADD(sim_copy_of(p, &op));
}
API(cuGraphAddMemsetNode, ADD_PARAMS(const CUDA_MEMSET_NODE_PARAMS_v1 *p, CUcontext ctx), (out, graph, deps, n, p, ctx))
{
    NEED_VALUE(p);
    ADD(sim_set_of(p, &op));
}
API(cuGraphAddHostNode, ADD_PARAMS(const CUDA_HOST_NODE_PARAMS_v1 *p), (out, graph, deps, n, p))
{
    NEED_VALUE(p);
    ADD(host_op(&op, p->fn, p->userData));
}
API(cuGraphAddChildGraphNode, ADD_PARAMS(CUgraph child), (out, graph, deps, n, child))
{
    ADD(child_op(&op, child));
}
API(cuGraphAddEmptyNode, (CUgraphNode * out, CUgraph graph, const CUgraphNode *deps, size_t n), (out, graph, deps, n))
{
    ADD((op = (struct op){.kind = OP_EMPTY}, CUDA_SUCCESS));
}
API(cuGraphAddEventRecordNode, ADD_PARAMS(CUevent event), (out, graph, deps, n, event))
{
    ADD(event_op(&op, OP_RECORD, event));
}
API(cuGraphAddEventWaitNode, ADD_PARAMS(CUevent event), (out, graph, deps, n, event))
{
    ADD(event_op(&op, OP_WAIT, event));
}
API(cuGraphAddMemAllocNode, ADD_PARAMS(CUDA_MEM_ALLOC_NODE_PARAMS_v1 *p), (out, graph, deps, n, p))
{
    ADD(alloc_op(&op, p));
}
API(cuGraphAddMemFreeNode, ADD_PARAMS(CUdeviceptr_v2 dptr), (out, graph, deps, n, dptr))
{
    ADD(free_op(&op, dptr));
}
API(cuGraphAddNode, ADD_PARAMS(CUgraphNodeParams *p), (out, graph, deps, n, p))
{
    ADD(generic_op(&op, p));
}
API(cuGraphAddNode_v2,
    (CUgraphNode * out, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *data, size_t n,
     CUgraphNodeParams *p),
    (out, graph, deps, data, n, p))
{
    ADD(generic_op(&op, p));
}

/* ---- queries ---- */

API(cuGraphNodeGetType, (CUgraphNode node, CUgraphNodeType *type), (node, type))
{
    static const CUgraphNodeType types[] = {[OP_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY,
                                            [OP_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
                                            [OP_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
                                            [OP_SET] = CU_GRAPH_NODE_TYPE_MEMSET,
                                            [OP_HOST] = CU_GRAPH_NODE_TYPE_HOST,
                                            [OP_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                                            [OP_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                                            [OP_ALLOC] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                                            [OP_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE,
                                            [OP_WRITE] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                                            [OP_POLL] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                                            [OP_CHILD] = CU_GRAPH_NODE_TYPE_GRAPH,
                                            [OP_CONDITION] = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    NEED_VALUE(is(node, NODE) && type);
    *type = types[node->op.kind];
    return CUDA_SUCCESS;
}

#define GET(symbol, type, op_kind, assignment)                                                                         \
    API(symbol, (CUgraphNode node, type * out), (node, out))                                                           \
    {                                                                                                                  \
        LOCKED;                                                                                                        \
        NEED_VALUE(is(node, NODE) && node->op.kind == op_kind && out);                                                 \
        assignment;                                                                                                    \
        return CUDA_SUCCESS;                                                                                           \
    }
GET(cuGraphKernelNodeGetParams, CUDA_KERNEL_NODE_PARAMS_v1, OP_KERNEL, memcpy(out, &node->op.kernel, sizeof *out))
GET(cuGraphKernelNodeGetParams_v2, CUDA_KERNEL_NODE_PARAMS_v2, OP_KERNEL, *out = node->op.kernel)
GET(cuGraphMemcpyNodeGetParams, CUDA_MEMCPY3D_v2, OP_COPY, *out = node->op.copy_params)
GET(cuGraphMemsetNodeGetParams, CUDA_MEMSET_NODE_PARAMS_v1, OP_SET, memcpy(out, &node->op.set_params, sizeof *out))
GET(cuGraphHostNodeGetParams, CUDA_HOST_NODE_PARAMS_v1, OP_HOST,
    *out = ((CUDA_HOST_NODE_PARAMS_v1){node->op.host.fn, node->op.host.user}))
GET(cuGraphChildGraphNodeGetGraph, CUgraph, OP_CHILD, *out = node->op.child)
GET(cuGraphEventRecordNodeGetEvent, CUevent, OP_RECORD, *out = node->op.event)
GET(cuGraphEventWaitNodeGetEvent, CUevent, OP_WAIT, *out = node->op.event)
GET(cuGraphMemAllocNodeGetParams, CUDA_MEM_ALLOC_NODE_PARAMS_v1, OP_ALLOC, *out = node->op.memory.params)
GET(cuGraphMemFreeNodeGetParams, CUdeviceptr_v2, OP_FREE, *out = (CUdeviceptr_v2)node->op.memory.base)

/* ---- changes: in a graph, and in an executable graph, where the handle is the original node's ---- */

static CUresult replace(CUgraphExec exec, CUgraphNode node, const struct op *op)
{
    NEED_VALUE(is(node, NODE) && (!exec || is(exec, GRAPH_EXEC)));
    if (exec) node = sim_node_like(exec->graph, node);
    NEED_VALUE(node && node->op.kind == op->kind);
    if (op->kind == OP_CHILD) sim_graph_free(node->op.child);
    node->op = *op;
    return CUDA_SUCCESS;
}
#define REPLACE(exec, make)                                                                                            \
    LOCKED;                                                                                                            \
    struct op op;                                                                                                      \
    TRY(make);                                                                                                         \
    return replace(exec, node, &op)
#define SET(symbol, exec_symbol, type, make)                                                                           \
    API(symbol, (CUgraphNode node, type p), (node, p))                                                                 \
    {                                                                                                                  \
        NEED_VALUE(p);                                                                                                 \
        REPLACE(NULL, make);                                                                                           \
    }                                                                                                                  \
    API(exec_symbol, (CUgraphExec exec, CUgraphNode node, type p), (exec, node, p))                                    \
    {                                                                                                                  \
        NEED_VALUE(p &&is(exec, GRAPH_EXEC));                                                                          \
        REPLACE(exec, make);                                                                                           \
    }
SET(cuGraphKernelNodeSetParams, cuGraphExecKernelNodeSetParams, const CUDA_KERNEL_NODE_PARAMS_v1 *,
    kernel_op(&op, p->func, NULL, p))
SET(cuGraphKernelNodeSetParams_v2, cuGraphExecKernelNodeSetParams_v2, const CUDA_KERNEL_NODE_PARAMS_v2 *,
    kernel_op(&op, p->func, p->kern, (const CUDA_KERNEL_NODE_PARAMS_v1 *)p))
SET(cuGraphHostNodeSetParams, cuGraphExecHostNodeSetParams, const CUDA_HOST_NODE_PARAMS_v1 *,
    host_op(&op, p->fn, p->userData))
SET(cuGraphEventRecordNodeSetEvent, cuGraphExecEventRecordNodeSetEvent, CUevent, event_op(&op, OP_RECORD, p))
SET(cuGraphEventWaitNodeSetEvent, cuGraphExecEventWaitNodeSetEvent, CUevent, event_op(&op, OP_WAIT, p))
SET(cuGraphNodeSetParams, cuGraphExecNodeSetParams, CUgraphNodeParams *, generic_op(&op, p))

API(cuGraphMemcpyNodeSetParams, (CUgraphNode node, const CUDA_MEMCPY3D_v2 *p), (node, p))
{
    NEED_VALUE(p);
    REPLACE(NULL, sim_copy_of(p, &op));
}
API(cuGraphExecMemcpyNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D_v2 *p, CUcontext ctx),
    (exec, node, p, ctx))
{
    NEED_VALUE(p && is(exec, GRAPH_EXEC));
    REPLACE(exec, sim_copy_of(p, &op));
}
API(cuGraphMemsetNodeSetParams, (CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS_v1 *p), (node, p))
{
    NEED_VALUE(p);
    REPLACE(NULL, sim_set_of(p, &op));
}
API(cuGraphExecMemsetNodeSetParams,
    (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS_v1 *p, CUcontext ctx), (exec, node, p, ctx))
{
    NEED_VALUE(p && is(exec, GRAPH_EXEC));
    REPLACE(exec, sim_set_of(p, &op));
}
API(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraph child), (exec, node, child))
{
    NEED_VALUE(is(exec, GRAPH_EXEC));
    REPLACE(exec, child_op(&op, child));
}

API(cuGraphNodeSetEnabled, (CUgraphExec exec, CUgraphNode node, unsigned enabled), (exec, node, enabled))
{
    LOCKED;
    NEED_VALUE(is(exec, GRAPH_EXEC) && is(node, NODE));
    struct CUgraphNode_st *mine = sim_node_like(exec->graph, node);
    NEED_VALUE(mine && (mine->op.kind == OP_KERNEL || mine->op.kind == OP_COPY || mine->op.kind == OP_SET));
    mine->disabled = !enabled;
    return CUDA_SUCCESS;
}
API(cuGraphNodeGetEnabled, (CUgraphExec exec, CUgraphNode node, unsigned *enabled), (exec, node, enabled))
{
    LOCKED;
    NEED_VALUE(is(exec, GRAPH_EXEC) && is(node, NODE) && enabled);
    struct CUgraphNode_st *mine = sim_node_like(exec->graph, node);
    NEED_VALUE(mine);
    *enabled = !mine->disabled;
    return CUDA_SUCCESS;
}
API(cuGraphKernelNodeSetAttribute, (CUgraphNode node, CUkernelNodeAttrID attr, const CUkernelNodeAttrValue *value),
    (node, attr, value))
{
    NEED_VALUE(is(node, NODE) && node->op.kind == OP_KERNEL && value);
    return CUDA_SUCCESS;
}
API(cuGraphKernelNodeGetAttribute, (CUgraphNode node, CUkernelNodeAttrID attr, CUkernelNodeAttrValue *value),
    (node, attr, value))
{
    NEED_VALUE(is(node, NODE) && node->op.kind == OP_KERNEL && value);
    memset(value, 0, sizeof *value);
    return CUDA_SUCCESS;
}
