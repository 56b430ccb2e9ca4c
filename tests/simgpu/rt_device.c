/* rt_device.c - the simulated runtime's devices, look-ups, pools of devices, and switches. */
#include <stdio.h>

#include "rt.h"

RT_BARE(cudaDriverGetVersion, (int *version), (version))
{
    return (cudaError_t)DRV(cuDriverGetVersion)(version);
}
RT_BARE(cudaRuntimeGetVersion, (int *version), (version))
{
    NEED_VALUE(version);
    *version = CUDART_VERSION;
    return cudaSuccess;
}
RT_BARE(cudaGetDeviceCount, (int *count), (count))
{
    TRY(DRV(cuDeviceGetCount)(count));
    return *count ? cudaSuccess : cudaErrorNoDevice;
}
RT_BARE(cudaGetDevice, (int *device), (device))
{
    NEED_VALUE(device);
    *device = rt_self.device;
    return cudaSuccess;
}

static cudaError_t use(int device)
{
    int count = 0;
    TRY(DRV(cuDeviceGetCount)(&count));
    if (device < 0 || device >= count) return cudaErrorInvalidDevice;
    CUcontext ctx = rt_primary(device);
    if (!ctx) return cudaErrorInvalidDevice;
    rt_self.device = device;
    rt_self.bound = true;
    rt_self.generation--; /* makes rt_context() bind the device anew */
    return rt_context();
}
RT_BARE(cudaSetDevice, (int device), (device))
{
    return use(device);
}
RT_BARE(cudaInitDevice, (int device, unsigned flags, unsigned unused), (device, flags, unused))
{
    return rt_primary(device) ? cudaSuccess : cudaErrorInvalidDevice;
}
RT_BARE(cudaDeviceReset, (void), ())
{
    rt_reset();
    return cudaSuccess;
}
SAME(cudaDeviceSynchronize, (void), (), cuCtxSynchronize)
RT_BARE(cudaSetDeviceFlags, (unsigned flags), (flags))
{
    return (cudaError_t)DRV(cuDevicePrimaryCtxSetFlags)(rt_self.device, flags);
}
RT_BARE(cudaGetDeviceFlags, (unsigned *flags), (flags))
{
    int active;
    return (cudaError_t)DRV(cuDevicePrimaryCtxGetState)(rt_self.device, flags, &active);
}
/* Runtime and driver number the attributes alike. */
RT_BARE(cudaDeviceGetAttribute, (int *value, enum cudaDeviceAttr attr, int device), (value, attr, device))
{
    return (cudaError_t)DRV(cuDeviceGetAttribute)(value, (CUdevice_attribute)attr, device);
}

static int attribute(CUdevice_attribute what, int device)
{
    int value = 0;
    DRV(cuDeviceGetAttribute)(&value, what, device);
    return value;
}

static cudaError_t properties(struct cudaDeviceProp *p, int device)
{
    NEED_VALUE(p);
    memset(p, 0, sizeof *p);
    TRY(DRV(cuDeviceGetName)(p->name, sizeof p->name, device));
    TRY(DRV(cuDeviceTotalMem)(&p->totalGlobalMem, device));
    TRY(DRV(cuDeviceGetUuid)((CUuuid *)&p->uuid, device));
#define INT(field, what) p->field = attribute(CU_DEVICE_ATTRIBUTE_##what, device)
#define SIZE(field, what) p->field = (size_t)attribute(CU_DEVICE_ATTRIBUTE_##what, device)
    SIZE(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK);
    SIZE(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    SIZE(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    SIZE(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK);
    SIZE(totalConstMem, TOTAL_CONSTANT_MEMORY);
    SIZE(memPitch, MAX_PITCH);
    SIZE(textureAlignment, TEXTURE_ALIGNMENT);
    SIZE(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT);
    SIZE(surfaceAlignment, SURFACE_ALIGNMENT);
    INT(regsPerBlock, MAX_REGISTERS_PER_BLOCK);
    INT(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR);
    INT(warpSize, WARP_SIZE);
    INT(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK);
    INT(maxThreadsDim[0], MAX_BLOCK_DIM_X);
    INT(maxThreadsDim[1], MAX_BLOCK_DIM_Y);
    INT(maxThreadsDim[2], MAX_BLOCK_DIM_Z);
    INT(maxGridSize[0], MAX_GRID_DIM_X);
    INT(maxGridSize[1], MAX_GRID_DIM_Y);
    INT(maxGridSize[2], MAX_GRID_DIM_Z);
    INT(major, COMPUTE_CAPABILITY_MAJOR);
    INT(minor, COMPUTE_CAPABILITY_MINOR);
    INT(multiProcessorCount, MULTIPROCESSOR_COUNT);
    INT(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR);
    INT(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR);
    INT(canMapHostMemory, CAN_MAP_HOST_MEMORY);
    INT(concurrentKernels, CONCURRENT_KERNELS);
    INT(pciBusID, PCI_BUS_ID);
    INT(asyncEngineCount, ASYNC_ENGINE_COUNT);
    INT(unifiedAddressing, UNIFIED_ADDRESSING);
    INT(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH);
    INT(l2CacheSize, L2_CACHE_SIZE);
    INT(managedMemory, MANAGED_MEMORY);
    INT(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS);
    INT(cooperativeLaunch, COOPERATIVE_LAUNCH);
    INT(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED);
    INT(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED);
    INT(clusterLaunch, CLUSTER_LAUNCH);
    return cudaSuccess;
}
RT_BARE(cudaGetDeviceProperties, (struct cudaDeviceProp * p, int device), (p, device))
{
    return properties(p, device);
}
#if CUDART_VERSION < 13000 /* programs of 12 call it by the shorter name, which this header does not declare */
PUBLIC cudaError_t cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int device);
RT_BARE(cudaGetDeviceProperties_v2, (struct cudaDeviceProp * p, int device), (p, device))
{
    return properties(p, device);
}
#endif

RT_BARE(cudaDeviceGetPCIBusId, (char *id, int len, int device), (id, len, device))
{
    return (cudaError_t)DRV(cuDeviceGetPCIBusId)(id, len, device);
}
RT_BARE(cudaDeviceGetByPCIBusId, (int *device, const char *id), (device, id))
{
    return (cudaError_t)DRV(cuDeviceGetByPCIBusId)(device, id);
}
SAME(cudaDeviceGetLimit, (size_t * value, enum cudaLimit limit), (value, limit), cuCtxGetLimit, value, (CUlimit)limit)
SAME(cudaDeviceSetLimit, (enum cudaLimit limit, size_t value), (limit, value), cuCtxSetLimit, (CUlimit)limit, value)
SAME(cudaDeviceGetCacheConfig, (enum cudaFuncCache * config), (config), cuCtxGetCacheConfig, (CUfunc_cache *)config)
SAME(cudaDeviceSetCacheConfig, (enum cudaFuncCache config), (config), cuCtxSetCacheConfig, (CUfunc_cache)config)
SAME(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest), (least, greatest), cuCtxGetStreamPriorityRange,
     least, greatest)
