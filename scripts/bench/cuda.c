/* cuda.c - launches kernels as fast as it can and prints their cost to the threads, for scripts/bench/cuda.
 *
 *     cuda THREADS COUNT PAUSE STEP [NODES CUPTI]
 *
 * COUNT is the number of launches over all threads. The program sleeps PAUSE microseconds after each thousand. A stage
 * is open all the time, except if PAUSE is below 0. Each launch has STEP more blocks than the one before; with 0 all
 * are alike. If NODES is above 0, it launches graphs of that many kernels instead of single ones. With CUPTI 1 the
 * program requests records of kernels itself and discards them; with 2, one record for each graph. Any profiler on
 * CUPTI costs at least that.
 *
 * Prints the nanoseconds of CPU time of the calling threads for one launch (sleeps cost none), all CPU nanoseconds of the
 * calling threads and of the main thread, and the wall time from the first launch until the device is done.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cuda.h>

#include "tfinject.h"

#define BURST 1000

static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n";
static CUfunction kernel;
static CUcontext context;
static long count, pause_us;
static unsigned step;
static int nodes;
static pthread_barrier_t barrier;

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void check(int result, const char *what)
{
    if (result == 0) return;
    fprintf(stderr, "cuda: %s: %d\n", what, result);
    exit(1);
}

/* ---- CUPTI: a minimal client ---- */

#define BUFFER (4u << 20)

static void request(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = aligned_alloc(8, BUFFER);
    *size = BUFFER;
    *most = 0;
}

static void complete(CUcontext unused, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)unused, (void)stream, (void)size, (void)valid;
    free(buffer);
}

static void *function(void *library, const char *name)
{
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) fprintf(stderr, "cuda: no %s\n", name), exit(1);
    return found;
}

static void ask_cupti(int how)
{
    enum { CONCURRENT_KERNEL = 10, GRAPH_TRACE = 51 };
    void *library = dlopen("libcupti.so.13", RTLD_NOW);
    if (!library) library = dlopen("libcupti.so.12", RTLD_NOW);
    int (*callbacks)(void *, void *) = (int (*)(void *, void *))function(library, "cuptiActivityRegisterCallbacks");
    int (*enable)(int) = (int (*)(int))function(library, "cuptiActivityEnable");
    check(callbacks((void *)request, (void *)complete), "cuptiActivityRegisterCallbacks");
    check(enable(CONCURRENT_KERNEL), "cuptiActivityEnable");
    if (how == 2) check(enable(GRAPH_TRACE), "cuptiActivityEnable");
}

/* ---- graphs ---- */

static int (*launch_graph)(void *, CUstream);

static void *graph_of(CUstream stream)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *graph = NULL, *exec = NULL;
    int (*begin)(CUstream, int) = (int (*)(CUstream, int))function(driver, "cuStreamBeginCapture_v2");
    int (*end)(CUstream, void **) = (int (*)(CUstream, void **))function(driver, "cuStreamEndCapture");
    int (*instantiate)(void **, void *, unsigned long long) =
        (int (*)(void **, void *, unsigned long long))function(driver, "cuGraphInstantiateWithFlags");
    check(begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
    for (int i = 0; i < nodes; i++)
        check(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL), "cuLaunchKernel");
    check(end(stream, &graph), "cuStreamEndCapture");
    check(instantiate(&exec, graph, 0), "cuGraphInstantiateWithFlags");
    return exec;
}

static void burst(CUstream stream, void *graph, unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        if (graph) launch_graph(graph, stream);
        else cuLaunchKernel(kernel, 1 + i * step, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}

static void *launches(void *out)
{
    CUstream stream = NULL;
    unsigned times = nodes ? 10 : BURST;
    struct timespec rest = {.tv_nsec = pause_us * 1000};
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    /* The first launch looks the functions up, so it is not measured. */
    check(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL), "cuLaunchKernel");
    void *graph = nodes ? graph_of(stream) : NULL;
    pthread_barrier_wait(&barrier);
    double used = 0;
    for (long done = 0; done < count; done += times) {
        double start = now(CLOCK_THREAD_CPUTIME_ID);
        burst(stream, graph, times);
        used += now(CLOCK_THREAD_CPUTIME_ID) - start;
        if (pause_us > 0) nanosleep(&rest, NULL);
    }
    *(double *)out = used;
    out = (double *)out + 1;
    *(double *)out = now(CLOCK_THREAD_CPUTIME_ID);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread[64];
    double figures[64][2], used = 0, all = 0;
    int threads = argc == 5 || argc == 7 ? atoi(argv[1]) : 0, cupti = argc == 7 ? atoi(argv[6]) : 0;
    CUmodule module;
    if (threads < 1 || threads > 64) return fprintf(stderr, "usage: cuda THREADS COUNT PAUSE STEP [NODES CUPTI]\n"), 2;
    nodes = argc == 7 ? atoi(argv[5]) : 0;
    count = atol(argv[2]) / threads / (nodes ? 10 : BURST) * (nodes ? 10 : BURST);
    pause_us = atol(argv[3]);
    step = (unsigned)atoi(argv[4]);
    if (pause_us >= 0) tfi_range_push("bench");
    check(cuInit(0), "cuInit");
    if (cupti) ask_cupti(cupti);
    check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    check(cuModuleGetFunction(&kernel, module, "nothing"), "cuModuleGetFunction");
    if (nodes) *(void **)&launch_graph = function(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuGraphLaunch");
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    double began = now(CLOCK_MONOTONIC);
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], NULL, launches, figures[i]);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < threads; i++) used += figures[i][0], all += figures[i][1];
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    double wall = now(CLOCK_MONOTONIC) - began;
    if (pause_us >= 0) tfi_range_pop();
    printf("%.2f %.0f %.0f\n", used / (double)(count * threads), all + now(CLOCK_THREAD_CPUTIME_ID), wall);
    return 0;
}
