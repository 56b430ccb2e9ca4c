/* mixture.c - a program of the driver API whose calls are drawn at random: `mixture SEED CALLS [alone]`.
 *
 * Two devices; in each the legacy stream, the threads' own streams, two that wait for the legacy stream and two that do
 * not; kernels, copies of every direction, sets, replays of a graph, events between all streams, waits of the host;
 * stages that nest, steps, and a second thread with stages of its own, unless it is to be alone. It prints a JSON line
 * for each stage, with its thread and CLOCK_MONOTONIC around it. The
 * simulated device's log has the rest.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "cuda.h"
#include "tfinject.h"

enum { DEVICES = 2, STREAMS = 7, KERNELS = 5, EVENTS = 6, BYTES = 1 << 16, STEPS = 3, DEEPEST = 4 };

#define ENTRY(name) ".visible .entry " name "(.param .u64 out, .param .u32 n) { ret; }\n"
static const char *const names[KERNELS] = {"_Z11text_encodePfi", "sm90_xmma_gemm_f16f16", "nvjet_hsh_128x256",
                                           "ncclDevKernel_AllReduce_Sum_f32", "plain"};
static const char ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n" ENTRY("_Z11text_encodePfi")
    ENTRY("sm90_xmma_gemm_f16f16") ENTRY("nvjet_hsh_128x256") ENTRY("ncclDevKernel_AllReduce_Sum_f32") ENTRY("plain");

struct gpu {
    CUcontext context;
    CUfunction kernel[KERNELS];
    CUstream stream[STREAMS];  /* the first three are handles of default streams */
    CUevent event[EVENTS + 2]; /* the last two only for the capture */
    CUgraphExec graph;
    CUdeviceptr buffer;
};

struct open_stage {
    char name[32];
    long long begin;
};

/* One thread of the program. */
struct actor {
    unsigned random;
    int device, depth, bottom, calls;
    struct open_stage open[DEEPEST + 2];
};

static struct gpu gpus[DEVICES];
static char *pinned, pageable[BYTES];
static bool alone;

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static unsigned below(struct actor *a, unsigned limit)
{
    a->random = a->random * 1664525u + 1013904223u;
    return (unsigned)((unsigned long long)(a->random >> 8) * limit >> 24);
}

/* ---- stages ---- */

static void enter(struct actor *a, const char *name, unsigned number)
{
    struct open_stage *stage = &a->open[a->depth++];
    snprintf(stage->name, sizeof stage->name, name, number);
    stage->begin = now();
    if (tfi_range_push) tfi_range_push(stage->name);
}

static void leave(struct actor *a)
{
    const struct open_stage *stage = &a->open[--a->depth];
    if (tfi_range_pop) tfi_range_pop();
    printf("{\"stage\":\"%s\",\"tid\":%d,\"begin\":%lld,\"end\":%lld}\n", stage->name, (int)syscall(SYS_gettid),
           stage->begin, now());
}

static void enter_or_leave(struct actor *a)
{
    static const char *const stages[] = {"encode", "denoise", "step %u", "decode"};
    if (a->depth > a->bottom && below(a, 2)) leave(a);
    else if (a->depth < a->bottom + DEEPEST - 1) enter(a, stages[below(a, 4)], below(a, 2));
}

/* ---- calls ---- */

static CUstream any_stream(struct actor *a)
{
    return gpus[a->device].stream[below(a, STREAMS)];
}

