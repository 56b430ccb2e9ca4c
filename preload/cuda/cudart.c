/* cudart.c - defines the wrappers of cudart.def, the CUDA runtime API.
 *
 * __CUDA_API_VERSION_INTERNAL makes the header declare every ABI variant under its own name. Rows whose prototypes
 * differ between releases have their bodies in cudart_versions.c.
 */
#define __CUDA_API_VERSION_INTERNAL
#include "cuda/cudart_compat.h"

#include "control/schedule.h"
#include "cuda/cuda_calls.h"
#include "cuda/kernel_names.h"
#include "cuda/routes.h"
#include "stage/allocator_segments.h"

/* cudart_versions.c relies on this: the structure fits one register. */
_Static_assert(sizeof(struct cudaMemLocation) == 8, "cudaMemLocation");

#define LIBRARY(name, soname)
#define HOOK(class, ret, symbol, params, args, names, values) TFI_CUDA_WRAP(cudart, ret, symbol, params, args, values)
#define HOOK_CUSTOM(class, ret, symbol, params, names)
#define HOOK_CUSTOM_VOID(class, ret, symbol, params, names)
#include "cuda/cudart.def"
#undef LIBRARY
#undef HOOK
#undef HOOK_CUSTOM
#undef HOOK_CUSTOM_VOID

/* Only addresses are needed: each declaration has a C name of its own, so that no prototype is required. */
#define LIBRARY(name, soname)
#define HOOK(class, ret, symbol, params, args, names, values) extern const char address_of_##symbol[] __asm__(#symbol);
#define HOOK_CUSTOM(class, ret, symbol, params, names) extern const char address_of_##symbol[] __asm__(#symbol);
#define HOOK_CUSTOM_VOID(class, ret, symbol, params, names) extern const char address_of_##symbol[] __asm__(#symbol);
#include "cuda/cudart.def"
#undef LIBRARY
#undef HOOK
#undef HOOK_CUSTOM
#undef HOOK_CUSTOM_VOID

#define LIBRARY(name, soname)
#define PLACE(symbol) [TFI_HOOK_##symbol - TFI_LIBRARY_cudart] = (void *)address_of_##symbol,
#define HOOK(class, ret, symbol, params, args, names, values) PLACE(symbol)
#define HOOK_CUSTOM(class, ret, symbol, params, names) PLACE(symbol)
#define HOOK_CUSTOM_VOID(class, ret, symbol, params, names) PLACE(symbol)
static void *const wrappers[] = {
#include "cuda/cudart.def"
};
#undef LIBRARY
#undef HOOK
#undef HOOK_CUSTOM
#undef HOOK_CUSTOM_VOID

void *tfi_cudart_wrapper(enum tfi_hook hook)
{
    return wrappers[hook - TFI_LIBRARY_cudart];
}

/* ---- memory that an allocator gives back: followed also while nothing is recorded ---- */

TFI_EXPORT cudaError_t cudaFree(void *devPtr)
{
    struct tfi_cuda_call call;
    cudaError_t (*real)(void *) = tfi_real(TFI_HOOK_cudaFree);
    if (!real) return TFI_CUDA_MISSING;
    bool recorded = tfi_cudart_active() && tfi_cudart_enter(&call, TFI_HOOK_cudaFree);
    cudaError_t result = real(devPtr);
    if (result == cudaSuccess) tfi_segment_returned(TFI_U(devPtr), 0);
    if (recorded) tfi_cudart_leave(&call, result, TFI_VALUES(TFI_U(devPtr)), 1);
    return result;
}

/* ---- names of kernels ---- */

/* Called for each kernel of a program or library when that is loaded, with the handle of its module. A library
 * that needs another copy of the runtime than the ones before is noticed here, before it launches anything. */
TFI_EXPORT void __cudaRegisterFunction(void **handle, const char *hostFun, char *deviceFun, const char *deviceName,
                                       int threadLimit, uint3 *tid, uint3 *bid, dim3 *blockDim, dim3 *gridDim,
                                       int *warpSize)
{
    static void *last;
    if (__atomic_exchange_n(&last, (void *)handle, __ATOMIC_RELAXED) != (void *)handle)
        tfi_hook_look_again(TFI_LIBRARY_cudart);
    void (*real)(void **, const char *, char *, const char *, int, uint3 *, uint3 *, dim3 *, dim3 *, int *) =
        tfi_real(TFI_HOOK___cudaRegisterFunction);
    if (!real) return;
    real(handle, hostFun, deviceFun, deviceName, threadLimit, tid, bid, blockDim, gridDim, warpSize);
    tfi_kernel_register(TFI_U(hostFun), deviceName);
}

TFI_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *hostFun)
{
    cudaError_t (*real)(cudaKernel_t *, const void *) = tfi_real(TFI_HOOK___cudaGetKernel);
    if (!real) return TFI_CUDA_MISSING;
    cudaError_t result_ = real(kernel, hostFun);
    tfi_kernel_alias(OUT(kernel), TFI_U(hostFun));
    return result_;
}

TFI_EXPORT cudaError_t cudaGetKernel(cudaKernel_t *kernelPtr, const void *entryFuncAddr)
{
    cudaError_t (*real)(cudaKernel_t *, const void *) = tfi_real(TFI_HOOK_cudaGetKernel);
    if (!real) return TFI_CUDA_MISSING;
    cudaError_t result_ = real(kernelPtr, entryFuncAddr);
    tfi_kernel_alias(OUT(kernelPtr), TFI_U(entryFuncAddr));
    return result_;
}

