/* driver.c - a program of the driver API with its own PTX text: modules, contexts, graphs, waits, values, errors.
 *
 * It is linked to libcuda.so.1. Prints a line for each part and "ok" at the end; exits 1 at the first difference.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cuda.h"

static const char ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
                          ".visible .const .align 4 .b8 weights[48];\n"
                          ".visible .global .align 4 .u32 counter;\n"
                          ".visible .entry text_encode(.param .u64 out) { ret; }\n"
                          ".visible .entry denoise_step(.param .u64 out, .param .u32 n) { ret; }\n";

static CUfunction encode, denoise;

static void modules(CUmodule *module)
{
    CUfunction none;
    CUdeviceptr weights, counter;
    size_t size;
    const char *name;
    int back = 0, value = 11;
    CHECK(cuModuleLoadData(module, ptx));
    CHECK(cuModuleGetFunction(&encode, *module, "text_encode"));
    CHECK(cuModuleGetFunction(&denoise, *module, "denoise_step"));
    EXPECT(cuModuleGetFunction(&none, *module, "denoise") == CUDA_ERROR_NOT_FOUND);
    CHECK(cuFuncGetName(&name, denoise));
    EXPECT(strcmp(name, "denoise_step") == 0);
    CHECK(cuModuleGetGlobal(&weights, &size, *module, "weights"));
    EXPECT(size == 48);
    CHECK(cuModuleGetGlobal(&counter, &size, *module, "counter"));
    EXPECT(size == 4);
    CHECK(cuMemcpyHtoD(counter, &value, 4));
    CHECK(cuMemcpyDtoH(&back, counter, 4));
    EXPECT(back == 11);
    puts("modules");
}

static void launches(CUstream stream, CUdeviceptr buffer)
{
    unsigned n = 64;
    void *params[] = {&buffer, &n};
    CUlaunchConfig config = {.gridDimX = 7,
                             .gridDimY = 2,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 2,
                             .blockDimZ = 1,
                             .hStream = stream};
    CHECK(cuLaunchKernel(encode, 3, 1, 1, 128, 1, 1, 256, stream, params, NULL));
    CHECK(cuLaunchKernelEx(&config, denoise, params, NULL));
    CHECK(cuLaunchCooperativeKernel(denoise, 5, 1, 1, 64, 1, 1, 0, stream, params));
    EXPECT(cuLaunchKernel(encode, 0, 1, 1, 128, 1, 1, 0, stream, params, NULL) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuLaunchKernel(NULL, 1, 1, 1, 128, 1, 1, 0, stream, params, NULL) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuStreamSynchronize(stream));
    puts("launches");
}

static void memory(CUstream stream, CUdeviceptr buffer)
{
    unsigned words[16], flag = 0;
    CUdeviceptr async;
    size_t available, total;
    CUmemorytype type;
    CHECK(cuMemsetD32Async(buffer, 0xabcd1234, 16, stream));
    CHECK(cuStreamWriteValue32(stream, buffer + 8, 99, 0));
    CHECK(cuMemcpyDtoHAsync(words, buffer, sizeof words, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(words[0] == 0xabcd1234 && words[2] == 99 && words[15] == 0xabcd1234);
    CHECK(cuMemAllocAsync(&async, 1 << 20, stream));
    CHECK(cuMemFreeAsync(async, stream));
    CHECK(cuMemGetInfo(&available, &total));
    EXPECT(available < total);
    EXPECT(cuMemAlloc(&async, total) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, buffer));
    EXPECT(type == CU_MEMORYTYPE_DEVICE);
    EXPECT(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&flag) ==
           CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemcpyHtoD((CUdeviceptr)&flag, words, 4) == CUDA_ERROR_INVALID_VALUE);
    puts("memory");
}

static void graphs(CUstream stream, CUdeviceptr buffer)
{
    CUgraph graph, child;
    CUgraphExec exec;
    CUgraphNode root, set, kernel, sub, inner;
    unsigned n = 1;
    void *params[] = {&buffer, &n};
    CUDA_KERNEL_NODE_PARAMS k = {.func = denoise,
                                 .gridDimX = 4,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 32,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .kernelParams = params};
    CUDA_MEMSET_NODE_PARAMS m = {.dst = buffer, .elementSize = 1, .value = 7, .width = 32, .height = 1};
    CUcontext ctx;
    CUgraphNodeType type;
    CHECK(cuCtxGetCurrent(&ctx));
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphCreate(&child, 0));
    CHECK(cuGraphAddKernelNode(&inner, child, NULL, 0, &k));
    CHECK(cuGraphAddEmptyNode(&root, graph, NULL, 0));
    CHECK(cuGraphAddMemsetNode(&set, graph, &root, 1, &m, ctx));
    CHECK(cuGraphAddKernelNode(&kernel, graph, &set, 1, &k));
    CHECK(cuGraphAddChildGraphNode(&sub, graph, &kernel, 1, child));
    CHECK(cuGraphNodeGetType(sub, &type));
    EXPECT(type == CU_GRAPH_NODE_TYPE_GRAPH);
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, stream));
    k.gridDimX = 9;
    CHECK(cuGraphExecKernelNodeSetParams(exec, kernel, &k));
    CHECK(cuGraphNodeSetEnabled(exec, set, 0));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    unsigned char bytes[32];
    CHECK(cuMemcpyDtoH(bytes, buffer, sizeof bytes));
    EXPECT(bytes[31] == 7);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(child));
    CHECK(cuGraphDestroy(graph));
    puts("graphs");
}

static void captures(CUstream stream, CUdeviceptr buffer)
{
    CUgraph graph;
    CUdeviceptr other;
    CUstreamCaptureStatus status;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(cuMemAlloc(&other, 64) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(cuMemsetD8Async(buffer, 0, 8, stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(cuMemAlloc(&other, 64));
    CHECK(cuMemFree(other));
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(cuStreamIsCapturing(stream, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT(cuLaunchKernel(encode, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    puts("captures");
}

static void contexts(void)
{
    CUcontext mine, was;
    CUevent event;
    CHECK(cuCtxGetCurrent(&was));
    CHECK(cuCtxCreate_v4(&mine, NULL, 0, 0));
    CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CHECK(cuEventRecord(event, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuEventDestroy(event));
    EXPECT(cuEventQuery(event) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuCtxDestroy(mine));
    CHECK(cuCtxGetCurrent(&mine));
    EXPECT(mine == was);
    puts("contexts");
}

int main(void)
{
    CUdevice device;
    CUcontext ctx;
    CUmodule module;
    CUstream stream;
    CUdeviceptr buffer;
    char name[64];
    EXPECT(cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDeviceGetName(name, sizeof name, device));
    puts(name);
    EXPECT(cuCtxSynchronize() == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuDevicePrimaryCtxRetain(&ctx, device));
    CHECK(cuCtxSetCurrent(ctx));
    modules(&module);
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    CHECK(cuMemAlloc(&buffer, 4096));
    launches(stream, buffer);
    memory(stream, buffer);
    graphs(stream, buffer);
    captures(stream, buffer);
    contexts();
    CHECK(cuMemFree(buffer));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    CHECK(cuDevicePrimaryCtxRelease(device));
    puts("ok");
    return 0;
}
