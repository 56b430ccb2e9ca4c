/* rt_launch.c - the simulated runtime's registration of nvcc's code, launches, and queries about kernels.
 *
 * A fat binary becomes a library of the driver at its first use. The registration provides the names.
 */
#include <pthread.h>
#include <stdlib.h>

#include "fatbinary_section.h"
#include "rt.h"

struct binary {
    const void *image;
    CUlibrary library;
};
struct entry {
    struct entry *next;
    const void *host;
    struct binary *binary;
    const char *name;
    CUkernel kernel;
    bool variable;
    size_t size;
    CUdeviceptr address;
    void **managed; /* the pointer through which the program reads the address */
};
static struct entry *table[4096];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct entry **slot(const void *host)
{
    return &table[((uintptr_t)host >> 3) % (sizeof table / sizeof *table)];
}
static struct entry *find(const void *host, bool variable)
{
    for (struct entry *e = *slot(host); e; e = e->next)
        if (e->host == host && e->variable == variable) return e;
    /* A program refers to a managed variable by the address that it got for it. */
    for (size_t i = 0; variable && i < sizeof table / sizeof *table; i++)
        for (struct entry *e = table[i]; e; e = e->next)
            if (e->managed && e->address && (const void *)e->address == host) return e;
    return NULL;
}
static struct entry *add(void **handle, const void *host, const char *name, bool variable, size_t size)
{
    struct entry *e = calloc(1, sizeof *e);
    *e = (struct entry){
        .host = host, .binary = (struct binary *)handle, .name = name, .variable = variable, .size = size};
    pthread_mutex_lock(&lock);
    e->next = *slot(host);
    *slot(host) = e;
    pthread_mutex_unlock(&lock);
    return e;
}

/* Needs the lock. */
static cudaError_t load(struct binary *b)
{
    if (b->library) return cudaSuccess;
    return (cudaError_t)DRV(cuLibraryLoadData)(&b->library, b->image, NULL, NULL, 0, NULL, NULL, 0);
}

CUkernel rt_kernel(const void *host)
{
    CUkernel kernel = NULL;
    pthread_mutex_lock(&lock);
    struct entry *e = find(host, false);
    if (e && !e->kernel && load(e->binary) == cudaSuccess &&
        DRV(cuLibraryGetKernel)(&e->kernel, e->binary->library, e->name) != CUDA_SUCCESS)
        e->kernel = NULL;
    if (e) kernel = e->kernel;
    pthread_mutex_unlock(&lock);
    return kernel;
}

/* The driver does not know the size of a binary's variable, but the registration does. */
static cudaError_t place(struct entry *e)
{
    size_t size;
    if (e->address) return cudaSuccess;
    if (e->managed) return (cudaError_t)DRV(cuMemAllocManaged)(&e->address, e->size, CU_MEM_ATTACH_GLOBAL);
    TRY(load(e->binary));
    TRY(DRV(cuLibraryGetGlobal)(&e->address, &size, e->binary->library, e->name));
    return size >= e->size ? cudaSuccess : (cudaError_t)DRV(cuMemAlloc)(&e->address, e->size);
}
cudaError_t rt_variable(const void *host, CUdeviceptr *address, size_t *size)
{
    cudaError_t result = cudaErrorInvalidSymbol;
    pthread_mutex_lock(&lock);
    struct entry *e = find(host, true);
    if (e) result = place(e);
    if (e && !result) {
        *address = e->address;
        *size = e->size;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- calls of nvcc's code before and after main; the log leaves them out ---- */

PUBLIC void **__cudaRegisterFatBinary(void *wrapper);
PUBLIC void __cudaRegisterFatBinaryEnd(void **handle);
PUBLIC void __cudaUnregisterFatBinary(void **handle);
PUBLIC void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit,
                                   uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp);
PUBLIC void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t size,
                              int constant, int global);
PUBLIC void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int ext, size_t size,
                                     int constant, int global);
PUBLIC char __cudaInitModule(void **handle);
PUBLIC unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream);
PUBLIC cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);

void **__cudaRegisterFatBinary(void *wrapper)
{
    struct binary *b = calloc(1, sizeof *b);
    b->image = ((__fatBinC_Wrapper_t *)wrapper)->data;
    return (void **)b;
}
void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, uint3 *tid,
                            uint3 *bid, dim3 *block, dim3 *grid, int *warp)
{
    add(handle, host, name, false, 0);
}
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t size, int constant,
                       int global)
{
    add(handle, host, name, true, size);
}
void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int ext, size_t size,
                              int constant, int global)
{
    add(handle, host, name, true, size)->managed = host;
}
/* Managed variables must exist before the host first reads them. */
char __cudaInitModule(void **handle)
{
    struct simgpu_frame frame;
    int result = rt_begin(&frame, RT_CONTEXT, "__cudaInitModule");
    for (size_t i = 0; !result && i < sizeof table / sizeof *table; i++)
        for (struct entry *e = table[i]; e; e = e->next) {
            if (e->binary != (struct binary *)handle || !e->managed || place(e) != cudaSuccess) continue;
            *e->managed = (void *)e->address;
        }
    rt_end(&frame, result);
    return result == 0;
}

