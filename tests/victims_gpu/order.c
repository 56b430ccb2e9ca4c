/* order.c - the order of work: streams, events, the legacy stream, host functions that block, threads, devices.
 *
 * The program checks data and return values; a test checks the times in the simulated GPU's log. Kernels are named
 * after their role. The script must have `long 1s`. Prints "ok" at the end; exits 1 at the first difference.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "cuda.h"

#define THREADS 8
#define LAUNCHES 200
#define CROWD 300 /* streams: more than the simulated driver's list of predecessors holds */

CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                             unsigned shared, CUstream stream, void **params, void **extra);

static CUmodule module;
static sem_t gate, second_gate;

static CUfunction kernel(const char *name)
{
    CUfunction f;
    CHECK(cuModuleGetFunction(&f, module, name));
    return f;
}
static void launch(const char *name, CUstream stream)
{
    CHECK(cuLaunchKernel(kernel(name), 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

static void CUDA_CB wait_for_gate(void *unused)
{
    (void)unused;
    sem_wait(&gate);
}

/* b continues while a's host function blocks. c waits for a's event, and its copy sees a's set. */
static void blocking(CUdeviceptr memory)
{
    CUstream a, b, c;
    CUevent event;
    unsigned char *pinned;
    CHECK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&c, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAllocHost((void **)&pinned, 4));
    pinned[0] = 1;
    CHECK(cuLaunchHostFunc(a, wait_for_gate, NULL));
    launch("after_gate", a);
    CHECK(cuMemsetD8Async(memory, 42, 4, a));
    CHECK(cuEventRecord(event, a));
    CHECK(cuStreamWaitEvent(c, event, 0));
    CHECK(cuMemcpyDtoHAsync(pinned, memory, 4, c));
    launch("beside", b);
    CHECK(cuStreamSynchronize(b));
    EXPECT(cuStreamQuery(a) == CUDA_ERROR_NOT_READY);
    EXPECT(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
    EXPECT(pinned[0] == 1);
    sem_post(&gate);
    CHECK(cuStreamSynchronize(c));
    EXPECT(pinned[0] == 42 && pinned[3] == 42);
    CHECK(cuEventQuery(event));
    CHECK(cuMemFreeHost(pinned));
}

static void CUDA_CB wait_for_second_gate(void *unused)
{
    (void)unused;
    sem_wait(&second_gate);
}

/* The legacy stream waits for each of many streams: for the last one that is held, and for the first one. */
static void crowd(CUdeviceptr memory)
{
    CUstream streams[CROWD];
    CUevent event;
    unsigned char *pinned;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAllocHost((void **)&pinned, 4));
    for (int i = 0; i < CROWD; i++) CHECK(cuStreamCreate(&streams[i], CU_STREAM_DEFAULT));
    for (int held = 0; held < CROWD; held += CROWD - 1) {
        CHECK(cuMemsetD8(memory, 1, 4));
        CHECK(cuLaunchHostFunc(streams[CROWD / 2], wait_for_gate, NULL));
        CHECK(cuEventRecord(event, streams[CROWD / 2]));
        CHECK(cuLaunchHostFunc(streams[held], wait_for_second_gate, NULL));
        for (int i = 0; i < CROWD; i++)
            if (i != held) CHECK(cuStreamWaitEvent(streams[i], event, 0));
        CHECK(cuMemsetD8Async(memory, 43, 4, streams[held]));
        CHECK(cuMemcpyDtoHAsync(pinned, memory, 4, CU_STREAM_LEGACY));
        sem_post(&gate);
        CHECK(cuStreamSynchronize(streams[CROWD / 2]));
        EXPECT(cuStreamQuery(CU_STREAM_LEGACY) == CUDA_ERROR_NOT_READY);
        sem_post(&second_gate);
        CHECK(cuStreamSynchronize(CU_STREAM_LEGACY));
        EXPECT(pinned[0] == 43);
    }
    for (int i = 0; i < CROWD; i++) CHECK(cuStreamDestroy(streams[i]));
    CHECK(cuEventDestroy(event));
    CHECK(cuMemFreeHost(pinned));
}

static CUresult in_host_function;
static void CUDA_CB call_cuda(void *unused)
{
    CUdeviceptr p;
    (void)unused;
    in_host_function = cuMemAlloc(&p, 4);
}

/* One stream waits for a value that another writes. Work of a stream that is destroyed meanwhile still runs. */
static void values(CUdeviceptr memory)
{
    CUstream a, b;
    unsigned char byte = 0;
    CHECK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemsetD8(memory, 0, 8));
    CHECK(cuStreamWaitValue32(a, memory, 5, CU_STREAM_WAIT_VALUE_EQ));
    CHECK(cuMemsetD8Async(memory + 4, 77, 4, a));
    CHECK(cuLaunchHostFunc(a, call_cuda, NULL));
    CHECK(cuStreamDestroy(a));
    CHECK(cuMemcpyDtoHAsync(&byte, memory + 4, 1, b));
    EXPECT(byte == 0);
    CHECK(cuStreamWriteValue32(b, memory, 5, 0));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(&byte, memory + 4, 1));
    EXPECT(byte == 77);
    EXPECT(in_host_function == CUDA_ERROR_NOT_PERMITTED);
}

