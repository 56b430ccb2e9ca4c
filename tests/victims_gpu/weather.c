/* weather.c - uses the CUDA driver in the bad ways of real programs, and prints each call's name, result and errno.
 *
 * The first argument selects the way; the program continues after an error. The output is the same in every run. It is
 * linked to libcuda.so.1; it opens the runtime if it needs it. weather_dl.c is linked to no CUDA library.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"

#define STRING_(x) #x
#define STRING(x) STRING_(x) /* with the suffix that cuda.h gives the name */
#define SENTINEL 77
#define CALL(function, ...) (errno = SENTINEL, said(STRING(function), (int)(function)(__VA_ARGS__), errno))
#define LAUNCHES 500

static const char ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
                          ".visible .entry rain() { ret; }\n.visible .entry hail() { ret; }\n";
static CUcontext context;
static CUmodule module;
static CUfunction rain, hail;
static CUstream stream;
static CUdeviceptr memory;

static int said(const char *name, int result, int error)
{
    printf("%s %d %d\n", name, result, error);
    return result;
}

static void begin(void)
{
    int n = -1;
    CALL(cuInit, 0);
    CALL(cuDeviceGetCount, &n);
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    CALL(cuCtxSetCurrent, context);
}

static void load(void)
{
    CALL(cuModuleLoadData, &module, ptx);
    CALL(cuModuleGetFunction, &rain, module, "rain");
    CALL(cuModuleGetFunction, &hail, module, "hail");
    CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CALL(cuMemAlloc, &memory, 4096);
}

