/* events.c - launches into streams, inside and outside of stages. Its arguments are steps; see step().
 *
 * It is linked to libcuda.so.1 only. Prints the result of each step, and "errno" if a launch has changed errno.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"
#include "tfinject.h"

static const char ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
                          ".visible .entry alpha() { ret; }\n.visible .entry beta() { ret; }\n";

static CUcontext context;
static CUfunction alpha, beta;
static CUstream stream[2];
static CUgraphExec exec;

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        CUresult e_ = (call);                                                                                          \
        if (e_ != CUDA_SUCCESS) printf("%d: %s: %d\n", __LINE__, #call, (int)e_), exit(1);                             \
    } while (0)

static void begin(void)
{
    CUmodule module;
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&alpha, module, "alpha"));
    CHECK(cuModuleGetFunction(&beta, module, "beta"));
    for (int i = 0; i < 2; i++) CHECK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
}

static CUresult launch(CUfunction f, CUstream to, unsigned blocks)
{
    errno = 77;
    CUresult result = cuLaunchKernel(f, blocks, 1, 1, 32, 1, 1, 0, to, NULL, NULL);
    if (errno != 77) puts("errno");
    return result;
}

/* The variant that programs compiled for per-thread default streams call. */
CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                             unsigned shared, CUstream to, void **params, void **extra);

static void *launch_many(void *count)
{
    CHECK(cuCtxSetCurrent(context));
    for (long i = 0; i < *(long *)count; i++) CHECK(launch(beta, stream[i % 2], 1));
    return NULL;
}

static void threads(long count)
{
    pthread_t thread[8];
    for (int i = 0; i < 8; i++) pthread_create(&thread[i], NULL, launch_many, &count);
    for (int i = 0; i < 8; i++) pthread_join(thread[i], NULL);
}

static void capture(long count)
{
    CUgraph graph;
    size_t nodes = 0;
    CHECK(cuStreamBeginCapture(stream[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (long i = 0; i < count; i++) CHECK(launch(alpha, stream[0], 1));
    CHECK(launch(beta, stream[1], 1)); /* not part of the graph */
    CHECK(cuStreamEndCapture(stream[0], &graph));
    CHECK(cuGraphGetNodes(graph, NULL, &nodes));
    printf("nodes %zu\n", nodes);
    CHECK(cuGraphInstantiate(&exec, graph, 0));
}

static void another_context(long count)
{
    CUcontext other;
    CUfunction f = alpha, g = beta;
    CUstream s[2] = {stream[0], stream[1]};
    CUdevice device;
    CHECK(cuDeviceGet(&device, 1));
    CHECK(cuCtxCreate_v4(&other, NULL, 0, device));
    begin();
    for (long i = 0; i < count; i++) CHECK(launch(alpha, stream[0], 2));
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxDestroy(other));
    alpha = f;
    beta = g;
    memcpy(stream, s, sizeof s);
}

static void child(void)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        printf("child %d %d\n", (int)launch(alpha, stream[0], 1), (int)cuCtxSynchronize());
        exit(0);
    }
    waitpid(pid, NULL, 0);
}

static void refused(void)
{
    printf("refused %d %d\n", (int)launch(alpha, stream[0], 0), (int)launch(NULL, stream[0], 1));
}

/* Copies so many KiB from pinned memory, in the first stream. */
static void copy(long size)
{
    static void *pinned;
    static CUdeviceptr memory;
    if (!pinned) CHECK(cuMemAllocHost(&pinned, (size_t)size << 10));
    if (!memory) CHECK(cuMemAlloc(&memory, (size_t)size << 10));
    CHECK(cuMemcpyHtoDAsync(memory, pinned, (size_t)size << 10, stream[0]));
}

/* The second stream waits for the first one. */
static void wait_for_first(void)
{
    static CUevent event;
    if (!event) CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(event, stream[0]));
    CHECK(cuStreamWaitEvent(stream[1], event, 0));
}

static int step(const char *word, long n)
{
    if (strcmp(word, "kernel") == 0)
        for (long i = 0; i < n; i++) CHECK(launch(i % 2 ? beta : alpha, stream[0], (unsigned)(i % 5 + 1)));
    else if (strcmp(word, "other") == 0)
        for (long i = 0; i < n; i++) CHECK(launch(alpha, stream[1], 1));
    else if (strcmp(word, "legacy") == 0)
        for (long i = 0; i < n; i++) CHECK(launch(beta, NULL, 1));
    else if (strcmp(word, "perthread") == 0)
        for (long i = 0; i < n; i++) CHECK(cuLaunchKernel_ptsz(beta, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    else if (strcmp(word, "graph") == 0)
        for (long i = 0; i < n; i++) CHECK(cuGraphLaunch(exec, stream[0]));
    else if (strcmp(word, "push") == 0) tfi_range_push(n == 1 ? "one" : n == 2 ? "two" : "three");
    else if (strcmp(word, "pop") == 0) tfi_range_pop();
    else if (strcmp(word, "threads") == 0) threads(n);
    else if (strcmp(word, "capture") == 0) capture(n);
    else if (strcmp(word, "context") == 0) another_context(n);
    else if (strcmp(word, "fork") == 0) child();
    else if (strcmp(word, "refused") == 0) refused();
    else if (strcmp(word, "sync") == 0) printf("sync %d\n", (int)cuCtxSynchronize());
    else if (strcmp(word, "destroy") == 0) CHECK(cuStreamDestroy(stream[0]));
    else if (strcmp(word, "release") == 0) CHECK(cuDevicePrimaryCtxRelease(0));
    else if (strcmp(word, "copy") == 0) copy(n);
    else if (strcmp(word, "wait") == 0) wait_for_first();
    else if (strcmp(word, "sleep") == 0) usleep((unsigned)n * 1000);
    else if (strcmp(word, "quit") == 0) fflush(stdout), _exit(0);
    else return 1;
    return 0;
}

int main(int argc, char **argv)
{
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    begin();
    for (int i = 1; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (value) *value++ = 0;
        if (value && strcmp(argv[i], "file") == 0)
            while (access(value, F_OK) != 0) usleep(1000);
        else if (step(argv[i], value ? atol(value) : 1)) printf("unknown: %s\n", argv[i]);
    }
    puts("ok");
    return 0;
}