static void barrier(void)
{
    CUstream a, b, free_one;
    CHECK(cuStreamCreate(&a, CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&b, CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
    launch("barrier_1", a);
    launch("barrier_2", NULL);
    launch("barrier_3", b);
    launch("barrier_free", free_one);
}

static void timing(CUstream stream)
{
    CUevent start, end;
    float ms;
    CHECK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    launch("long", stream);
    CHECK(cuEventRecord(start, stream));
    for (int i = 0; i < 3; i++) launch("timed", stream);
    CHECK(cuEventRecord(end, stream));
    EXPECT(cuEventQuery(end) == CUDA_ERROR_NOT_READY);
    CHECK(cuEventSynchronize(end));
    CHECK(cuEventQuery(end));
    CHECK(cuEventElapsedTime(&ms, start, end));
    printf("elapsed %.6f\n", ms);
}

static void devices(CUstream stream)
{
    CUcontext other, was;
    CUstream there;
    CUevent event;
    CUmodule module_there;
    CUfunction f;
    CHECK(cuCtxGetCurrent(&was));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    launch("here", stream);
    CHECK(cuEventRecord(event, stream));
    CHECK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK(cuCtxSetCurrent(other));
    CHECK(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
    CHECK(cuModuleLoadData(&module_there, "\x7f"
                                          "ELF    "));
    CHECK(cuModuleGetFunction(&f, module_there, "there"));
    CHECK(cuStreamWaitEvent(there, event, 0));
    CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, there, NULL, NULL));
    CHECK(cuCtxSetCurrent(was));
}

static void *launcher(void *ctx)
{
    CHECK(cuCtxSetCurrent(ctx));
    CUfunction f = kernel("threads");
    for (int i = 0; i < LAUNCHES; i++) CHECK(cuLaunchKernel_ptsz(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    return NULL;
}

int main(void)
{
    CUcontext ctx;
    CUstream stream;
    CUdeviceptr memory;
    pthread_t threads[THREADS];
    int status;
    sem_init(&gate, 0, 0);
    sem_init(&second_gate, 0, 0);
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&ctx, 0));
    CHECK(cuCtxSetCurrent(ctx));
    CHECK(cuModuleLoadData(&module, "\x7f"
                                    "ELF    "));
    CHECK(cuMemAlloc(&memory, 8));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    blocking(memory);
    values(memory);
    crowd(memory);
    barrier();
    timing(stream);
    devices(stream);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, launcher, ctx);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    CHECK(cuCtxSynchronize());
    if (fork() == 0) _exit(cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED ? 7 : 0);
    wait(&status);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    puts("ok");
    return 0;
}
