/* cupti_client.c - a plain CUPTI client that runs its arguments as steps, in order, and prints results and records.
 *
 * Every line is a JSON object, written by one call: the result of a step that is a CUPTI call, a buffer that came back,
 * or a record in it. Steps are `word` or `word=value`; step_driver(), step_activity() and step_callback() list them.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cupti.h>

#include "../simgpu/cupti_v2.h"
#include "tfinject.h"

extern bool tfi_test_is_recording(void) __attribute__((weak));

/* Some packages of CUDA's headers lack the header of these. */
CUresult CUDAAPI cuProfilerStart(void);
CUresult CUDAAPI cuProfilerStop(void);

#ifndef CUDART
#define CUDART "libcudart.so.13"
#endif
#define MAX_KEPT 64
static size_t buffer_size = 65536, buffer_max;
static long refuse_from = -1, refuse_to = -1, nr_requests, nr_completed, nr_received;
static bool probing;
static const char *kept[MAX_KEPT];
static unsigned nr_kept;
static __thread bool in_call;
static pthread_t main_thread;

static CUdevice device;
static CUcontext context;
static CUstream stream;
static CUmodule module;
static CUdeviceptr memory;
static char host[1 << 20];
static CUgraphExec exec;

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry alpha()\n{\n    ret;\n}\n.visible .entry beta()\n{\n    ret;\n}\n";

/* Appends to this thread's line, and writes the line with one call once it is whole: CUPTI's threads and the main
 * thread print at the same time. */
__attribute__((format(printf, 1, 2))) static void print(const char *format, ...)
{
    static __thread char line[8192];
    static __thread size_t length;
    va_list values;
    va_start(values, format);
    int n = vsnprintf(line + length, sizeof line - length, format, values);
    va_end(values);
    if (n < 0 || (size_t)n >= sizeof line - length) abort();
    length += (size_t)n;
    if (line[length - 1] != '\n') return;
    if (write(1, line, length) != (ssize_t)length) abort();
    length = 0;
}

static void must(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS) return;
    print("{\"failed\":\"%s\",\"cuda\":%d}\n", what, (int)result);
    exit(3);
}
#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        in_call = true;                                                                                                \
        CUresult cuda_ = (call);                                                                                       \
        in_call = false;                                                                                               \
        must(cuda_, #call);                                                                                            \
    } while (0)

static void say(const char *step, CUptiResult result)
{
    const char *text = "?";
    cuptiGetResultString(result, &text);
    print("{\"step\":\"%s\",\"result\":\"%s\"}\n", step, text);
}

/* ---- buffers ---- */

static void *ask_driver(void *done)
{
    size_t size, total;
    cuCtxSetCurrent(context);
    cuMemGetInfo(&size, &total);
    __atomic_store_n((bool *)done, true, __ATOMIC_RELEASE);
    return NULL;
}

/* True if the driver is busy: another thread calls it and does not return within most of a second. */
static bool driver_is_locked(void)
{
    static bool answers[256];
    static unsigned n;
    bool *answer = &answers[n++ % 256];
    pthread_t thread;
    *answer = false;
    pthread_create(&thread, NULL, ask_driver, answer);
    pthread_detach(thread);
    for (int i = 0; i < 700 && !__atomic_load_n(answer, __ATOMIC_ACQUIRE); i++) usleep(1000);
    return !__atomic_load_n(answer, __ATOMIC_ACQUIRE);
}

static void request(uint8_t **buffer, size_t *size, size_t *max)
{
    long n = nr_requests++;
    bool locked = probing && driver_is_locked();
    print("{\"request\":%ld,\"main\":%d,\"in_call\":%d,\"locked\":%d}\n", n, pthread_equal(pthread_self(), main_thread),
          in_call, locked);
    *buffer = NULL;
    *size = 0;
    *max = buffer_max;
    if (n >= refuse_from && n <= refuse_to) return;
    *size = buffer_size;
    if (posix_memalign((void **)buffer, 8, buffer_size) != 0) *buffer = NULL;
}

static void print_times(uint64_t start, uint64_t end)
{
    print("\"start\":%llu,\"end\":%llu}\n", (unsigned long long)start, (unsigned long long)end);
}