/* ---- launches ---- */

struct configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};
#define MAX_NESTED 16
static __thread struct configuration configurations[MAX_NESTED];
static __thread unsigned nested;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream)
{
    if (nested == MAX_NESTED) return 1;
    configurations[nested++] = (struct configuration){grid, block, shared, stream};
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    if (!nested) return cudaErrorMissingConfiguration;
    const struct configuration *c = &configurations[--nested];
    *grid = c->grid;
    *block = c->block;
    *shared = c->shared;
    *(cudaStream_t *)stream = c->stream;
    return cudaSuccess;
}

static cudaError_t launch(CUkernel k, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t stream, bool together)
{
    if (!k) return cudaErrorInvalidDeviceFunction;
    CUresult result = together ? DRV(cuLaunchCooperativeKernel)((CUfunction)k, g.x, g.y, g.z, b.x, b.y, b.z,
                                                                (unsigned)shared, stream, args)
                               : DRV(cuLaunchKernel)((CUfunction)k, g.x, g.y, g.z, b.x, b.y, b.z, (unsigned)shared,
                                                     stream, args, NULL);
    return result == CUDA_ERROR_INVALID_VALUE ? cudaErrorInvalidConfiguration : (cudaError_t)result;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void **, size_t, cudaStream_t);
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t, dim3, dim3, void **, size_t, cudaStream_t);
RT_BARE(__cudaGetKernel, (cudaKernel_t * kernel, const void *host), (kernel, host))
{
    NEED_VALUE(kernel);
    *kernel = (cudaKernel_t)rt_kernel(host);
    return *kernel ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}
RT_PTSZ(__cudaLaunchKernel,
        (cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream),
        (kernel, grid, block, args, shared, stream))
{
    return launch((CUkernel)kernel, grid, block, args, shared, stream, false);
}
RT_PTSZ(cudaLaunchKernel, (const void *f, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream),
        (f, grid, block, args, shared, stream))
{
    return launch(rt_kernel(f), grid, block, args, shared, stream, false);
}
RT_PTSZ(cudaLaunchCooperativeKernel,
        (const void *f, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream),
        (f, grid, block, args, shared, stream))
{
    return launch(rt_kernel(f), grid, block, args, shared, stream, true);
}
RT_PTSZ(cudaLaunchKernelExC, (const cudaLaunchConfig_t *c, const void *f, void **args), (c, f, args))
{
    CUkernel k = rt_kernel(f);
    NEED_VALUE(c);
    if (!k) return cudaErrorInvalidDeviceFunction;
    CUlaunchConfig config = {c->gridDim.x,
                             c->gridDim.y,
                             c->gridDim.z,
                             c->blockDim.x,
                             c->blockDim.y,
                             c->blockDim.z,
                             (unsigned)c->dynamicSmemBytes,
                             c->stream,
                             NULL,
                             0};
    return (cudaError_t)DRV(cuLaunchKernelEx)(&config, (CUfunction)k, args, NULL);
}

/* ---- queries ---- */

static cudaError_t function(CUfunction *f, const void *host)
{
    CUkernel k = rt_kernel(host);
    return k ? (cudaError_t)DRV(cuKernelGetFunction)(f, k) : cudaErrorInvalidDeviceFunction;
}
RT(cudaGetFuncBySymbol, (cudaFunction_t * out, const void *host), (out, host))
{
    NEED_VALUE(out);
    return function(out, host);
}
RT_BARE(cudaGetKernel, (cudaKernel_t * out, const void *host), (out, host))
{
    NEED_VALUE(out);
    *out = (cudaKernel_t)rt_kernel(host);
    return *out ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}
