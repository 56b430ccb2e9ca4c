/* cupti_ids.c - a simulated CUPTI: the ids of the driver's objects, read from the objects themselves.
 *
 * A question to the driver would be a call of its own in the records of all clients.
 */
#include "model.h"

#include "cupti_sim.h"

CUptiResult cuptiGetContextId(CUcontext context, uint32_t *contextId)
{
    BEGIN;
    if (!contextId) return CUPTI_ERROR_INVALID_PARAMETER;
    if (!is(context, CONTEXT)) return CUPTI_ERROR_INVALID_CONTEXT;
    *contextId = context->head.id;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t *deviceId)
{
    BEGIN;
    if (!deviceId) return CUPTI_ERROR_INVALID_PARAMETER;
    if (!is(context, CONTEXT)) return CUPTI_ERROR_INVALID_DEVICE;
    *deviceId = (uint32_t)context->device;
    return CUPTI_SUCCESS;
}

/* Both default streams are the legacy stream of their context. */
static CUptiResult stream_id(CUcontext context, CUstream stream, uint32_t *id)
{
    if (!id) return CUPTI_ERROR_INVALID_PARAMETER;
    if ((uintptr_t)stream <= 2) stream = is(context, CONTEXT) ? context->legacy : NULL;
    if (!is(stream, STREAM) || (context && stream->head.ctx != context)) return CUPTI_ERROR_INVALID_STREAM;
    *id = stream->head.id;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t perThreadStream, uint32_t *streamId)
{
    BEGIN;
    (void)perThreadStream;
    return stream_id(context, stream, streamId);
}

CUptiResult cuptiGetStreamId(CUcontext context, CUstream stream, uint32_t *streamId)
{
    BEGIN;
    return stream_id(context, stream, streamId);
}

CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t *nodeId)
{
    BEGIN;
    if (!nodeId || !is(node, NODE)) return CUPTI_ERROR_INVALID_PARAMETER;
    *nodeId = sim_node_id(node);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetGraphId(CUgraph graph, uint32_t *pId)
{
    BEGIN;
    if (!pId || !is(graph, GRAPH)) return CUPTI_ERROR_INVALID_PARAMETER;
    *pId = graph->head.id;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetGraphExecId(CUgraphExec graphExec, uint32_t *pId)
{
    BEGIN;
    if (!pId || !is(graphExec, GRAPH_EXEC)) return CUPTI_ERROR_INVALID_PARAMETER;
    *pId = graphExec->graph->head.id;
    return CUPTI_SUCCESS;
}
