/* rt_base.c - the simulated runtime's way to the driver, each thread's context, and the last error. */
#include <dlfcn.h>
#include <pthread.h>

#include "rt.h"

struct rt_driver rt_driver[2];
int (*rt_begin_call)(struct simgpu_frame *, uint32_t, const char *);
int (*rt_end_call)(struct simgpu_frame *, int);
__thread struct rt_thread rt_self;

static cudaError_t loaded = cudaErrorInsufficientDriver;
static unsigned resets;
static CUcontext primaries[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define D(name, version) {#name, version, offsetof(struct rt_driver, name)},
static const struct {
    const char *name;
    int version;
    size_t at;
} functions[] = {
#include "rt_driver.def"
};
#undef D

/* A missing function becomes NULL, and load() then leaves the error "driver too old". */
static void fill(struct rt_driver *driver, PFN_cuGetProcAddress_v12000 get, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (get(functions[i].name, (void **)((char *)driver + functions[i].at), functions[i].version, flags, &status) !=
            CUDA_SUCCESS)
            *(void **)((char *)driver + functions[i].at) = NULL;
}

static void load(void)
{
    PFN_cuGetProcAddress_v12000 first, get;
    CUdriverProcAddressQueryResult status;
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    if (!handle || !(first = (PFN_cuGetProcAddress_v12000)dlsym(handle, "cuGetProcAddress_v2"))) return;
    rt_begin_call = (int (*)(struct simgpu_frame *, uint32_t, const char *))dlsym(handle, "simgpu_begin");
    rt_end_call = (int (*)(struct simgpu_frame *, int))dlsym(handle, "simgpu_end");
    if (!rt_begin_call || !rt_end_call) return; /* another driver: not for this runtime */
    if (first("cuGetProcAddress", (void **)&get, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status) != CUDA_SUCCESS) return;
    fill(&rt_driver[0], get, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    fill(&rt_driver[1], get, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!*(void **)((char *)&rt_driver[0] + functions[i].at)) return;
    loaded = (cudaError_t)rt_driver[0].cuInit(0);
}

CUcontext rt_primary(int device)
{
    CUcontext ctx = NULL;
    pthread_mutex_lock(&lock);
    if (device >= 0 && device < 64 && !primaries[device] &&
        DRV(cuDevicePrimaryCtxRetain)(&primaries[device], device) != CUDA_SUCCESS)
        primaries[device] = NULL;
    if (device >= 0 && device < 64) ctx = primaries[device];
    pthread_mutex_unlock(&lock);
    return ctx;
}

/* Binds the primary context of the device unless the program made a context current by the driver's functions. */
cudaError_t rt_context(void)
{
    CUcontext ctx = NULL;
    if (rt_self.bound && rt_self.generation == __atomic_load_n(&resets, __ATOMIC_ACQUIRE)) return cudaSuccess;
    TRY(DRV(cuCtxGetCurrent)(&ctx));
    if (!ctx || rt_self.bound) {
        ctx = rt_primary(rt_self.device);
        if (!ctx) return cudaErrorInvalidDevice;
        TRY(DRV(cuCtxSetCurrent)(ctx));
    } else {
        TRY(DRV(cuCtxGetDevice)(&rt_self.device));
    }
    rt_self.generation = __atomic_load_n(&resets, __ATOMIC_ACQUIRE);
    rt_self.bound = true;
    return cudaSuccess;
}

/* Destroys the contents of the current device's context; every thread binds itself anew. */
void rt_reset(void)
{
    pthread_mutex_lock(&lock);
    if (rt_self.device < 64 && primaries[rt_self.device]) {
        DRV(cuDevicePrimaryCtxReset)(rt_self.device);
        DRV(cuDevicePrimaryCtxRelease)(rt_self.device);
        primaries[rt_self.device] = NULL;
    }
    __atomic_add_fetch(&resets, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}

int rt_begin(struct simgpu_frame *frame, enum rt_need need, const char *symbol)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    frame->symbol = NULL;
    if (loaded != cudaSuccess && !rt_begin_call) return (int)loaded;
    int error = rt_begin_call(frame, SIMGPU_RUNTIME, symbol);
    if (error) return error;
    if (loaded != cudaSuccess) return (int)loaded;
    return need == RT_CONTEXT ? (int)rt_context() : 0;
}

cudaError_t rt_end(struct simgpu_frame *frame, int result)
{
    if (result) rt_self.error = (cudaError_t)result;
    return (cudaError_t)(frame->symbol ? rt_end_call(frame, result) : result);
}

/* ---- errors ---- */

static cudaError_t last(const char *symbol, bool clear)
{
    struct simgpu_frame frame;
    int injected = rt_begin(&frame, RT_DRIVER, symbol);
    cudaError_t error = rt_self.error;
    if (!error && !frame.symbol) error = (cudaError_t)injected;
    if (clear) rt_self.error = cudaSuccess;
    return frame.symbol ? (cudaError_t)rt_end_call(&frame, (int)error) : error;
}
PUBLIC cudaError_t cudaGetLastError(void)
{
    return last("cudaGetLastError", true);
}
PUBLIC cudaError_t cudaPeekAtLastError(void)
{
    return last("cudaPeekAtLastError", false);
}

PUBLIC const char *cudaGetErrorString(cudaError_t error)
{
    const char *text = NULL;
    if (error == cudaErrorInsufficientDriver) return "CUDA driver version is insufficient for CUDA runtime version";
    if (rt_driver[0].cuGetErrorString) rt_driver[0].cuGetErrorString((CUresult)error, &text);
    return text ? text : "unrecognized error code";
}
PUBLIC const char *cudaGetErrorName(cudaError_t error)
{
    static const struct {
        cudaError_t error;
        const char *name;
    } names[] = {{cudaSuccess, "cudaSuccess"},
                 {cudaErrorInvalidValue, "cudaErrorInvalidValue"},
                 {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation"},
                 {cudaErrorInitializationError, "cudaErrorInitializationError"},
                 {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration"},
                 {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver"},
                 {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction"},
                 {cudaErrorNoDevice, "cudaErrorNoDevice"},
                 {cudaErrorInvalidDevice, "cudaErrorInvalidDevice"},
                 {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle"},
                 {cudaErrorSymbolNotFound, "cudaErrorSymbolNotFound"},
                 {cudaErrorNotReady, "cudaErrorNotReady"},
                 {cudaErrorIllegalAddress, "cudaErrorIllegalAddress"},
                 {cudaErrorLaunchFailure, "cudaErrorLaunchFailure"},
                 {cudaErrorNotSupported, "cudaErrorNotSupported"},
                 {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported"},
                 {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated"},
                 {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit"},
                 {cudaErrorUnknown, "cudaErrorUnknown"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].error == error) return names[i].name;
    return "unrecognized error code";
}
