/* cupti_mixed.c - many CUPTI sessions in one process, by clients of both interfaces and without any, in random order.
 *
 * usage: cupti_mixed SESSIONS SEED. Each session launches some kernels and must get exactly their records, all with
 * times. Prints JSON lines: the sessions that went wrong; for the second interface the kernels of each session, by
 * their number in order of launch; at the end the numbers of kernels and sessions.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cupti.h>

#include "../simgpu/cupti_v2.h"
#include "check.h"

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry alpha()\n{\n    ret;\n}\n";
static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_MEMCPY,
                                           CUPTI_ACTIVITY_KIND_MEMSET,
                                           CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                           CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
                                           CUPTI_ACTIVITY_KIND_RUNTIME,
                                           CUPTI_ACTIVITY_KIND_DRIVER,
                                           CUPTI_ACTIVITY_KIND_OVERHEAD,
                                           CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};
#define KINDS (sizeof kinds / sizeof *kinds)

static CUfunction kernel;
static unsigned launched, wrong;
static unsigned seen, timeless; /* kernels of the current session */
static uint32_t random_state;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 1664525 + 1013904223;
    return (random_state >> 8) % below;
}

static void request(uint8_t **buffer, size_t *size, size_t *max)
{
    *size = 4096u << draw(4);
    *max = 0;
    *buffer = aligned_alloc(8, *size);
}

static void read_records(uint8_t *buffer, size_t valid)
{
    CUpti_Activity *record = NULL;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        const CUpti_ActivityKernel9 *k = (const void *)record;
        if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
        __atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED);
        if (!k->start || k->end < k->start) __atomic_add_fetch(&timeless, 1, __ATOMIC_RELAXED);
    }
    free(buffer);
}

static void complete(CUcontext c, uint32_t id, uint8_t *buffer, size_t size, size_t valid)
{
    (void)c, (void)id, (void)size;
    read_records(buffer, valid);
}

static void request_v2(uint8_t **buffer, size_t *size, size_t *max, CUpti_BufferCallbackRequestInfo *info)
{
    (void)info;
    request(buffer, size, max);
}

static void complete_v2(uint8_t *buffer, size_t size, size_t valid, CUpti_BufferCallbackCompleteInfo *info)
{
    (void)size, (void)info;
    read_records(buffer, valid);
}

static uint64_t clock_of_client(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void launch(unsigned count)
{
    for (unsigned i = 0; i < count; i++) CHECK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    launched += count;
}

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        CUptiResult result_ = (call);                                                                                  \
        if (result_ != CUPTI_SUCCESS) printf("{\"failed\":\"%s\",\"result\":%d}\n", #call, (int)result_), wrong++;     \
    } while (0)

static void session_v1(unsigned count)
{
    MUST(cuptiActivityRegisterCallbacks(request, complete));
    MUST(cuptiActivityRegisterTimestampCallback(clock_of_client));
    for (size_t i = 0; i < KINDS; i++) MUST(cuptiActivityEnable(kinds[i]));
    launch(count);
    CHECK(cuCtxSynchronize());
    for (size_t i = 0; i < KINDS; i++) MUST(cuptiActivityDisable(kinds[i]));
    MUST(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
}

static void session_v2(unsigned count)
{
    CUpti_SubscriberHandle subscriber;
    CUpti_SubscriberParams params = {.structSize = sizeof params, .subscriberName = "mixed"};
    MUST(cuptiSubscribe_v2(&subscriber, NULL, NULL, &params));
    MUST(cuptiActivityRegisterCallbacks_v2(subscriber, request_v2, complete_v2));
    for (size_t i = 0; i < KINDS; i++) MUST(cuptiActivityEnable_v2(subscriber, kinds[i], NULL));
    printf("{\"from\":%u,\"to\":%u}\n", launched, launched + count);
    launch(count);
    CHECK(cuCtxSynchronize());
    for (size_t i = 0; i < KINDS; i++) MUST(cuptiActivityDisable_v2(subscriber, kinds[i], NULL));
    MUST(cuptiActivityFlushAll(0));
    MUST(cuptiUnsubscribe(subscriber));
}

int main(int argc, char **argv)
{
    unsigned sessions = argc > 1 ? (unsigned)atoi(argv[1]) : 10, of[3] = {0};
    CUcontext context;
    CUmodule module;
    random_state = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&kernel, module, "alpha"));
    for (unsigned i = 0; i < sessions; i++) {
        unsigned which = draw(3), count = 1 + draw(4);
        seen = timeless = 0;
        of[which]++;
        if (which == 0) launch(count), seen = count;
        if (which == 1) session_v1(count);
        if (which == 2) session_v2(count);
        if (seen != count || timeless) {
            printf("{\"session\":%u,\"kind\":%u,\"launched\":%u,\"seen\":%u,\"timeless\":%u}\n", i, which, count, seen,
                   timeless);
            wrong++;
        }
    }
    CHECK(cuCtxSynchronize());
    printf("{\"kernels\":%u,\"ours\":%u,\"v1\":%u,\"v2\":%u,\"wrong\":%u}\n", launched, of[0], of[1], of[2], wrong);
    return wrong != 0;
}
