/* pipeline_stages.c - a pipeline of the driver API in three stages: streams, copies, a graph, two threads, two devices.
 *
 * `pipeline_stages tfi` marks its stages by tfinject.h, `pipeline_stages nvtx` by NVTX. It prints a JSON line for each:
 * thread, name, and CLOCK_MONOTONIC around it, so that a test can assign launches to stages without the library.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"
#include "nvtx3/nvToolsExt.h"
#include "tfinject.h"

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        CUresult e_ = (call);                                                                                          \
        if (e_ != CUDA_SUCCESS) printf("%d: %s: %d\n", __LINE__, #call, (int)e_), exit(1);                             \
    } while (0)

enum { STEPS = 4, BYTES = 65536 };

static const char ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
                          ".visible .entry _Z11text_encodePfi(.param .u64 out, .param .u32 n) { ret; }\n"
                          ".visible .entry denoise_step(.param .u64 out, .param .u32 n) { ret; }\n"
                          ".visible .entry ncclDevKernel_AllReduce_Sum_f32(.param .u64 out, .param .u32 n) { ret; }\n"
                          ".visible .entry vae_decode(.param .u64 out, .param .u32 n) { ret; }\n";

struct gpu {
    CUcontext context;
    CUfunction encode, denoise, reduce, decode;
    CUstream one, two;
    CUdeviceptr buffer;
};

struct stage {
    const char *name;
    long long begin;
};

static bool by_nvtx;

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static struct stage enter(const char *name)
{
    struct stage stage = {name, now()};
    if (by_nvtx) nvtxRangePushA(name);
    else if (tfi_range_push) tfi_range_push(name);
    return stage;
}

static void leave(struct stage stage)
{
    if (by_nvtx) nvtxRangePop();
    else if (tfi_range_pop) tfi_range_pop();
    printf("{\"stage\":\"%s\",\"tid\":%d,\"begin\":%lld,\"end\":%lld}\n", stage.name, (int)syscall(SYS_gettid),
           stage.begin, now());
}

static void open_gpu(struct gpu *gpu, int number)
{
    CUdevice device;
    CUmodule module;
    CHECK(cuDeviceGet(&device, number));
    CHECK(cuDevicePrimaryCtxRetain(&gpu->context, device));
    CHECK(cuCtxSetCurrent(gpu->context));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&gpu->encode, module, "_Z11text_encodePfi"));
    CHECK(cuModuleGetFunction(&gpu->denoise, module, "denoise_step"));
    CHECK(cuModuleGetFunction(&gpu->reduce, module, "ncclDevKernel_AllReduce_Sum_f32"));
    CHECK(cuModuleGetFunction(&gpu->decode, module, "vae_decode"));
    CHECK(cuStreamCreate(&gpu->one, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&gpu->two, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&gpu->buffer, 2 * BYTES));
}

static void launch(struct gpu *gpu, CUfunction function, unsigned blocks, CUstream stream)
{
    unsigned n = blocks;
    void *params[] = {&gpu->buffer, &n};
    CHECK(cuLaunchKernel(function, blocks, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

/* Captures two kernels and a set. */
static CUgraphExec make_graph(struct gpu *gpu)
{
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamBeginCapture(gpu->two, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemsetD8Async(gpu->buffer, 7, 4096, gpu->two));
    launch(gpu, gpu->denoise, 50, gpu->two);
    launch(gpu, gpu->decode, 60, gpu->two);
    CHECK(cuStreamEndCapture(gpu->two, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return exec;
}

/* Opens no stage: its launches belong to the stage that is open. */
static void *helper(void *data)
{
    struct gpu *gpu = data;
    CHECK(cuCtxSetCurrent(gpu->context));
    for (unsigned i = 0; i < 3; i++) launch(gpu, gpu->reduce, 10 + i, gpu->one);
    return NULL;
}

/* Opens a stage, on the second device. */
static void *worker(void *data)
{
    struct gpu *gpu = data;
    CHECK(cuCtxSetCurrent(gpu->context));
    struct stage stage = enter("upscale");
    for (unsigned i = 0; i < 2; i++) launch(gpu, gpu->encode, 20 + i, gpu->two);
    CHECK(cuMemcpyDtoDAsync(gpu->buffer + BYTES, gpu->buffer, 1000, gpu->two));
    leave(stage);
    return NULL;
}

static void in_thread(void *(*work)(void *), struct gpu *gpu)
{
    pthread_t thread;
    pthread_create(&thread, NULL, work, gpu);
    pthread_join(thread, NULL);
}

static void denoise(struct gpu *gpu, struct gpu *second, CUgraphExec graph)
{
    struct stage stage = enter("denoise");
    in_thread(helper, second);
    for (unsigned i = 0; i < STEPS; i++) {
        struct stage step = enter("step");
        launch(gpu, gpu->denoise, 100 * (i + 1), gpu->one);
        CHECK(cuGraphLaunch(graph, gpu->two));
        CHECK(cuMemcpyDtoDAsync(gpu->buffer, gpu->buffer + BYTES, 500 + i, gpu->one));
        leave(step);
    }
    in_thread(worker, second);
    CHECK(cuStreamSynchronize(gpu->one));
    leave(stage);
}

int main(int argc, char **argv)
{
    static struct gpu first, second;
    static char host[BYTES];
    by_nvtx = argc > 1 && strcmp(argv[1], "nvtx") == 0;
    CHECK(cuInit(0));
    open_gpu(&second, 1);
    open_gpu(&first, 0);
    CUgraphExec graph = make_graph(&first);
    struct stage stage = enter("text_encode");
    CHECK(cuMemcpyHtoDAsync(first.buffer, host, BYTES, first.one));
    for (unsigned i = 0; i < 3; i++) launch(&first, first.encode, i + 1, first.one);
    CHECK(cuMemsetD32Async(first.buffer, 1, 256, first.two));
    leave(stage);
    denoise(&first, &second, graph);
    stage = enter("vae_decode");
    launch(&first, first.decode, 500, first.two);
    CHECK(cuMemcpyDtoHAsync(host, first.buffer, 30000, first.two));
    CHECK(cuCtxSynchronize());
    leave(stage);
    launch(&first, first.decode, 5, first.one);
    CHECK(cuStreamSynchronize(first.one));
    puts("{\"ok\":1}");
    return 0;
}