static void print_kernel(const CUpti_ActivityKernel9 *k)
{
    if (nr_kept < MAX_KEPT) kept[nr_kept++] = k->name;
    print("\"name\":\"%s\",\"device\":%u,\"context\":%u,\"stream\":%u,\"correlation\":%u,\"grid\":[%d,%d,%d],"
          "\"block\":[%d,%d,%d],\"shared\":[%d,%d],\"registers\":%u,\"graph\":%u,\"node\":%llu,\"queued\":%llu,",
          k->name, k->deviceId, k->contextId, k->streamId, k->correlationId, k->gridX, k->gridY, k->gridZ, k->blockX,
          k->blockY, k->blockZ, k->staticSharedMemory, k->dynamicSharedMemory, k->registersPerThread, k->graphId,
          (unsigned long long)k->graphNodeId, (unsigned long long)k->queued);
    print_times(k->start, k->end);
}

static void print_memcpy(const CUpti_ActivityMemcpy5 *m)
{
    print("\"copy\":%u,\"from\":%u,\"to\":%u,\"flags\":%u,\"bytes\":%llu,\"device\":%u,\"context\":%u,\"stream\":%u,"
          "\"correlation\":%u,\"graph\":%u,\"node\":%llu,",
          m->copyKind, m->srcKind, m->dstKind, m->flags, (unsigned long long)m->bytes, m->deviceId, m->contextId,
          m->streamId, m->correlationId, m->graphId, (unsigned long long)m->graphNodeId);
    print_times(m->start, m->end);
}

static void print_peer(const CUpti_ActivityMemcpyPtoP4 *m)
{
    print(
        "\"copy\":%u,\"bytes\":%llu,\"device\":%u,\"context\":%u,\"stream\":%u,\"correlation\":%u,\"devices\":[%u,%u],",
        m->copyKind, (unsigned long long)m->bytes, m->deviceId, m->contextId, m->streamId, m->correlationId,
        m->srcDeviceId, m->dstDeviceId);
    print_times(m->start, m->end);
}

static void print_memset(const CUpti_ActivityMemset4 *m)
{
    print("\"value\":%u,\"bytes\":%llu,\"device\":%u,\"context\":%u,\"stream\":%u,\"correlation\":%u,\"memory\":%u,"
          "\"graph\":%u,\"node\":%llu,",
          m->value, (unsigned long long)m->bytes, m->deviceId, m->contextId, m->streamId, m->correlationId,
          m->memoryKind, m->graphId, (unsigned long long)m->graphNodeId);
    print_times(m->start, m->end);
}

static void print_api(const CUpti_ActivityAPI *a)
{
    const char *name = "?";
    cuptiGetCallbackName(a->kind == CUPTI_ACTIVITY_KIND_DRIVER ? CUPTI_CB_DOMAIN_DRIVER_API
                                                               : CUPTI_CB_DOMAIN_RUNTIME_API,
                         a->cbid, &name);
    print("\"name\":\"%s\",\"process\":%u,\"thread\":%u,\"correlation\":%u,\"value\":%u,", name, a->processId,
          a->threadId, a->correlationId, a->returnValue);
    print_times(a->start, a->end);
}

static void print_record(const CUpti_Activity *record, size_t size)
{
    const void *r = record;
    print("{\"kind\":%d,\"size\":%zu,", (int)record->kind, size);
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: print_kernel(r); break;
    case CUPTI_ACTIVITY_KIND_MEMCPY: print_memcpy(r); break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2: print_peer(r); break;
    case CUPTI_ACTIVITY_KIND_MEMSET: print_memset(r); break;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: print_api(r); break;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
        const CUpti_ActivitySynchronization *s = r;
        print("\"type\":%d,\"context\":%u,\"stream\":%u,\"correlation\":%u,", (int)s->type, s->contextId, s->streamId,
              s->correlationId);
        print_times(s->start, s->end);
        break;
    }
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: {
        const CUpti_ActivityGraphTrace *g = r;
        print("\"graph\":%u,\"device\":%u,\"context\":%u,\"stream\":%u,\"correlation\":%u,", g->graphId, g->deviceId,
              g->contextId, g->streamId, g->correlationId);
        print_times(g->start, g->end);
        break;
    }
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const CUpti_ActivityExternalCorrelation *e = r;
        print("\"external\":%d,\"id\":%llu,\"correlation\":%u}\n", (int)e->externalKind,
              (unsigned long long)e->externalId, e->correlationId);
        break;
    }
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
        print_times(((const CUpti_ActivityOverhead *)r)->start, ((const CUpti_ActivityOverhead *)r)->end);
        break;
    case CUPTI_ACTIVITY_KIND_CONTEXT: {
        const CUpti_ActivityContext *c = r;
        print("\"context\":%u,\"device\":%u}\n", c->contextId, c->deviceId);
        break;
    }
    case CUPTI_ACTIVITY_KIND_DEVICE: print("\"id\":%u}\n", ((const CUpti_ActivityDevice4 *)r)->id); break;
    default: print("\"unknown\":1}\n");
    }
}

