/* graphs.c - CUDA graphs made in every way, with the driver API alone. A kernel is named after its stage.
 *
 * graphs ways         captured (also in two streams), added, cloned, a child, a graph launched into a capture, a
 *                     condition's body; each replayed in the stages `once` and `twice`
 * graphs conditions   a loop of three rounds, an if that holds, one that does not, and a loop in a loop, each replayed likewise
 * graphs large NODES  one graph of that many nodes, replayed three times
 * graphs many GRAPHS  as many graphs of ten nodes: captured, instantiated, replayed, destroyed
 *
 * Prints the peak memory in kibibytes, and the microseconds that its capturing calls took.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../include/tfinject.h"
#include "check.h"
#include "cuda.h"

#if CUDA_VERSION >= 13000
#define add_node(node, graph, after, count, params) cuGraphAddNode(node, graph, after, NULL, count, params)
#else
#define add_node(node, graph, after, count, params) cuGraphAddNode(node, graph, after, count, params)
#endif

static CUmodule module;
static CUstream stream, side;

static CUfunction kernel(const char *name)
{
    CUfunction f;
    CHECK(cuModuleGetFunction(&f, module, name));
    return f;
}

static void launch(const char *name, CUstream in)
{
    tfi_range_push(name);
    CHECK(cuLaunchKernel(kernel(name), 1, 1, 1, 1, 1, 1, 0, in, NULL, NULL));
    tfi_range_pop();
}

static CUgraphNode add_kernel(CUgraph graph, const char *name)
{
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS p = {.func = kernel(name), 1, 1, 1, 1, 1, 1};
    tfi_range_push(name);
    CHECK(cuGraphAddKernelNode(&node, graph, NULL, 0, &p));
    tfi_range_pop();
    return node;
}

/* Captures two of the three kinds of work, in two streams. */
static CUgraph capture(const char *first, const char *second, CUdeviceptr memory)
{
    CUgraph graph;
    CUevent fork, join;
    CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch(first, stream);
    CHECK(cuEventRecord(fork, stream));
    CHECK(cuStreamWaitEvent(side, fork, 0));
    launch(second, side);
    CHECK(cuEventRecord(join, side));
    CHECK(cuStreamWaitEvent(stream, join, 0));
    tfi_range_push("setting");
    CHECK(cuMemsetD8Async(memory, 1, 64, stream));
    tfi_range_pop();
    tfi_range_push("copying");
    CHECK(cuMemcpyDtoDAsync(memory + 64, memory, 64, stream));
    tfi_range_pop();
    CHECK(cuStreamEndCapture(stream, &graph));
    return graph;
}

static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec;
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

static void replay(CUgraphExec exec, const char *stage, int times)
{
    tfi_range_push(stage);
    for (int i = 0; i < times; i++) CHECK(cuGraphLaunch(exec, stream));
    tfi_range_pop();
    CHECK(cuStreamSynchronize(stream));
}

static void replay_all(const CUgraphExec *exec, int count)
{
    for (int i = 0; i < count; i++) {
        replay(exec[i], "once", 1);
        replay(exec[i], "twice", 2);
    }
}

static CUgraph launched_into(CUgraphExec exec)
{
    CUgraph graph;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch("before", stream);
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    return graph;
}

static void ways(void)
{
    CUgraph clone, with_child, graph, other;
    CUgraphNode node;
    CUgraphExec exec[5];
    CUgraphExecUpdateResultInfo why;
    CUdeviceptr memory;
    CHECK(cuMemAlloc(&memory, 128));
    graph = capture("captured", "beside", memory);
    exec[0] = instantiate(graph);
    CHECK(cuGraphClone(&clone, graph));
    exec[1] = instantiate(clone);
    CHECK(cuGraphCreate(&with_child, 0));
    add_kernel(with_child, "added");
    CHECK(cuGraphAddChildGraphNode(&node, with_child, NULL, 0, graph));
    exec[2] = instantiate(with_child);
    exec[3] = instantiate(launched_into(exec[0]));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuGraphDestroy(clone));
    replay_all(exec, 4);
    other = capture("afresh", "anew", memory);
    CHECK(cuGraphExecUpdate(exec[0], other, &why));
    replay_all(exec, 1);
    for (int i = 0; i < 4; i++) CHECK(cuGraphExecDestroy(exec[i]));
}

