/* graph.c - graphs: nodes and edges, copies, instantiation, launches and updates.
 *
 * An instantiated graph is a copy whose nodes are in order of execution. Each node of a copy remembers its original. An
 * edge is stored at the node it leads to. A node that allocates memory allocates it once, when it is added.
 *
 * No kernel sets a condition. Its value at the launch decides: the body of an if that runs, the body of a switch, and how
 * often the body of a while runs.
 */
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

struct CUgraph_st *sim_graph_new(void)
{
    return sim_new(GRAPH, sizeof(struct CUgraph_st), NULL);
}

struct CUgraph_st **sim_inner_graphs(struct op *op, unsigned *n)
{
    *n = op->kind == OP_CHILD ? 1 : op->kind == OP_CONDITION ? op->condition.size : 0;
    return op->kind == OP_CHILD ? &op->child : op->condition.body;
}

static void node_free(struct CUgraphNode_st *node)
{
    unsigned n;
    struct CUgraph_st **inner = sim_inner_graphs(&node->op, &n);
    for (unsigned i = 0; i < n; i++) sim_graph_free(inner[i]);
    if (node->op.kind == OP_CONDITION) free(inner);
    free(node->before.v);
    sim_point_drop(&node->done);
    sim_delete(node);
}

void sim_graph_free(struct CUgraph_st *graph)
{
    for (size_t i = 0; i < graph->nodes.n; i++) node_free(graph->nodes.v[i]);
    free(graph->nodes.v);
    sim_delete(graph);
}

/* Needs the lock. */
CUresult sim_node_add(struct CUgraph_st *graph, const CUgraphNode *deps, size_t n, const struct op *op,
                      CUgraphNode *out)
{
    NEED_VALUE(out && (deps || !n));
    for (size_t i = 0; i < n; i++) NEED_VALUE(is(deps[i], NODE) && deps[i]->graph == graph);
    struct CUgraphNode_st *node = sim_new(NODE, sizeof *node, NULL);
    node->graph = graph;
    node->op = *op;
    sim_nodes_set(&node->before, deps, n);
    graph->nodes.v = sim_grow(graph->nodes.v, graph->nodes.n, sizeof *graph->nodes.v);
    graph->nodes.v[graph->nodes.n++] = node;
    node->local = graph->locals++;
    unsigned inside;
    struct CUgraph_st **inner = sim_inner_graphs(&node->op, &inside);
    for (unsigned i = 0; i < inside; i++) inner[i]->parent = node;
    *out = node;
    return CUDA_SUCCESS;
}

/* Returns the node of a copy that corresponds to an original node. */
struct CUgraphNode_st *sim_node_like(struct CUgraph_st *graph, CUgraphNode node)
{
    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct CUgraphNode_st *mine = graph->nodes.v[i];
        if (mine->origin == node->head.id || mine == node) return mine;
        unsigned n;
        struct CUgraph_st **inner = sim_inner_graphs(&mine->op, &n);
        for (unsigned k = 0; k < n; k++)
            if ((mine = sim_node_like(inner[k], node))) return mine;
    }
    return NULL;
}

/* Puts each node after those it depends on; false if the edges form a cycle. */
static bool sort(struct CUgraph_st *graph, struct CUgraphNode_st **out)
{
    size_t n = 0, before;
    for (size_t i = 0; i < graph->nodes.n; i++) graph->nodes.v[i]->mark = 0;
    do {
        before = n;
        for (size_t i = 0; i < graph->nodes.n; i++) {
            struct CUgraphNode_st *node = graph->nodes.v[i];
            bool ready = !node->mark;
            for (size_t j = 0; ready && j < node->before.n; j++) ready = node->before.v[j]->mark;
            if (!ready) continue;
            node->mark = 1;
            out[n++] = node;
        }
    } while (n > before);
    return n == graph->nodes.n;
}

/* Gives an operation its own copies of the graphs inside it. */
static void copy_inner(struct op *op)
{
    unsigned n;
    struct CUgraph_st **inner = sim_inner_graphs(op, &n);
    if (op->kind == OP_CONDITION) op->condition.body = calloc(n, sizeof *inner);
    struct CUgraph_st **copy = sim_inner_graphs(op, &n);
    for (unsigned i = 0; i < n; i++) copy[i] = sim_graph_copy(inner[i]);
}