static void launch(CUfunction function, int n)
{
    for (int i = 0; i < n; i++) CALL(cuLaunchKernel, function, 2, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}

static void work(void)
{
    char data[64] = "snow", back[64] = "";
    CUevent event = NULL;
    launch(rain, 3);
    CALL(cuMemcpyHtoD, memory, data, sizeof data);
    CALL(cuMemsetD8Async, memory + 64, 1, 64, stream);
    CALL(cuEventCreate, &event, CU_EVENT_DEFAULT);
    CALL(cuEventRecord, event, stream);
    launch(hail, 2);
    CALL(cuStreamSynchronize, stream);
    CALL(cuEventQuery, event);
    CALL(cuEventDestroy, event);
    CALL(cuMemcpyDtoH, back, memory, sizeof back);
    printf("data %s\n", back);
    CALL(cuCtxSynchronize, );
}

static void end(void)
{
    CALL(cuMemFree, memory);
    CALL(cuStreamDestroy, stream);
    CALL(cuModuleUnload, module);
    CALL(cuDevicePrimaryCtxRelease, 0);
}

/* ---- contexts that disappear ---- */

static void reset(void)
{
    work();
    CALL(cuDevicePrimaryCtxReset, 0);
    work(); /* with dead handles */
    CALL(cuCtxSetCurrent, NULL);
    launch(rain, 1); /* without a context */
    begin();
    load();
    work();
}

static void destroyed(void)
{
    CUcontext other = NULL;
#if CUDA_VERSION >= 13000
    CALL(cuCtxCreate, &other, NULL, 0, 0);
#else
    CALL(cuCtxCreate, &other, 0, 0);
#endif
    load();
    work();
    CALL(cuCtxDestroy, other);
    work();
    CALL(cuCtxSetCurrent, context);
    load();
    work();
}

/* ---- threads and processes ---- */

static void *launching(void *arg)
{
    CUstream own = NULL;
    long failed = cuCtxSetCurrent(context) != CUDA_SUCCESS;
    failed += cuStreamCreate(&own, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS;
    for (int i = 0; i < LAUNCHES; i++) {
        errno = SENTINEL;
        failed += cuLaunchKernel(arg, 1, 1, 1, 1, 1, 1, 0, own, NULL, NULL) != CUDA_SUCCESS || errno != SENTINEL;
    }
    failed += cuStreamSynchronize(own) != CUDA_SUCCESS;
    return (void *)failed;
}

static void threads(void)
{
    pthread_t thread[8];
    for (int i = 0; i < 8; i++) pthread_create(&thread[i], NULL, launching, i % 2 ? rain : hail);
    for (int i = 0; i < 8; i++) {
        void *failed;
        pthread_join(thread[i], &failed);
        printf("thread %d: %ld failed\n", i, (long)failed);
    }
}

static void forked(void)
{
    int status = 0;
    work();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        launch(rain, 1);
        CALL(cuMemFree, memory);
        CALL(cuCtxSynchronize, );
        exit(7);
    }
    waitpid(child, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    work();
}

/* Captures in GLOBAL mode for longer than several fetches of a profiler with a short period. */
static void capture(void)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    launch(rain, 2);
    CALL(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    for (int i = 0; i < 4; i++) {
        launch(hail, 1);
        CALL(cuMemsetD8Async, memory, 1, 64, stream);
        usleep(30000);
    }
    CALL(cuStreamEndCapture, stream, &graph);
    CALL(cuGraphInstantiate, &exec, graph, 0);
    for (int i = 0; i < 3; i++) CALL(cuGraphLaunch, exec, stream);
    CALL(cuStreamSynchronize, stream);
    CALL(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CALL(cuMemAlloc, &memory, 64); /* the call ends the capture */
    launch(rain, 1);
    CALL(cuStreamEndCapture, stream, &graph);
}

/* ---- the runtime, and an error that stays ---- */

static void *runtime_handle;

static int runtime(const char *name, long a, long b, long c, long d)
{
    int (*function)(long, long, long, long) = (int (*)(long, long, long, long))dlsym(runtime_handle, name);
    if (!function) return printf("no %s\n", name);
    errno = SENTINEL;
    int result = function(a, b, c, d);
    return said(name, result, errno);
}

static void errors(void)
{
    long p = 0, q = 0;
    char data[8] = "sleet";
    runtime_handle = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!runtime_handle) puts("no runtime");
    if (!runtime_handle) return;
    runtime("cudaSetDevice", 99, 0, 0, 0);
    runtime("cudaPeekAtLastError", 0, 0, 0, 0);
    runtime("cudaGetLastError", 0, 0, 0, 0);
    runtime("cudaGetLastError", 0, 0, 0, 0);
    runtime("cudaMalloc", (long)&p, 4096, 0, 0);
    runtime("cudaMalloc", (long)&q, 4096, 0, 0);
    runtime("cudaMemcpy", p, (long)data, sizeof data, 1);
    runtime("cudaMemcpy", p, (long)data, sizeof data, 99);
    runtime("cudaPeekAtLastError", 0, 0, 0, 0);
    runtime("cudaMemset", p, 0, 4096, 0);
    runtime("cudaPeekAtLastError", 0, 0, 0, 0);
    runtime("cudaDeviceSynchronize", 0, 0, 0, 0);
    runtime("cudaDeviceReset", 0, 0, 0, 0);
    runtime("cudaFree", p, 0, 0, 0);
    runtime("cudaGetLastError", 0, 0, 0, 0);
    runtime("cudaMalloc", (long)&p, 4096, 0, 0);
    runtime("cudaMemset", p, 0, 4096, 0);
    runtime("cudaDeviceSynchronize", 0, 0, 0, 0);
    runtime("cudaGetLastError", 0, 0, 0, 0);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    static const struct {
        const char *name;
        void (*function)(void);
    } modes[] = {{"work", work},     {"reset", reset},     {"destroyed", destroyed}, {"threads", threads},
                 {"forked", forked}, {"capture", capture}, {"errors", errors}};
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    begin();
    if (strcmp(mode, "destroyed") != 0) load();
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(mode, modes[i].name) == 0) modes[i].function();
    end();
    return argc > 2 ? atoi(argv[2]) : 0;
}
