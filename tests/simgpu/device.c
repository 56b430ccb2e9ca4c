/* device.c - start-up, devices and their attributes, names of errors, the profiler's switch, unsupported functions. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

static __thread bool in_injection;

static bool ended;

static void end(void)
{
    ended = true;
}

PUBLIC int simgpu_ended(void)
{
    return ended;
}

/* Opens the library that CUDA_INJECTION64_PATH names and calls it, once in a process and before the initialisation, as
 * the driver does. If the library calls cuInit again, the vendor's driver may hang; this one ends the process. */
static void inject(void)
{
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *tool = path && *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*initialize)(void) = NULL;
    atexit(end);
    if (tool) *(void **)&initialize = dlsym(tool, "InitializeInjection");
    in_injection = true;
    if (initialize) initialize();
    in_injection = false;
}

API(cuInit, (unsigned flags), (flags))
{
    NEED_VALUE(flags == 0);
    NEED(!sim_forked, CUDA_ERROR_NOT_INITIALIZED);
    NEED(sim_nr_devices > 0, CUDA_ERROR_NO_DEVICE);
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (in_injection) {
        fputs("simgpu: cuInit inside InitializeInjection\n", stderr);
        abort();
    }
    pthread_once(&once, inject);
    sim_initialised = true;
    return CUDA_SUCCESS;
}

API(cuDriverGetVersion, (int *version), (version))
{
    NEED_VALUE(version);
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

API(cuDeviceGetCount, (int *count), (count))
{
    NEED_VALUE(count);
    *count = sim_nr_devices;
    return CUDA_SUCCESS;
}

API(cuDeviceGet, (CUdevice * device, int ordinal), (device, ordinal))
{
    NEED_VALUE(device);
    NEED(sim_device_ok(ordinal), CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return CUDA_SUCCESS;
}

API(cuDeviceGetName, (char *name, int len, CUdevice dev), (name, len, dev))
{
    NEED_VALUE(name && len > 0);
    NEED(sim_device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    snprintf(name, (size_t)len, "Simulated GPU %d", sim_physical[dev]);
    return CUDA_SUCCESS;
}

static CUresult uuid_of(CUuuid *uuid, CUdevice dev)
{
    NEED_VALUE(uuid);
    NEED(sim_device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    memcpy(uuid->bytes, "simulated-gpu-", 14);
    uuid->bytes[14] = 0;
    uuid->bytes[15] = (char)sim_physical[dev];
    return CUDA_SUCCESS;
}
API(cuDeviceGetUuid, (CUuuid * uuid, CUdevice dev), (uuid, dev))
{
    return uuid_of(uuid, dev);
}
API(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice dev), (uuid, dev))
{
    return uuid_of(uuid, dev);
}

API(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice dev), (bytes, dev))
{
    NEED_VALUE(bytes);
    NEED(sim_device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    *bytes = sim_devices[dev].total;
    return CUDA_SUCCESS;
}

API(cuDeviceGetPCIBusId, (char *id, int len, CUdevice dev), (id, len, dev))
{
    NEED_VALUE(id && len > 0);
    NEED(sim_device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    NEED_VALUE(snprintf(id, (size_t)len, "0000:%02X:00.0", 0xa0 + sim_physical[dev]) < len);
    return CUDA_SUCCESS;
}

API(cuDeviceGetByPCIBusId, (CUdevice * dev, const char *id), (dev, id))
{
    unsigned domain, bus;
    NEED_VALUE(dev && id);
    NEED_VALUE(sscanf(id, "%x:%x:", &domain, &bus) == 2);
    for (int i = 0; domain == 0 && i < sim_nr_devices; i++) {
        if ((int)bus != 0xa0 + sim_physical[i]) continue;
        *dev = i;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

/* An average device of compute capability 9.0. Attributes that are missing here are 0. */
static const struct {
    CUdevice_attribute attribute;
    int value;
} attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1500000},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1500000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 256},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4194304},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
};

API(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice dev), (value, attribute, dev))
{
    NEED_VALUE(value && attribute > 0 && attribute < CU_DEVICE_ATTRIBUTE_MAX);
    NEED(sim_device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    *value = attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? 0xa0 + sim_physical[dev] : 0;
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i].attribute == attribute) *value = attributes[i].value;
    return CUDA_SUCCESS;
}

/* ---- errors ---- */

#define ERRORS(X)                                                                                                      \
    X(CUDA_SUCCESS, "no error")                                                                                        \
    X(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                                                    \
    X(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                                                       \
    X(CUDA_ERROR_NOT_INITIALIZED, "initialization error")                                                              \
    X(CUDA_ERROR_DEINITIALIZED, "driver shutting down")                                                                \
    X(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")                                                      \
    X(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                                                             \
    X(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")                                                      \
    X(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                                                            \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device")                        \
    X(CUDA_ERROR_FILE_NOT_FOUND, "file not found")                                                                     \
    X(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                                                            \
    X(CUDA_ERROR_NOT_FOUND, "named symbol not found")                                                                  \
    X(CUDA_ERROR_NOT_READY, "device not ready")                                                                        \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                                          \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")                                   \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated")                                            \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled")                                        \
    X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled")                                          \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                                                         \
    X(CUDA_ERROR_ASSERT, "device-side assert triggered")                                                               \
    X(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                                                          \
    X(CUDA_ERROR_NOT_PERMITTED, "operation not permitted")                                                             \
    X(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                                                             \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing")                       \
    X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture")                \
    X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not initiated in this stream")                                 \
    X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work")                                        \
    X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream")                  \
    X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,                                                                              \
      "operation would make the legacy stream depend on a capturing blocking stream")                                  \
    X(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream")            \
    X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,                                                                          \
      "attempt to terminate a thread-local capture sequence from another thread")                                      \
    X(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,                                                                            \
      "the graph update was not performed because it included changes which violated constraints")                     \
    X(CUDA_ERROR_UNKNOWN, "unknown error")
#define ROW(name, text) {name, #name, text},
static const struct {
    int code;
    const char *name, *text;
} errors[] = {ERRORS(ROW)};

API(cuGetErrorName, (CUresult error, const char **name), (error, name))
{
    NEED_VALUE(name);
    *name = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == (int)error) *name = errors[i].name;
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuGetErrorString, (CUresult error, const char **text), (error, text))
{
    NEED_VALUE(text);
    *text = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == (int)error) *text = errors[i].text;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- the rest ---- */

PUBLIC CUresult cuProfilerStart(void);
PUBLIC CUresult cuProfilerStop(void);
API(cuProfilerStart, (void), ())
{
    struct CUctx_st *ctx;
    return sim_ctx(&ctx);
}
API(cuProfilerStop, (void), ())
{
    struct CUctx_st *ctx;
    return sim_ctx(&ctx);
}

/* No export tables exist here. */
API(cuGetExportTable, (const void **table, const CUuuid *id), (table, id))
{
    NEED_VALUE(table && id);
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

/* A descriptor that only kernels read, and these compute nothing. */
API(cuTensorMapEncodeTiled,
    (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *size,
     const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *element_strides,
     CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
     CUtensorMapFloatOOBfill fill),
    (map, type, rank, address, size, strides, box, element_strides, interleave, swizzle, promotion, fill))
{
    NEED_VALUE(map && rank > 0 && rank <= 5 && size && box && element_strides && (rank == 1 || strides));
    *map = (CUtensorMap){0};
    return CUDA_SUCCESS;
}
