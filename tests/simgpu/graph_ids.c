/* graph_ids.c - the ids of graphs and nodes that tools get from 13.1 on; SIMGPU_LACK removes the functions. */
#include "model.h"

/* The installed header may be too old to declare these. */
CUresult cuGraphNodeGetToolsId(CUgraphNode node, unsigned long long *id);
CUresult cuGraphNodeGetLocalId(CUgraphNode node, unsigned *id);
CUresult cuGraphNodeGetContainingGraph(CUgraphNode node, CUgraph *graph);
CUresult cuGraphGetId(CUgraph graph, unsigned *id);
CUresult cuGraphExecGetId(CUgraphExec exec, unsigned *id);

API(cuGraphNodeGetToolsId, (CUgraphNode node, unsigned long long *id), (node, id))
{
    NEED_VALUE(is(node, NODE) && id);
    *id = sim_node_id(node);
    return CUDA_SUCCESS;
}
API(cuGraphNodeGetLocalId, (CUgraphNode node, unsigned *id), (node, id))
{
    NEED_VALUE(is(node, NODE) && id);
    *id = node->local;
    return CUDA_SUCCESS;
}
API(cuGraphNodeGetContainingGraph, (CUgraphNode node, CUgraph *graph), (node, graph))
{
    NEED_VALUE(is(node, NODE) && graph);
    *graph = node->graph;
    return CUDA_SUCCESS;
}
API(cuGraphGetId, (CUgraph graph, unsigned *id), (graph, id))
{
    NEED_VALUE(is(graph, GRAPH) && id);
    *id = graph->head.id;
    return CUDA_SUCCESS;
}
API(cuGraphExecGetId, (CUgraphExec exec, unsigned *id), (exec, id))
{
    NEED_VALUE(is(exec, GRAPH_EXEC) && id);
    *id = exec->graph->head.id;
    return CUDA_SUCCESS;
}
