/* stage_edges.c - launches right before and after the edges of stages: its own, another thread's, one another ends.
 *
 * Two threads take turns without a wait in between. The main one opens and closes stages. The helper opens none, so its
 * launches belong to the main one's stages. The program prints the number of kernels launched in each stage and the
 * stages inside it.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"
#include "tfinject.h"

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        CUresult e_ = (call);                                                                                          \
        if (e_ != CUDA_SUCCESS) printf("%d: %s: %d\n", __LINE__, #call, (int)e_), exit(1);                             \
    } while (0)

enum { ROUNDS = 300 };

static const char ptx[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 out) { ret; }\n";

static CUcontext context;
static CUfunction kernel;
static unsigned turn; /* odd: the helper's turn */
static uint64_t range_of_main;

static void launch(void)
{
    CUdeviceptr out = 0;
    void *params[] = {&out};
    CHECK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
}

static void wait_for(unsigned value)
{
    for (unsigned i = 0; __atomic_load_n(&turn, __ATOMIC_ACQUIRE) != value; i++)
        if (i % 1000 == 999) sched_yield();
}

/* Lets the helper launch once, between two moments of the main thread. */
static void helped(void)
{
    unsigned mine = __atomic_load_n(&turn, __ATOMIC_RELAXED);
    __atomic_store_n(&turn, mine + 1, __ATOMIC_RELEASE);
    wait_for(mine + 2);
}

static void *helper(void *data)
{
    (void)data;
    CHECK(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < 5 * ROUNDS; i++) {
        wait_for(2 * i + 1);
        if (i % 5 == 3) tfi_range_end(range_of_main);
        launch();
        __atomic_store_n(&turn, 2 * i + 2, __ATOMIC_RELEASE);
    }
    tfi_range_push("its own");
    launch();
    tfi_range_pop();
    return NULL;
}

static void one_round(void)
{
    launch(); /* in no stage */
    tfi_range_push("outer");
    helped();
    launch();
    tfi_range_push("inner");
    launch();
    helped();
    tfi_range_pop();
    launch();
    helped();
    range_of_main = tfi_range_start("started");
    launch();
    helped(); /* the helper ends the stage before it launches */
    launch();
    tfi_range_pop();
    helped(); /* in no stage */
}

int main(void)
{
    CUdevice device;
    CUmodule module;
    pthread_t thread;
    tfi_range_push("before");
    tfi_range_push("all");
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&kernel, module, "k"));
    launch();
    tfi_range_pop();
    tfi_range_pop();
    pthread_create(&thread, NULL, helper, NULL);
    for (unsigned i = 0; i < ROUNDS; i++) one_round();
    pthread_join(thread, NULL);
    CHECK(cuCtxSynchronize());
    printf("{\"before\": 1, \"all\": 1, \"outer\": %d, \"inner\": %d, \"started\": %d, \"its own\": 1}\n", 9 * ROUNDS,
           2 * ROUNDS, ROUNDS);
    return 0;
}