/* Adds a node with one body, whose condition has `value` at each launch. */
static CUgraph add_condition(CUgraph in, CUgraphNode after, CUgraphConditionalNodeType type, unsigned value,
                             CUgraphNode *node)
{
    CUgraphConditionalHandle handle;
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUcontext ctx;
    CHECK(cuCtxGetCurrent(&ctx));
    CHECK(cuGraphConditionalHandleCreate(&handle, in, ctx, value, CU_GRAPH_COND_ASSIGN_DEFAULT));
    p.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){.handle = handle, .type = type, .size = 1, .ctx = ctx};
    CHECK(add_node(node, in, after ? &after : NULL, after ? 1 : 0, &p));
    return p.conditional.phGraph_out[0];
}

/* Captures kernels into a graph that is there. */
static void capture_to(CUgraph graph, const char *first, const char *second)
{
    CHECK(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(first, stream);
    if (second) launch(second, stream);
    CHECK(cuStreamEndCapture(stream, &graph));
}

/* A graph with a kernel in front of a condition: in the body the numbers of nodes begin again. */
static CUgraphExec condition(const char *before, CUgraphConditionalNodeType type, unsigned value, const char *first,
                             const char *second)
{
    CUgraph graph;
    CUgraphNode node;
    CHECK(cuGraphCreate(&graph, 0));
    CUgraphNode kernel_before = add_kernel(graph, before);
    CUgraph body = add_condition(graph, kernel_before, type, value, &node);
    capture_to(body, first, second);
    return instantiate(graph);
}

static CUgraphExec loop_in_loop(void)
{
    CUgraph graph, inner;
    CUgraphNode node;
    CHECK(cuGraphCreate(&graph, 0));
    CUgraph outer = add_condition(graph, NULL, CU_GRAPH_COND_TYPE_WHILE, 2, &node);
    capture_to(outer, "outer", NULL);
    inner = add_condition(outer, NULL, CU_GRAPH_COND_TYPE_WHILE, 3, &node);
    add_kernel(inner, "inner0"); /* has a number that a node of `outer` has too */
    add_kernel(inner, "inner1");
    add_kernel(inner, "inner2");
    return instantiate(graph);
}

static void conditions(void)
{
    CUgraphExec exec[] = {condition("before", CU_GRAPH_COND_TYPE_WHILE, 3, "round", "round2"),
                          condition("before", CU_GRAPH_COND_TYPE_IF, 1, "taken", NULL),
                          condition("before", CU_GRAPH_COND_TYPE_IF, 0, "left", NULL), loop_in_loop()};
    replay_all(exec, 4);
    for (int i = 0; i < 4; i++) CHECK(cuGraphExecDestroy(exec[i]));
}

static uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static CUgraph capture_many(int nodes, CUfunction f)
{
    CUgraph graph;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < nodes; i++) CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    CHECK(cuStreamEndCapture(stream, &graph));
    return graph;
}

/* Returns the time that the captures took. */
static uint64_t sizes(int graphs, int nodes, int times)
{
    CUfunction f = kernel("one_of_many");
    uint64_t took = 0;
    for (int i = 0; i < graphs; i++) {
        uint64_t begin = now_us();
        CUgraph graph = capture_many(nodes, f);
        CUgraphExec exec = instantiate(graph);
        took += now_us() - begin;
        replay(exec, "replaying", times);
        CHECK(cuGraphExecDestroy(exec));
        CHECK(cuGraphDestroy(graph));
    }
    return took;
}

/* Reads this program's peak; getrusage() would include the process before exec. */
static long peak_kilobytes(void)
{
    long peak = 0;
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "VmHWM: %ld", &peak);
    if (status) fclose(status);
    return peak;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "ways";
    int number = argc > 2 ? atoi(argv[2]) : 0;
    uint64_t took = 0;
    CUcontext ctx;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&ctx, 0));
    CHECK(cuCtxSetCurrent(ctx));
    CHECK(cuModuleLoadData(&module, "\177ELF"));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    if (strcmp(what, "large") == 0) took = sizes(1, number, 3);
    else if (strcmp(what, "many") == 0) took = sizes(number, 10, 1);
    else if (strcmp(what, "conditions") == 0) conditions();
    else ways();
    printf("%ld %llu ok\n", peak_kilobytes(), (unsigned long long)took);
    return 0;
}
