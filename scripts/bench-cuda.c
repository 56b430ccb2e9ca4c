/* bench-cuda.c - launches kernels as fast as it can, and says what that cost the threads that did it: for scripts/bench-cuda.
 *
 *     bench-cuda THREADS COUNT PAUSE STEP   COUNT launches over all threads, PAUSE microseconds of sleep after each thousand
 *
 * Prints nanoseconds of CPU time of the calling threads for one launch (sleeps cost none), and all CPU nanoseconds of
 * the calling threads and of the main thread. A stage is open all the time. PAUSE below 0: no stage is ever opened. Each
 * launch has STEP more blocks than the one before: with 0 all are alike.
 */
#include <pthread.h>
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
    fprintf(stderr, "bench-cuda: %s: %d\n", what, result);
    exit(1);
}

static void *launches(void *out)
{
    CUstream stream = NULL;
    struct timespec rest = {.tv_nsec = pause_us * 1000};
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL), "cuLaunchKernel"); /* finds what it calls */
    pthread_barrier_wait(&barrier);
    double used = 0;
    for (long done = 0; done < count; done += BURST) {
        double start = now(CLOCK_THREAD_CPUTIME_ID);
        for (unsigned i = 0; i < BURST; i++)
            cuLaunchKernel(kernel, 1 + i * step, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
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
    int threads = argc == 5 ? atoi(argv[1]) : 0;
    CUmodule module;
    if (threads < 1 || threads > 64) return fprintf(stderr, "usage: bench-cuda THREADS COUNT PAUSE STEP\n"), 2;
    count = atol(argv[2]) / threads / BURST * BURST;
    pause_us = atol(argv[3]);
    step = (unsigned)atoi(argv[4]);
    if (pause_us >= 0) tfi_range_push("bench");
    check(cuInit(0), "cuInit");
    check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    check(cuModuleGetFunction(&kernel, module, "nothing"), "cuModuleGetFunction");
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], NULL, launches, figures[i]);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < threads; i++) used += figures[i][0], all += figures[i][1];
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    if (pause_us >= 0) tfi_range_pop();
    printf("%.2f %.0f\n", used / (double)(count * threads), all + now(CLOCK_THREAD_CPUTIME_ID));
    return 0;
}