/* Needs the lock. NULL if the graph has a cycle. */
struct CUgraph_st *sim_graph_copy(struct CUgraph_st *graph)
{
    size_t n = graph->nodes.n;
    struct CUgraphNode_st **order = calloc(n + 1, sizeof *order), **deps = calloc(n + 1, sizeof *deps), *node;
    struct CUgraph_st *copy = NULL;
    if (sort(graph, order)) {
        copy = sim_graph_new();
        for (size_t i = 0; i < n; i++) {
            struct op op = order[i]->op;
            for (size_t j = 0; j < order[i]->before.n; j++) deps[j] = order[i]->before.v[j]->twin;
            copy_inner(&op);
            sim_node_add(copy, deps, order[i]->before.n, &op, &node);
            order[i]->twin = node;
            node->origin = order[i]->head.id;
            node->local = order[i]->local;
            node->disabled = order[i]->disabled;
        }
        copy->locals = graph->locals;
    }
    free(order);
    free(deps);
    return copy;
}

/* ---- graphs ---- */

API(cuGraphCreate, (CUgraph * graph, unsigned flags), (graph, flags))
{
    LOCKED;
    NEED_VALUE(graph && flags == 0);
    *graph = sim_graph_new();
    return CUDA_SUCCESS;
}
API(cuGraphDestroy, (CUgraph graph), (graph))
{
    LOCKED;
    NEED_VALUE(is(graph, GRAPH) && !graph->parent);
    sim_graph_free(graph);
    return CUDA_SUCCESS;
}
API(cuGraphClone, (CUgraph * clone, CUgraph graph), (clone, graph))
{
    LOCKED;
    NEED_VALUE(clone && is(graph, GRAPH));
    *clone = sim_graph_copy(graph);
    return *clone ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuGraphNodeFindInClone, (CUgraphNode * out, CUgraphNode node, CUgraph clone), (out, node, clone))
{
    LOCKED;
    NEED_VALUE(out && is(node, NODE) && is(clone, GRAPH));
    *out = sim_node_like(clone, node);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Answers a query for a list. Without an array, sets `*n` to the number of nodes; with one, fills it and adds NULLs. */
static CUresult list(const struct nodes *nodes, CUgraphNode *out, size_t *n)
{
    NEED_VALUE(n);
    for (size_t i = 0; out && i < *n; i++) out[i] = i < nodes->n ? nodes->v[i] : NULL;
    if (!out || *n > nodes->n) *n = nodes->n;
    return CUDA_SUCCESS;
}
API(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *n), (graph, nodes, n))
{
    LOCKED;
    NEED_VALUE(is(graph, GRAPH));
    return list(&graph->nodes, nodes, n);
}
API(cuGraphGetRootNodes, (CUgraph graph, CUgraphNode *nodes, size_t *n), (graph, nodes, n))
{
    LOCKED;
    struct nodes roots = {0};
    NEED_VALUE(is(graph, GRAPH));
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (!graph->nodes.v[i]->before.n) sim_nodes_add(&roots, graph->nodes.v[i]);
    CUresult result = list(&roots, nodes, n);
    free(roots.v);
    return result;
}

static CUresult edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n)
{
    LOCKED;
    size_t count = 0;
    NEED_VALUE(is(graph, GRAPH) && n);
    for (size_t i = 0; i < graph->nodes.n; i++)
        for (size_t j = 0; j < graph->nodes.v[i]->before.n; j++, count++) {
            if (from && count < *n) from[count] = graph->nodes.v[i]->before.v[j];
            if (to && count < *n) to[count] = graph->nodes.v[i];
        }
    if (!from || *n > count) *n = count;
    return CUDA_SUCCESS;
}
API(cuGraphGetEdges, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n), (graph, from, to, n))
{
    return edges(graph, from, to, n);
}
API(cuGraphGetEdges_v2, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *n),
    (graph, from, to, data, n))
{
    if (data && n) memset(data, 0, *n * sizeof *data);
    return edges(graph, from, to, n);
}