static bool leaving;
static void note_exit(void)
{
    leaving = true;
}

static void completed(int who, uint8_t *buffer, size_t size, size_t valid)
{
    static unsigned serial;
    __atomic_fetch_add(&nr_completed, 1, __ATOMIC_RELAXED);
    CUpti_Activity *record = NULL, *next = NULL;
    size_t n = 0;
    CUptiResult result;
    print("{\"buffer\":%u,\"who\":%d,\"valid\":%zu,\"of\":%zu,\"main\":%d,\"exiting\":%d,\"requests\":%ld}\n",
          __atomic_fetch_add(&serial, 1, __ATOMIC_RELAXED), who, valid, size,
          pthread_equal(pthread_self(), main_thread), leaving, nr_requests);
    while ((result = cuptiActivityGetNextRecord(buffer, valid, &next)) == CUPTI_SUCCESS) {
        if (record) print_record(record, (size_t)((uint8_t *)next - (uint8_t *)record));
        record = next;
        n++;
    }
    if (record) print_record(record, (size_t)(buffer + valid - (uint8_t *)record));
    if (result != CUPTI_ERROR_MAX_LIMIT_REACHED) say("next", result);
    print("{\"records\":%zu}\n", n);
    free(buffer);
    __atomic_fetch_add(&nr_received, (long)n, __ATOMIC_RELEASE);
}

static void complete(CUcontext c, uint32_t id, uint8_t *buffer, size_t size, size_t valid)
{
    (void)c, (void)id;
    completed(1, buffer, size, valid);
}

static void complete2(CUcontext c, uint32_t id, uint8_t *buffer, size_t size, size_t valid)
{
    (void)c, (void)id;
    completed(2, buffer, size, valid);
}

static CUpti_SubscriberHandle subscriber;

static void request_v2(uint8_t **buffer, size_t *size, size_t *max, CUpti_BufferCallbackRequestInfo *info)
{
    (void)info;
    request(buffer, size, max);
}

static void complete_v2(uint8_t *buffer, size_t size, size_t valid, CUpti_BufferCallbackCompleteInfo *info)
{
    (void)info;
    completed(3, buffer, size, valid);
}

/* ---- the callback API, and the clock ---- */

static void callback(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void *data)
{
    if (domain == CUPTI_CB_DOMAIN_STATE) {
        print("{\"state\":%u,\"message\":\"%s\"}\n", cbid, ((const CUpti_StateData *)data)->notification.message);
        return;
    }
    const CUpti_CallbackData *d = data;
    *d->correlationData += (uint64_t)(uintptr_t)user;
    print("{\"callback\":\"%s\",\"domain\":%d,\"cbid\":%u,\"exit\":%d,\"correlation\":%u,\"data\":%llu}\n",
          d->functionName, (int)domain, cbid, d->callbackSite == CUPTI_API_EXIT, d->correlationId,
          (unsigned long long)*d->correlationData);
}