SAME(cudaCtxResetPersistingL2Cache, (void), (), cuCtxResetPersistingL2Cache)

RT_BARE(cudaDeviceCanAccessPeer, (int *can, int device, int peer), (can, device, peer))
{
    return (cudaError_t)DRV(cuDeviceCanAccessPeer)(can, device, peer);
}
RT_BARE(cudaDeviceGetP2PAttribute, (int *value, enum cudaDeviceP2PAttr attr, int from, int to), (value, attr, from, to))
{
    return (cudaError_t)DRV(cuDeviceGetP2PAttribute)(value, (CUdevice_P2PAttribute)attr, from, to);
}
SAME(cudaDeviceEnablePeerAccess, (int peer, unsigned flags), (peer, flags), cuCtxEnablePeerAccess, rt_primary(peer),
     flags)
SAME(cudaDeviceDisablePeerAccess, (int peer), (peer), cuCtxDisablePeerAccess, rt_primary(peer))
RT_BARE(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * pool, int device), (pool, device))
{
    return (cudaError_t)DRV(cuDeviceGetDefaultMemPool)(pool, device);
}
RT_BARE(cudaDeviceGetMemPool, (cudaMemPool_t * pool, int device), (pool, device))
{
    return (cudaError_t)DRV(cuDeviceGetMemPool)(pool, device);
}
RT_BARE(cudaDeviceSetMemPool, (int device, cudaMemPool_t pool), (device, pool))
{
    return (cudaError_t)DRV(cuDeviceSetMemPool)(device, pool);
}

/* ---- look-ups in the driver, and functions without effect ---- */

static cudaError_t entry(const char *symbol, void **function, int version, unsigned long long flags,
                         enum cudaDriverEntryPointQueryResult *status)
{
    CUdriverProcAddressQueryResult result = CU_GET_PROC_ADDRESS_SUCCESS;
    NEED_VALUE(symbol && function);
    if (!flags)
        flags = rt_self.per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    CUresult error = DRV(cuGetProcAddress)(symbol, function, version, flags, &result);
    if (status) *status = (enum cudaDriverEntryPointQueryResult)result;
    return error == CUDA_ERROR_NOT_FOUND ? (status ? cudaSuccess : cudaErrorSymbolNotFound) : (cudaError_t)error;
}
cudaError_t cudaGetDriverEntryPoint(const char *, void **, unsigned long long, enum cudaDriverEntryPointQueryResult *);
cudaError_t cudaGetDriverEntryPoint_ptsz(const char *, void **, unsigned long long,
                                         enum cudaDriverEntryPointQueryResult *);
RT_PTSZ(cudaGetDriverEntryPoint,
        (const char *symbol, void **function, unsigned long long flags, enum cudaDriverEntryPointQueryResult *status),
        (symbol, function, flags, status))
{
    return entry(symbol, function, CUDART_VERSION, flags, status);
}
RT_PTSZ(cudaGetDriverEntryPointByVersion,
        (const char *symbol, void **function, unsigned version, unsigned long long flags,
         enum cudaDriverEntryPointQueryResult *status),
        (symbol, function, version, flags, status))
{
    return entry(symbol, function, (int)version, flags, status);
}
RT_BARE(cudaGetExportTable, (const void **table, const cudaUUID_t *id), (table, id))
{
    NEED_VALUE(table);
    *table = NULL;
    return cudaErrorSymbolNotFound;
}

cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);
SAME(cudaProfilerStart, (void), (), cuProfilerStart)
SAME(cudaProfilerStop, (void), (), cuProfilerStop)

RT(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void *p), (handle, p))
{
    return cudaErrorNotSupported;
}
RT(cudaIpcOpenMemHandle, (void **p, cudaIpcMemHandle_t handle, unsigned flags), (p, handle, flags))
{
    return cudaErrorNotSupported;
}
RT(cudaIpcGetEventHandle, (cudaIpcEventHandle_t * handle, cudaEvent_t event), (handle, event))
{
    return cudaErrorNotSupported;
}