static CUresult around(CUgraphNode node, bool after, CUgraphNode *out, size_t *n)
{
    LOCKED;
    struct nodes found = {0};
    NEED_VALUE(is(node, NODE));
    if (!after) return list(&node->before, out, n);
    for (size_t i = 0; i < node->graph->nodes.n; i++) {
        struct CUgraphNode_st *other = node->graph->nodes.v[i];
        for (size_t j = 0; j < other->before.n; j++)
            if (other->before.v[j] == node) sim_nodes_add(&found, other);
    }
    CUresult result = list(&found, out, n);
    free(found.v);
    return result;
}
API(cuGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode *out, size_t *n), (node, out, n))
{
    return around(node, false, out, n);
}
API(cuGraphNodeGetDependencies_v2, (CUgraphNode node, CUgraphNode *out, CUgraphEdgeData *data, size_t *n),
    (node, out, data, n))
{
    if (data && n) memset(data, 0, *n * sizeof *data);
    return around(node, false, out, n);
}
API(cuGraphNodeGetDependentNodes, (CUgraphNode node, CUgraphNode *out, size_t *n), (node, out, n))
{
    return around(node, true, out, n);
}
API(cuGraphNodeGetDependentNodes_v2, (CUgraphNode node, CUgraphNode *out, CUgraphEdgeData *data, size_t *n),
    (node, out, data, n))
{
    if (data && n) memset(data, 0, *n * sizeof *data);
    return around(node, true, out, n);
}

static CUresult connect(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
    LOCKED;
    NEED_VALUE(is(graph, GRAPH) && ((from && to) || !n));
    for (size_t i = 0; i < n; i++) {
        NEED_VALUE(is(from[i], NODE) && is(to[i], NODE) && from[i]->graph == graph && to[i]->graph == graph);
        sim_nodes_add(&to[i]->before, from[i]);
    }
    return CUDA_SUCCESS;
}
static void cut(struct nodes *nodes, CUgraphNode node)
{
    size_t kept = 0;
    for (size_t i = 0; i < nodes->n; i++)
        if (nodes->v[i] != node) nodes->v[kept++] = nodes->v[i];
    nodes->n = kept;
}
static CUresult disconnect(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
    LOCKED;
    NEED_VALUE(is(graph, GRAPH) && ((from && to) || !n));
    for (size_t i = 0; i < n; i++) cut(&to[i]->before, from[i]);
    return CUDA_SUCCESS;
}
API(cuGraphAddDependencies, (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n),
    (graph, from, to, n))
{
    return connect(graph, from, to, n);
}
API(cuGraphAddDependencies_v2,
    (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data, size_t n),
    (graph, from, to, data, n))
{
    return connect(graph, from, to, n);
}
API(cuGraphRemoveDependencies, (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n),
    (graph, from, to, n))
{
    return disconnect(graph, from, to, n);
}
API(cuGraphRemoveDependencies_v2,
    (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data, size_t n),
    (graph, from, to, data, n))
{
    return disconnect(graph, from, to, n);
}
API(cuGraphDestroyNode, (CUgraphNode node), (node))
{
    LOCKED;
    NEED_VALUE(is(node, NODE));
    for (size_t i = 0; i < node->graph->nodes.n; i++) cut(&node->graph->nodes.v[i]->before, node);
    /* A new array, because the old one grows only when its length is a power of two. */
    struct nodes left = {0};
    for (size_t i = 0; i < node->graph->nodes.n; i++) {
        if (node->graph->nodes.v[i] == node) continue;
        left.v = sim_grow(left.v, left.n, sizeof *left.v);
        left.v[left.n++] = node->graph->nodes.v[i];
    }
    free(node->graph->nodes.v);
    node->graph->nodes = left;
    node_free(node);
    return CUDA_SUCCESS;
}
API(cuGraphDebugDotPrint, (CUgraph graph, const char *path, unsigned flags), (graph, path, flags))
{
    LOCKED;
    NEED_VALUE(is(graph, GRAPH) && path);
    FILE *f = fopen(path, "we");
    NEED(f, CUDA_ERROR_OPERATING_SYSTEM);
    fputs("digraph simulated {\n", f);
    for (size_t i = 0; i < graph->nodes.n; i++)
        for (size_t j = 0; j < graph->nodes.v[i]->before.n; j++)
            fprintf(f, "n%u -> n%u;\n", graph->nodes.v[i]->before.v[j]->head.id, graph->nodes.v[i]->head.id);
    fputs("}\n", f);
    fclose(f);
    return CUDA_SUCCESS;
}