static uint64_t halves(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return ((uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec) * 2;
}

/* ---- CUDA ---- */

static void start_cuda(const char *value)
{
    CUfunction unused;
    CUDA(cuInit(0));
    CUDA(cuDeviceGet(&device, value ? atoi(value) : 0));
    CUDA(cuDevicePrimaryCtxRetain(&context, device));
    CUDA(cuCtxSetCurrent(context));
    CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUDA(cuModuleLoadData(&module, ptx));
    CUDA(cuModuleGetFunction(&unused, module, "alpha"));
    CUDA(cuMemAlloc(&memory, sizeof host));
}

static void launch(const char *name, unsigned blocks)
{
    CUfunction f;
    in_call = true;
    must(cuModuleGetFunction(&f, module, name), "cuModuleGetFunction");
    in_call = false;
    CUDA(cuLaunchKernel(f, blocks, 2, 1, 32, 1, 1, 128, stream, NULL, NULL));
}

static void kernels(const char *value)
{
    for (int i = 0, n = value ? atoi(value) : 1; i < n; i++) launch(i & 1 ? "beta" : "alpha", (unsigned)i + 1);
}

static void copies(const char *value)
{
    for (int i = 0, n = value ? atoi(value) : 1; i < n; i++) {
        CUDA(cuMemcpyHtoDAsync(memory, host, 1000 + (size_t)i, stream));
        CUDA(cuMemcpyDtoHAsync(host, memory, 2000 + (size_t)i, stream));
        CUDA(cuMemcpyDtoD(memory, memory + 65536, 3000 + (size_t)i));
        CUDA(cuMemsetD8Async(memory, 7, 4000 + (size_t)i, stream));
    }
}

static void peer(const char *value)
{
    CUcontext other;
    CUdeviceptr there;
    CUDA(cuDevicePrimaryCtxRetain(&other, 1));
    CUDA(cuCtxSetCurrent(other));
    CUDA(cuMemAlloc(&there, sizeof host));
    CUDA(cuCtxSetCurrent(context));
    CUDA(cuMemcpyPeerAsync(there, other, memory, context, strtoul(value, NULL, 0), stream));
}

static void graph(const char *value)
{
    CUgraph g;
    if (!exec) {
        CUDA(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        kernels("3");
        CUDA(cuMemsetD8Async(memory, 9, 512, stream));
        CUDA(cuStreamEndCapture(stream, &g));
        CUDA(cuGraphInstantiate(&exec, g, 0));
    }
    for (int i = 0, n = value ? atoi(value) : 1; i < n; i++) CUDA(cuGraphLaunch(exec, stream));
}

static void *thread_main(void *count)
{
    CUDA(cuCtxSetCurrent(context));
    kernels(count);
    return NULL;
}

static void threads(const char *value)
{
    pthread_t all[16];
    int n = atoi(value), i;
    const char *count = strchr(value, ':');
    for (i = 0; i < n && i < 16; i++) pthread_create(&all[i], NULL, thread_main, (void *)(count ? count + 1 : "1"));
    while (i--) pthread_join(all[i], NULL);
}

/* Uses the runtime, which has a context of its own. Looks it up as a program does that is not linked to it. */
static void runtime(const char *value)
{
    void *library = dlopen(CUDART, RTLD_NOW), *block = NULL;
    int (*allocate)(void **, size_t) = NULL, (*set)(void *, int, size_t) = NULL, (*synchronize)(void) = NULL;
    *(void **)&allocate = dlsym(library, "cudaMalloc");
    *(void **)&set = dlsym(library, "cudaMemset");
    *(void **)&synchronize = dlsym(library, "cudaDeviceSynchronize");
    must((CUresult)allocate(&block, 4096), "cudaMalloc");
    for (int i = 0, n = atoi(value); i < n; i++) must((CUresult)set(block, i, 100 + (size_t)i), "cudaMemset");
    must((CUresult)synchronize(), "cudaDeviceSynchronize");
}

/* In the child CUDA and CUPTI stop working, and print nothing. */
static void fork_here(void)
{
    pid_t child = fork();
    if (child == 0) {
        in_call = true;
        print("{\"child\":%d}\n", cuCtxSynchronize() != CUDA_SUCCESS);
        say("child", cuptiActivityFlushAll(1));
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void ids(const char *value)
{
    uint32_t c = 0, s = 0, d = 0;
    (void)value;
    cuptiGetContextId(context, &c);
    cuptiGetStreamIdEx(context, stream, 0, &s);
    cuptiGetDeviceId(context, &d);
    print("{\"context\":%u,\"stream\":%u,\"device\":%u}\n", c, s, d);
}

/* ---- steps ---- */

static CUpti_ActivityKind kind_of(const char *name)
{
    static const char *const names[] = {"INVALID",
                                        "MEMCPY",
                                        "MEMSET",
                                        "KERNEL",
                                        "DRIVER",
                                        "RUNTIME",
                                        [8] = "DEVICE",
                                        [9] = "CONTEXT",
                                        [10] = "CONCURRENT_KERNEL",
                                        [17] = "OVERHEAD",
                                        [22] = "MEMCPY2",
                                        [38] = "SYNCHRONIZATION",
                                        [39] = "EXTERNAL_CORRELATION",
                                        [51] = "GRAPH_TRACE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i] && strcmp(names[i], name) == 0) return (CUpti_ActivityKind)i;
    return (CUpti_ActivityKind)atoi(name);
}

static void kinds(const char *value, CUptiResult (*function)(CUpti_ActivityKind), const char *step)
{
    char *copy = strdup(value), *next;
    for (char *k = strtok_r(copy, ",", &next); k; k = strtok_r(NULL, ",", &next)) {
        CUptiResult result = function(kind_of(k));
        if (result != CUPTI_SUCCESS || !strchr(value, ',')) say(step, result);
    }
    free(copy);
}

static CUptiResult enable_in_context(CUpti_ActivityKind kind)
{
    return cuptiActivityEnableContext(context, kind);
}

static CUptiResult disable_in_context(CUpti_ActivityKind kind)
{
    return cuptiActivityDisableContext(context, kind);
}

static CUptiResult enable_v2(CUpti_ActivityKind kind)
{
    return cuptiActivityEnable_v2(subscriber, kind, NULL);
}

static CUptiResult disable_v2(CUpti_ActivityKind kind)
{
    return cuptiActivityDisable_v2(subscriber, kind, NULL);
}

/* Calls CUPTI in the order of torch's cuspy: attributes, callbacks, kinds; at the end kinds, a flush, the
 * subscription. */
static void step_v2(const char *step, const char *value)
{
    CUpti_SubscriberParams params = {.structSize = sizeof params, .subscriberName = value};
    uint64_t now = 0;
    uint8_t one = 1;
    size_t size = sizeof one;
    if (strcmp(step, "v2") == 0) {
        say(step, cuptiSubscribe_v2(&subscriber, callback, NULL, &params));
        cuptiActivitySetAttribute_v2(subscriber, (CUpti_ActivityAttribute)11, &size, &one);
        cuptiActivityRegisterCallbacks_v2(subscriber, request_v2, complete_v2);
    }
    if (strcmp(step, "onlyv2") == 0) say(step, cuptiSubscribe_v2(&subscriber, callback, NULL, NULL));
    if (strcmp(step, "enable2") == 0) kinds(value, enable_v2, step);
    if (strcmp(step, "disable2") == 0) kinds(value, disable_v2, step);
    if (strcmp(step, "timestamp2") == 0) say(step, cuptiGetTimestamp_v2(subscriber, &now));
}

static void step_driver(const char *step, const char *value)
{
    if (strcmp(step, "init") == 0) start_cuda(value);
    if (strcmp(step, "kernel") == 0) kernels(value);
    if (strcmp(step, "copy") == 0) copies(value);
    if (strcmp(step, "graph") == 0) graph(value);
    if (strcmp(step, "peer") == 0) peer(value);
    if (strcmp(step, "threads") == 0) threads(value);
    if (strcmp(step, "sync") == 0) CUDA(cuCtxSynchronize());
    if (strcmp(step, "streamsync") == 0) CUDA(cuStreamSynchronize(stream));
    if (strcmp(step, "sleep") == 0) usleep((useconds_t)atoi(value) * 1000);
    while (strcmp(step, "received") == 0 && __atomic_load_n(&nr_received, __ATOMIC_ACQUIRE) < atol(value)) usleep(1000);
    while (strcmp(step, "unrecorded") == 0 && tfi_test_is_recording && tfi_test_is_recording()) usleep(1000);
    while (strcmp(step, "file") == 0 && access(value, F_OK) != 0) usleep(1000);
    if (strcmp(step, "ids") == 0) ids(value);
    if (strcmp(step, "runtime") == 0) runtime(value);
    if (strcmp(step, "fork") == 0) fork_here();
    if (strcmp(step, "stage") == 0) tfi_range_push(value);
    if (strcmp(step, "endstage") == 0) tfi_range_pop();
    if (strcmp(step, "profile") == 0) CUDA(strcmp(value, "start") == 0 ? cuProfilerStart() : cuProfilerStop());
    if (strcmp(step, "buffers") == 0) {
        const char *max = strchr(value, ':');
        buffer_size = strtoul(value, NULL, 0);
        buffer_max = max ? strtoul(max + 1, NULL, 0) : 0;
    }
    if (strcmp(step, "refuse") == 0) sscanf(value, "%ld:%ld", &refuse_from, &refuse_to);
    if (strcmp(step, "probe") == 0) probing = true;
    if (strcmp(step, "names") == 0)
        for (unsigned i = 0; i < nr_kept; i++) print("{\"kept\":\"%s\"}\n", kept[i]);
    if (strcmp(step, "has") == 0) print("{\"has\":\"%s\",\"found\":%d}\n", value, dlsym(RTLD_DEFAULT, value) != NULL);
}

static void step_activity(const char *step, const char *value)
{
    uint32_t version = 0, cbid = value ? (uint32_t)atoi(value) : 0;
    uint64_t id = value ? strtoull(value, NULL, 0) : 0, now = 0;
    size_t dropped = 0;
    if (strcmp(step, "version") == 0) {
        say(step, cuptiGetVersion(&version));
        print("{\"version\":%u}\n", version);
    }
    if (strcmp(step, "register") == 0) say(step, cuptiActivityRegisterCallbacks(request, complete));
    if (strcmp(step, "register2") == 0) say(step, cuptiActivityRegisterCallbacks(request, complete2));
    if (strcmp(step, "enable") == 0) kinds(value, cuptiActivityEnable, step);
    if (strcmp(step, "disable") == 0) kinds(value, cuptiActivityDisable, step);
    if (strcmp(step, "dump") == 0) kinds(value, cuptiActivityEnableAndDump, step);
    if (strcmp(step, "incontext") == 0) kinds(value, enable_in_context, step);
    if (strcmp(step, "outcontext") == 0) kinds(value, disable_in_context, step);
    if (strcmp(step, "driverapi") == 0) say(step, cuptiActivityEnableDriverApi(cbid, 1));
    if (strcmp(step, "nodriverapi") == 0) say(step, cuptiActivityEnableDriverApi(cbid, 0));
    if (strcmp(step, "hwtrace") == 0) say(step, cuptiActivityEnableHWTrace(1));
    if (strcmp(step, "latency") == 0) say(step, cuptiActivityEnableLatencyTimestamps(1));
    if (strcmp(step, "systemtid") == 0) say(step, cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM));
    if (strcmp(step, "flush") == 0) say(step, cuptiActivityFlushAll(0));
    if (strcmp(step, "force") == 0) say(step, cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    if (strcmp(step, "stop") == 0 && nr_requests > nr_completed) /* like kineto: only while CUPTI has its buffers */
        say(step, cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    if (strcmp(step, "period") == 0) say(step, cuptiActivityFlushPeriod(cbid));
    if (strcmp(step, "push") == 0)
        say(step, cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, id));
    if (strcmp(step, "pop") == 0) {
        say(step, cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &id));
        print("{\"popped\":%llu}\n", (unsigned long long)id);
    }
    if (strcmp(step, "dropped") == 0) {
        say(step, cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped));
        print("{\"dropped\":%zu}\n", dropped);
    }
    if (strcmp(step, "clock") == 0) say(step, cuptiActivityRegisterTimestampCallback(halves));
    if (strcmp(step, "timestamp") == 0) {
        say(step, cuptiGetTimestamp(&now));
        print("{\"timestamp\":%llu}\n", (unsigned long long)now);
    }
    if (strcmp(step, "finalize") == 0) say(step, cuptiFinalize());
}

static void step_callback(const char *step, const char *value)
{
    CUpti_SubscriberHandle other;
    uint32_t number = value ? (uint32_t)atoi(value) : 0;
    if (strcmp(step, "subscribe") == 0) say(step, cuptiSubscribe(&subscriber, callback, (void *)(uintptr_t)5));
    if (strcmp(step, "subscribe2") == 0) say(step, cuptiSubscribe(&other, callback, NULL));
    if (strcmp(step, "unsubscribe") == 0) say(step, cuptiUnsubscribe(subscriber));
    if (strcmp(step, "domain") == 0) say(step, cuptiEnableDomain(1, subscriber, (CUpti_CallbackDomain)number));
    if (strcmp(step, "nodomain") == 0) say(step, cuptiEnableDomain(0, subscriber, (CUpti_CallbackDomain)number));
    if (strcmp(step, "drivercallback") == 0)
        say(step, cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, number));
}

int main(int argc, char **argv)
{
    main_thread = pthread_self();
    atexit(note_exit);
    for (int i = 1; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (value) *value++ = 0;
        step_driver(argv[i], value);
        step_activity(argv[i], value);
        step_callback(argv[i], value);
        step_v2(argv[i], value);
    }
    return 0;
}