static void launch(struct actor *a, CUstream stream)
{
    struct gpu *gpu = &gpus[a->device];
    unsigned n = below(a, 100);
    void *params[] = {&gpu->buffer, &n};
    CHECK(cuLaunchKernel(gpu->kernel[below(a, KERNELS)], 1 + below(a, 300), 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

static void copy(struct actor *a)
{
    struct gpu *gpu = &gpus[a->device], *other = &gpus[!a->device];
    CUdeviceptr at = gpu->buffer, half = at + BYTES / 2;
    size_t size = 16 + below(a, BYTES / 2 - 16);
    CUstream stream = any_stream(a);
    switch (below(a, 11)) {
    case 0: CHECK(cuMemcpyHtoDAsync(at, pinned, size, stream)); break;
    case 1: CHECK(cuMemcpyHtoDAsync(at, pageable, size, stream)); break;
    case 2: CHECK(cuMemcpyDtoHAsync(pinned, at, size, stream)); break;
    case 3: CHECK(cuMemcpyDtoHAsync(pageable, at, size, stream)); break;
    case 4: CHECK(cuMemcpyDtoDAsync(at, half, size, stream)); break;
    case 5: CHECK(cuMemcpyPeerAsync(other->buffer, other->context, at, gpu->context, size, stream)); break;
    case 6: CHECK(cuMemcpyHtoD(at, pageable, size)); break;
    case 7: CHECK(cuMemcpyDtoH(pinned, at, size)); break;
    case 8: CHECK(cuMemsetD8Async(at, 1, size, stream)); break;
    case 9: CHECK(cuMemsetD32Async(at, 2, size / 4, stream)); break;
    default: CHECK(cuMemcpyAsync(at, half, size, stream));
    }
}

/* Lets one stream wait for another, which may be on the other device. */
static void wait_between(struct actor *a)
{
    struct gpu *gpu = &gpus[a->device];
    CUevent event = gpu->event[below(a, EVENTS)];
    CHECK(cuEventRecord(event, any_stream(a)));
    if (below(a, 3) == 0) {
        a->device = !a->device;
        CHECK(cuCtxSetCurrent(gpus[a->device].context));
    }
    CHECK(cuStreamWaitEvent(any_stream(a), event, 0));
}

static void wait_here(struct actor *a)
{
    struct gpu *gpu = &gpus[a->device];
    switch (below(a, 4)) {
    case 0: CHECK(cuCtxSynchronize()); break;
    case 1: CHECK(cuEventSynchronize(gpu->event[below(a, EVENTS)])); break;
    default: CHECK(cuStreamSynchronize(any_stream(a)));
    }
}

static void make_call(struct actor *a)
{
    unsigned drawn = below(a, 100);
    if (drawn < 45) launch(a, any_stream(a));
    else if (drawn < 62) copy(a);
    else if (drawn < 67) CHECK(cuGraphLaunch(gpus[a->device].graph, any_stream(a)));
    else if (drawn < 74) wait_between(a);
    else if (drawn < 79) wait_here(a);
    else if (drawn < 88) enter_or_leave(a);
    else if (drawn < 95) usleep(below(a, 200));
    else {
        a->device = !a->device;
        CHECK(cuCtxSetCurrent(gpus[a->device].context));
    }
}

static void make_calls(struct actor *a)
{
    for (int i = 0; i < a->calls; i++) make_call(a);
    while (a->depth > a->bottom) leave(a);
}

static void *helper(void *data)
{
    struct actor *a = data;
    CHECK(cuCtxSetCurrent(gpus[a->device].context));
    enter(a, "upscale", 0);
    make_calls(a);
    leave(a);
    return NULL;
}

/* ---- devices ---- */

/* Captures work that forks into a second stream and joins again. */
static void make_graph(struct actor *a, struct gpu *gpu)
{
    CUgraph graph;
    CUstream one = gpu->stream[5], two = gpu->stream[6];
    CHECK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(a, one);
    CHECK(cuEventRecord(gpu->event[EVENTS], one));
    CHECK(cuStreamWaitEvent(two, gpu->event[EVENTS], 0));
    CHECK(cuMemsetD8Async(gpu->buffer, 7, 4096, two));
    launch(a, one);
    CHECK(cuMemcpyDtoDAsync(gpu->buffer, gpu->buffer + BYTES / 2, 5000, two));
    CHECK(cuEventRecord(gpu->event[EVENTS + 1], two));
    CHECK(cuStreamWaitEvent(one, gpu->event[EVENTS + 1], 0));
    launch(a, one);
    CHECK(cuStreamEndCapture(one, &graph));
    CHECK(cuGraphInstantiate(&gpu->graph, graph, 0));
    CHECK(cuGraphDestroy(graph));
}

static void open_gpu(struct actor *a, int number)
{
    struct gpu *gpu = &gpus[number];
    CUdevice device;
    CUmodule module;
    CHECK(cuDeviceGet(&device, number));
    CHECK(cuDevicePrimaryCtxRetain(&gpu->context, device));
    CHECK(cuCtxSetCurrent(gpu->context));
    CHECK(cuModuleLoadData(&module, ptx));
    for (int i = 0; i < KERNELS; i++) CHECK(cuModuleGetFunction(&gpu->kernel[i], module, names[i]));
    gpu->stream[1] = CU_STREAM_LEGACY;
    gpu->stream[2] = CU_STREAM_PER_THREAD;
    for (int i = 3; i < STREAMS; i++)
        CHECK(cuStreamCreate(&gpu->stream[i], i < 5 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < EVENTS + 2; i++) CHECK(cuEventCreate(&gpu->event[i], CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < EVENTS; i++) CHECK(cuEventRecord(gpu->event[i], gpu->stream[5]));
    CHECK(cuMemAlloc(&gpu->buffer, BYTES));
    a->device = number;
    make_graph(a, gpu);
}

int main(int argc, char **argv)
{
    struct actor me = {.random = argc > 1 ? (unsigned)atoi(argv[1]) : 1, .calls = argc > 2 ? atoi(argv[2]) : 60};
    alone = argc > 3;
    CHECK(cuInit(0));
    for (int i = DEVICES - 1; i >= 0; i--) open_gpu(&me, i);
    CHECK(cuMemAllocHost((void **)&pinned, BYTES));
    for (unsigned i = 0; i < STEPS; i++) {
        struct actor other = {.random = me.random ^ 0x5bd1e995u, .device = 1, .bottom = 1, .calls = me.calls / 3};
        pthread_t thread;
        make_calls(&me); /* outside of the steps */
        enter(&me, "ProfilerStep#%u", i);
        me.bottom = 1;
        if (!alone) pthread_create(&thread, NULL, helper, &other);
        make_calls(&me);
        if (!alone) pthread_join(thread, NULL);
        leave(&me);
        me.bottom = 0;
    }
    for (int i = 0; i < DEVICES; i++) {
        CHECK(cuCtxSetCurrent(gpus[i].context));
        CHECK(cuCtxSynchronize());
    }
    puts("{\"ok\":1}");
    return 0;
}