/* ---- executable graphs ---- */

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    LOCKED;
    struct CUctx_st *ctx;
    NEED_VALUE(exec && is(graph, GRAPH));
    TRY(sim_ctx(&ctx));
    struct CUgraph_st *copy = sim_graph_copy(graph);
    NEED_VALUE(copy);
    *exec = sim_new(GRAPH_EXEC, sizeof **exec, ctx);
    (*exec)->graph = copy;
    (*exec)->flags = flags;
    return CUDA_SUCCESS;
}
static CUresult instantiate_old(CUgraphExec *exec, CUgraph graph, CUgraphNode *bad, char *text, size_t size)
{
    if (bad) *bad = NULL;
    if (text && size) *text = 0;
    return instantiate(exec, graph, 0);
}
API(cuGraphInstantiate, (CUgraphExec * exec, CUgraph graph, CUgraphNode *bad, char *text, size_t size),
    (exec, graph, bad, text, size))
{
    return instantiate_old(exec, graph, bad, text, size);
}
API(cuGraphInstantiate_v2, (CUgraphExec * exec, CUgraph graph, CUgraphNode *bad, char *text, size_t size),
    (exec, graph, bad, text, size))
{
    return instantiate_old(exec, graph, bad, text, size);
}
API(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags), (exec, graph, flags))
{
    return instantiate(exec, graph, flags);
}
API_PTSZ(cuGraphInstantiateWithParams, (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
         (exec, graph, params))
{
    NEED_VALUE(params);
    params->hErrNode_out = NULL;
    params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return instantiate(exec, graph, params->flags);
}
API(cuGraphExecGetFlags, (CUgraphExec exec, cuuint64_t *flags), (exec, flags))
{
    NEED_VALUE(is(exec, GRAPH_EXEC) && flags);
    *flags = exec->flags;
    return CUDA_SUCCESS;
}
API(cuGraphExecDestroy, (CUgraphExec exec), (exec))
{
    LOCKED;
    NEED_VALUE(is(exec, GRAPH_EXEC));
    sim_wait(&exec->last);
    sim_point_drop(&exec->last);
    sim_graph_free(exec->graph);
    sim_delete(exec);
    return CUDA_SUCCESS;
}
API_PTSZ(cuGraphUpload, (CUgraphExec exec, CUstream stream), (exec, stream))
{
    LOCKED;
    struct CUstream_st *s;
    NEED_VALUE(is(exec, GRAPH_EXEC));
    return sim_stream(stream, &s);
}

/* Returns how often a graph inside an operation runs, and which one. */
static unsigned runs_of(const struct op *op, unsigned *inner)
{
    unsigned value = op->condition.value, size = op->condition.size;
    *inner = 0;
    if (op->kind == OP_CHILD) return 1;
    if (op->condition.type == CU_GRAPH_COND_TYPE_WHILE) return value;
    *inner = op->condition.type == CU_GRAPH_COND_TYPE_IF ? !value : value;
    return *inner < size;
}

/* Runs all nodes, each after its predecessors or after `base`, which the caller keeps. `*done` is the end of all. */
static CUresult run(struct where *where, struct CUgraph_st *graph, struct point *base, struct point *done)
{
    size_t n = graph->nodes.n;
    struct point *deps = calloc(n + 1, sizeof *deps);
    for (size_t i = 0; i < n; i++) {
        struct CUgraphNode_st *node = graph->nodes.v[i];
        size_t nr_deps = 0;
        for (size_t j = 0; j < node->before.n; j++) deps[nr_deps++] = sim_point_copy(&node->before.v[j]->done);
        if (!nr_deps) deps[nr_deps++] = sim_point_copy(base);
        struct point end, start;
        struct op op = node->op;
        if (!node->disabled && op.kind == OP_ALLOC) sim_graph_use(op.memory.base);
        if (!node->disabled && op.kind == OP_FREE) sim_graph_unuse(op.memory.base);
        bool has_inner = op.kind == OP_CHILD || op.kind == OP_CONDITION;
        if (node->disabled || has_inner || op.kind == OP_FREE) op.kind = OP_EMPTY;
        if (op.kind == OP_WAIT) deps[nr_deps++] = sim_point_copy(&op.event->when);
        where->node = sim_node_id(node);
        sim_run(where, &op, deps, nr_deps, &end);
        unsigned inner, times = !node->disabled && has_inner ? runs_of(&node->op, &inner) : 0;
        for (unsigned k = 0; k < times; k++) {
            start = end;
            run(where, sim_inner_graphs(&node->op, &(unsigned){0})[inner], &start, &end);
            sim_point_drop(&start);
        }
        sim_point_set(&node->done, end);
        if (op.kind != OP_RECORD) continue;
        op.event->recorded = true;
        sim_point_set(&op.event->when, sim_point_copy(&node->done));
    }
    for (size_t i = 0; i < n; i++) deps[i] = sim_point_copy(&graph->nodes.v[i]->done);
    deps[n] = sim_point_copy(base);
    where->node = 0;
    sim_run(where, &(struct op){.kind = OP_EMPTY}, deps, n + 1, done);
    free(deps);
    return CUDA_SUCCESS;
}

/* A launch of a running graph starts after its end. */
API_PTSZ(cuGraphLaunch, (CUgraphExec exec, CUstream stream), (exec, stream))
{
    LOCKED;
    struct CUstream_st *s;
    struct point deps[64], base, done;
    size_t n = 0;
    NEED_VALUE(is(exec, GRAPH_EXEC));
    TRY(sim_stream(stream, &s));
    TRY(sim_capture_refuse(s));
    if (s->capture) {
        struct op op = {.kind = OP_CHILD, .child = sim_graph_copy(exec->graph)};
        return sim_capture_op(s, &op);
    }
    struct where where = {.ctx = s->head.ctx,
                          .stream = s,
                          .stream_id = s->head.id,
                          .correlation = sim_correlation(),
                          .submitted = simgpu_now()};
    deps[n++] = sim_point_copy(&exec->last);
    sim_stream_base(s, deps, &n, sizeof deps / sizeof *deps);
    TRY(sim_run(&where, &(struct op){.kind = OP_EMPTY}, deps, n, &base));
    where.graph = exec->graph->head.id;
    TRY(run(&where, exec->graph, &base, &done));
    sim_point_drop(&base);
    sim_point_set(&exec->last, sim_point_copy(&done));
    sim_point_set(&s->last, done);
    return CUDA_SUCCESS;
}

/* ---- updates: the same nodes in the same order, with other parameters ---- */

static CUgraphExecUpdateResult update(struct CUgraph_st *mine, struct CUgraph_st *with, CUgraphNode *bad)
{
    struct CUgraph_st *fresh = sim_graph_copy(with);
    CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    if (!fresh || fresh->nodes.n != mine->nodes.n) result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; !result && i < mine->nodes.n; i++) {
        struct CUgraphNode_st *a = mine->nodes.v[i], *b = fresh->nodes.v[i];
        if (a->before.n != b->before.n) result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        if (a->op.kind != b->op.kind) result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (result) *bad = with->nodes.v[i];
    }
    for (size_t i = 0; !result && i < mine->nodes.n; i++) {
        struct CUgraphNode_st *a = mine->nodes.v[i], *b = fresh->nodes.v[i];
        struct op old = a->op;
        a->op = b->op;
        a->origin = b->origin;
        b->op = old;
    }
    if (fresh) sim_graph_free(fresh);
    return result;
}
static CUresult update_exec(CUgraphExec exec, CUgraph graph, CUgraphNode *bad, CUgraphExecUpdateResult *why)
{
    LOCKED;
    NEED_VALUE(is(exec, GRAPH_EXEC) && is(graph, GRAPH));
    *bad = NULL;
    *why = update(exec->graph, graph, bad);
    return *why ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : CUDA_SUCCESS;
}
API(cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode *bad, CUgraphExecUpdateResult *why),
    (exec, graph, bad, why))
{
    NEED_VALUE(bad && why);
    return update_exec(exec, graph, bad, why);
}
API(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info), (exec, graph, info))
{
    NEED_VALUE(info);
    info->errorFromNode = NULL;
    return update_exec(exec, graph, &info->errorNode, &info->result);
}