RT(cudaFuncGetName, (const char **name, const void *host), (name, host))
{
    CUfunction f;
    TRY(function(&f, host));
    return (cudaError_t)DRV(cuFuncGetName)(name, f);
}
RT(cudaFuncGetAttributes, (struct cudaFuncAttributes * a, const void *host), (a, host))
{
    CUfunction f;
    int value = 0;
    NEED_VALUE(a);
    TRY(function(&f, host));
    memset(a, 0, sizeof *a);
#define INT(field, what)                                                                                               \
    TRY(DRV(cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_##what, f));                                                 \
    a->field = value
    INT(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK);
    INT(numRegs, NUM_REGS);
    INT(ptxVersion, PTX_VERSION);
    INT(binaryVersion, BINARY_VERSION);
    INT(maxDynamicSharedSizeBytes, MAX_DYNAMIC_SHARED_SIZE_BYTES);
    TRY(DRV(cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f));
    a->sharedSizeBytes = (size_t)value;
    return cudaSuccess;
}
RT(cudaFuncSetAttribute, (const void *host, enum cudaFuncAttribute attr, int value), (host, attr, value))
{
    CUfunction f;
    TRY(function(&f, host));
    return (cudaError_t)DRV(cuFuncSetAttribute)(f, (CUfunction_attribute)attr, value);
}
RT(cudaFuncSetCacheConfig, (const void *host, enum cudaFuncCache config), (host, config))
{
    CUfunction f;
    TRY(function(&f, host));
    return (cudaError_t)DRV(cuFuncSetCacheConfig)(f, (CUfunc_cache)config);
}
static cudaError_t active(int *blocks, const void *host, int size, size_t shared, unsigned flags)
{
    CUfunction f;
    TRY(function(&f, host));
    return (cudaError_t)DRV(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(blocks, f, size, shared, flags);
}
RT(cudaOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, const void *host, int size, size_t shared),
   (blocks, host, size, shared))
{
    return active(blocks, host, size, shared, 0);
}
RT(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
   (int *blocks, const void *host, int size, size_t shared, unsigned flags), (blocks, host, size, shared, flags))
{
    return active(blocks, host, size, shared, flags);
}
RT(cudaOccupancyAvailableDynamicSMemPerBlock, (size_t * shared, const void *host, int blocks, int size),
   (shared, host, blocks, size))
{
    CUfunction f;
    TRY(function(&f, host));
    return (cudaError_t)DRV(cuOccupancyAvailableDynamicSMemPerBlock)(shared, f, blocks, size);
}

#if CUDART_VERSION >= 12080
RT_BARE(cudaLibraryLoadData,
        (cudaLibrary_t * library, const void *code, enum cudaJitOption *jit, void **jit_values, unsigned n,
         enum cudaLibraryOption *options, void **values, unsigned m),
        (library, code, jit, jit_values, n, options, values, m))
{
    return (cudaError_t)DRV(cuLibraryLoadData)((CUlibrary *)library, code, NULL, NULL, 0, NULL, NULL, 0);
}
RT_BARE(cudaLibraryLoadFromFile,
        (cudaLibrary_t * library, const char *path, enum cudaJitOption *jit, void **jit_values, unsigned n,
         enum cudaLibraryOption *options, void **values, unsigned m),
        (library, path, jit, jit_values, n, options, values, m))
{
    return (cudaError_t)DRV(cuLibraryLoadFromFile)((CUlibrary *)library, path, NULL, NULL, 0, NULL, NULL, 0);
}
RT_BARE(cudaLibraryUnload, (cudaLibrary_t library), (library))
{
    return (cudaError_t)DRV(cuLibraryUnload)((CUlibrary)library);
}
RT_BARE(cudaLibraryGetKernel, (cudaKernel_t * kernel, cudaLibrary_t library, const char *name), (kernel, library, name))
{
    return (cudaError_t)DRV(cuLibraryGetKernel)((CUkernel *)kernel, (CUlibrary)library, name);
}
RT(cudaLibraryGetGlobal, (void **p, size_t *size, cudaLibrary_t library, const char *name), (p, size, library, name))
{
    return (cudaError_t)DRV(cuLibraryGetGlobal)((CUdeviceptr *)p, size, (CUlibrary)library, name);
}
/* Looks up the driver functions that only these calls need. */
static void *driver_function(const char *name)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult result;
    return DRV(cuGetProcAddress)(name, &found, 12040, CU_GET_PROC_ADDRESS_DEFAULT, &result) ? NULL : found;
}
RT(cudaLibraryGetManaged, (void **p, size_t *size, cudaLibrary_t library, const char *name), (p, size, library, name))
{
    PFN_cuLibraryGetManaged_v12000 get = (PFN_cuLibraryGetManaged_v12000)driver_function("cuLibraryGetManaged");
    return get ? (cudaError_t)get((CUdeviceptr *)p, size, (CUlibrary)library, name) : cudaErrorNotSupported;
}
RT_BARE(cudaLibraryGetKernelCount, (unsigned *n, cudaLibrary_t library), (n, library))
{
    PFN_cuLibraryGetKernelCount_v12040 get =
        (PFN_cuLibraryGetKernelCount_v12040)driver_function("cuLibraryGetKernelCount");
    return get ? (cudaError_t)get(n, (CUlibrary)library) : cudaErrorNotSupported;
}
/* This device's modules have no functions for both host and device. */
RT(cudaLibraryGetUnifiedFunction, (void **p, cudaLibrary_t library, const char *symbol), (p, library, symbol))
{
    NEED_VALUE(p && symbol);
    return cudaErrorSymbolNotFound;
}
RT(cudaKernelSetAttributeForDevice, (cudaKernel_t kernel, enum cudaFuncAttribute attr, int value, int device),
   (kernel, attr, value, device))
{
    return (cudaError_t)DRV(cuKernelSetAttribute)((CUfunction_attribute)attr, value, (CUkernel)kernel, device);
}
#endif