TFI_EXPORT cudaError_t cudaGetFuncBySymbol(cudaFunction_t *functionPtr, const void *symbolPtr)
{
    cudaError_t (*real)(cudaFunction_t *, const void *) = tfi_real(TFI_HOOK_cudaGetFuncBySymbol);
    if (!real) return TFI_CUDA_MISSING;
    cudaError_t result_ = real(functionPtr, symbolPtr);
    tfi_kernel_alias(OUT(functionPtr), TFI_U(symbolPtr));
    return result_;
}

TFI_EXPORT cudaError_t cudaLibraryGetKernel(cudaKernel_t *pKernel, cudaLibrary_t library, const char *name)
{
    struct tfi_cuda_call call;
    cudaError_t (*real)(cudaKernel_t *, cudaLibrary_t, const char *) = tfi_real(TFI_HOOK_cudaLibraryGetKernel);
    if (!real) return TFI_CUDA_MISSING;
    bool recorded = tfi_cudart_active() && tfi_cudart_enter(&call, TFI_HOOK_cudaLibraryGetKernel);
    cudaError_t result_ = real(pKernel, library, name);
    if (OUT(pKernel)) tfi_kernel_learn(OUT(pKernel), name);
    if (recorded) tfi_cudart_leave(&call, result_, TFI_VALUES(OUT(pKernel), TFI_U(library), TEXT(name)), 3);
    return result_;
}

/* ---- profiler start and stop by the program: TFI_CAPTURE=cudaProfilerApi follows them ---- */

TFI_EXPORT cudaError_t cudaProfilerStart(void)
{
    struct tfi_cuda_call call;
    cudaError_t (*real)(void) = tfi_real(TFI_HOOK_cudaProfilerStart);
    if (!real) return TFI_CUDA_MISSING;
    tfi_capture_call(true);
    bool recorded = tfi_cudart_active() && tfi_cudart_enter(&call, TFI_HOOK_cudaProfilerStart);
    cudaError_t result = real();
    if (recorded) tfi_cudart_leave(&call, result, NULL, 0);
    return result;
}

TFI_EXPORT cudaError_t cudaProfilerStop(void)
{
    struct tfi_cuda_call call;
    cudaError_t (*real)(void) = tfi_real(TFI_HOOK_cudaProfilerStop);
    if (!real) return TFI_CUDA_MISSING;
    bool recorded = tfi_cudart_active() && tfi_cudart_enter(&call, TFI_HOOK_cudaProfilerStop);
    cudaError_t result = real();
    if (recorded) tfi_cudart_leave(&call, result, NULL, 0);
    tfi_capture_call(false);
    return result;
}

/* ---- look-ups of driver functions through the runtime ---- */

/* A look-up without a version means the runtime's own version. */
static unsigned runtime_version(const void *caller)
{
    int version = 0;
    int (*real)(int *) = tfi_hook_sibling(TFI_HOOK_cudaGetDriverEntryPoint, "cudaRuntimeGetVersion", caller);
    return real && real(&version) == 0 ? (unsigned)version : 0;
}

static void route(const char *symbol, unsigned version, uint64_t flags, void **function)
{
    if (symbol && function && *function) *function = tfi_route_driver(symbol, version, flags, *function);
}

TFI_EXPORT cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **funcPtr, unsigned long long flags,
                                               enum cudaDriverEntryPointQueryResult *driverStatus)
{
    cudaError_t (*real)(const char *, void **, unsigned long long, enum cudaDriverEntryPointQueryResult *) =
        tfi_real(TFI_HOOK_cudaGetDriverEntryPoint);
    if (!real) return TFI_CUDA_MISSING;
    cudaError_t result = real(symbol, funcPtr, flags, driverStatus);
    if (result == 0) route(symbol, runtime_version(__builtin_return_address(0)), flags, funcPtr);
    return result;
}

TFI_EXPORT cudaError_t cudaGetDriverEntryPoint_ptsz(const char *symbol, void **funcPtr, unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult *driverStatus)
{
    cudaError_t (*real)(const char *, void **, unsigned long long, enum cudaDriverEntryPointQueryResult *) =
        tfi_real(TFI_HOOK_cudaGetDriverEntryPoint_ptsz);
    if (!real) return TFI_CUDA_MISSING;
    cudaError_t result = real(symbol, funcPtr, flags, driverStatus);
    if (result == 0)
        route(symbol, runtime_version(__builtin_return_address(0)), flags ? flags : TFI_ROUTE_PER_THREAD, funcPtr);
    return result;
}

TFI_EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **funcPtr, unsigned int cudaVersion,
                                                        unsigned long long flags,
                                                        enum cudaDriverEntryPointQueryResult *driverStatus)
{
    cudaError_t (*real)(const char *, void **, unsigned, unsigned long long, enum cudaDriverEntryPointQueryResult *) =
        tfi_real(TFI_HOOK_cudaGetDriverEntryPointByVersion);
    if (!real) return TFI_CUDA_MISSING;
    cudaError_t result = real(symbol, funcPtr, cudaVersion, flags, driverStatus);
    if (result == 0) route(symbol, cudaVersion, flags, funcPtr);
    return result;
}

TFI_EXPORT cudaError_t cudaGetDriverEntryPointByVersion_ptsz(const char *symbol, void **funcPtr,
                                                             unsigned int cudaVersion, unsigned long long flags,
                                                             enum cudaDriverEntryPointQueryResult *driverStatus)
{
    cudaError_t (*real)(const char *, void **, unsigned, unsigned long long, enum cudaDriverEntryPointQueryResult *) =
        tfi_real(TFI_HOOK_cudaGetDriverEntryPointByVersion_ptsz);
    if (!real) return TFI_CUDA_MISSING;
    cudaError_t result = real(symbol, funcPtr, cudaVersion, flags, driverStatus);
    if (result == 0) route(symbol, cudaVersion, flags ? flags : TFI_ROUTE_PER_THREAD, funcPtr);
    return result;
}
