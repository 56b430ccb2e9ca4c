/* runtime12.c - a program of the runtime API of CUDA 12, with its headers and linked to libcudart.so.12, as by nvcc 12.
 *
 * It registers its kernel itself and launches with cudaLaunchKernel. It calls the functions whose parameters changed in
 * release 13 with those of 12, by their plain names and, where they exist, by their newer ones. It exits at the first
 * wrong result; "ok" is the last line.
 */
#include <cuda_runtime_api.h>

#define CUresult cudaError_t
#define CUDA_SUCCESS cudaSuccess
#include "check.h"

extern void **__cudaRegisterFatBinary(void *wrapper);
extern void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit,
                                   void *tid, void *bid, void *block, void *grid, int *warp);

static const unsigned image[16] = {0xba55ed50, 0x00100001, 0x30};
static const struct {
    int magic, version;
    const void *data, *names;
} wrapper = {0x466243b1, 1, image, NULL};
static const char kernel[1];

enum { BYTES = 4096 };
static cudaStream_t stream;
static void *memory;
static char host[BYTES], back[BYTES];

static void launch(unsigned blocks)
{
    void *arguments[] = {&memory};
    CHECK(cudaLaunchKernel(kernel, (dim3){blocks, 1, 1}, (dim3){64, 1, 1}, arguments, 0, stream));
}

static void copies(void)
{
    for (int i = 0; i < BYTES; i++) host[i] = (char)i;
    CHECK(cudaMemcpyAsync(memory, host, BYTES, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemsetAsync(memory, 0x41, BYTES / 2, stream));
    CHECK(cudaMemcpyAsync(back, memory, BYTES, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(back[0] == 0x41 && back[BYTES - 1] == host[BYTES - 1]);
}

/* Takes (p, count, device, stream) and (p, count, advice, device); with _v2 a location replaces the device. */
static void hints(void)
{
    struct cudaMemLocation here = {cudaMemLocationTypeDevice, 0};
    void *managed;
    CHECK(cudaMallocManaged(&managed, BYTES, cudaMemAttachGlobal));
    CHECK(cudaMemAdvise(managed, BYTES, cudaMemAdviseSetPreferredLocation, 0));
    CHECK(cudaMemAdvise_v2(managed, BYTES, cudaMemAdviseSetReadMostly, here));
    CHECK(cudaMemPrefetchAsync(managed, BYTES, 0, stream));
    CHECK(cudaMemPrefetchAsync(managed, BYTES, cudaCpuDeviceId, stream));
    CHECK(cudaMemPrefetchAsync_v2(managed, BYTES, here, 0, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaFree(managed));
}

static void events(void)
{
    cudaEvent_t start, end;
    float ms = -1, again = -1;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventRecord(start, stream));
    for (unsigned i = 1; i <= 5; i++) launch(i);
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, start, end));
    CHECK(cudaEventElapsedTime_v2(&again, start, end));
    EXPECT(ms > 0 && ms == again);
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
}

/* Captures a graph, queries the capture, and adds an edge afterwards. The functions of 12 have no edge data. */
static void graphs(void)
{
    enum cudaStreamCaptureStatus status;
    const cudaGraphNode_t *last;
    cudaGraphNode_t nodes[4], from[4], to[4], before[4];
    cudaGraph_t graph, same;
    cudaGraphExec_t exec;
    size_t n = 0;
    unsigned long long id;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemsetAsync(memory, 0, BYTES, stream));
    CHECK(cudaStreamGetCaptureInfo_v2(stream, &status, &id, &same, &last, &n));
    EXPECT(status == cudaStreamCaptureStatusActive && n == 1);
    nodes[0] = last[0];
    CHECK(cudaStreamUpdateCaptureDependencies(stream, NULL, 0, cudaStreamSetCaptureDependencies));
    launch(7);
    CHECK(cudaStreamGetCaptureInfo_v3(stream, &status, &id, NULL, &last, NULL, &n));
    EXPECT(n == 1);
    nodes[1] = last[0];
    CHECK(cudaStreamUpdateCaptureDependencies(stream, nodes, 1, cudaStreamAddCaptureDependencies));
    launch(8);
    CHECK(cudaStreamEndCapture(stream, &graph));
    EXPECT(graph == same);
    CHECK(cudaGraphGetEdges(graph, NULL, NULL, &n));
    EXPECT(n == 2);
    CHECK(cudaGraphAddDependencies(graph, nodes, nodes + 1, 1));
    n = 4;
    CHECK(cudaGraphGetEdges(graph, from, to, &n));
    EXPECT(n == 3);
    n = 4;
    CHECK(cudaGraphNodeGetDependencies(nodes[1], before, &n));
    EXPECT(n == 1 && before[0] == nodes[0]);
    n = 4;
    CHECK(cudaGraphNodeGetDependentNodes(nodes[0], before, &n));
    EXPECT(n == 2);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

int main(void)
{
    struct cudaDeviceProp properties;
    int runtime = 0, driver = 0;
    void **handle = __cudaRegisterFatBinary((void *)&wrapper);
    __cudaRegisterFunction(handle, kernel, NULL, "of_release_12", -1, NULL, NULL, NULL, NULL, NULL);
    CHECK(cudaRuntimeGetVersion(&runtime));
    CHECK(cudaDriverGetVersion(&driver));
    EXPECT(runtime == CUDART_VERSION && driver == CUDART_VERSION);
    CHECK(cudaGetDeviceProperties(&properties, 0)); /* the structure is longer than 13's */
    EXPECT(properties.warpSize == 32 && properties.clusterLaunch >= 0);
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&memory, BYTES));
    copies();
    hints();
    events();
    graphs();
    CHECK(cudaFree(memory));
    CHECK(cudaDeviceSynchronize());
    printf("%d\nok\n", runtime);
}
