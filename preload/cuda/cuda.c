/* cuda.c - defines the wrappers of cuda.def, the CUDA driver API.
 *
 * __CUDA_API_VERSION_INTERNAL makes the header declare every ABI variant under its own name. It also removes the
 * macros that give the newest variant the name without a suffix.
 */
#define __CUDA_API_VERSION_INTERNAL
#include "cuda/cuda_compat.h"

#include "control/schedule.h"
#include "cuda/cuda_calls.h"
#include "cuda/kernel_names.h"
#include "cuda/routes.h"
#include "stage/allocator_segments.h"

#define LIBRARY(name, soname)
#define HOOK(class, ret, symbol, params, args, names, values) TFI_CUDA_WRAP(cuda, ret, symbol, params, args, values)
#define HOOK_CUSTOM(class, ret, symbol, params, names) TFI_EXPORT ret symbol params;
#include "cuda/cuda.def"
#undef LIBRARY
#undef HOOK
#undef HOOK_CUSTOM

#define LIBRARY(name, soname)
#define HOOK(class, ret, symbol, params, args, names, values) [TFI_HOOK_##symbol - TFI_LIBRARY_cuda] = (void *)symbol,
#define HOOK_CUSTOM(class, ret, symbol, params, names) [TFI_HOOK_##symbol - TFI_LIBRARY_cuda] = (void *)symbol,
static void *const wrappers[] = {
#include "cuda/cuda.def"
};
#undef LIBRARY
#undef HOOK
#undef HOOK_CUSTOM

void *tfi_cuda_wrapper(enum tfi_hook hook)
{
    return wrappers[hook - TFI_LIBRARY_cuda];
}

/* ---- handles of kernels: their names are stored also while nothing is recorded ---- */

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    struct tfi_cuda_call call;
    CUresult (*real)(CUfunction *, CUmodule, const char *) = tfi_real(TFI_HOOK_cuModuleGetFunction);
    if (!real) return TFI_CUDA_MISSING;
    bool recorded = tfi_cuda_active() && tfi_cuda_enter(&call, TFI_HOOK_cuModuleGetFunction);
    CUresult result_ = real(hfunc, hmod, name);
    if (OUT(hfunc)) tfi_kernel_learn(OUT(hfunc), name);
    if (recorded) tfi_cuda_leave(&call, result_, TFI_VALUES(OUT(hfunc), TFI_U(hmod), TEXT(name)), 3);
    return result_;
}

CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
    struct tfi_cuda_call call;
    CUresult (*real)(CUkernel *, CUlibrary, const char *) = tfi_real(TFI_HOOK_cuLibraryGetKernel);
    if (!real) return TFI_CUDA_MISSING;
    bool recorded = tfi_cuda_active() && tfi_cuda_enter(&call, TFI_HOOK_cuLibraryGetKernel);
    CUresult result_ = real(pKernel, library, name);
    if (OUT(pKernel)) tfi_kernel_learn(OUT(pKernel), name);
    if (recorded) tfi_cuda_leave(&call, result_, TFI_VALUES(OUT(pKernel), TFI_U(library), TEXT(name)), 3);
    return result_;
}

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
    struct tfi_cuda_call call;
    CUresult (*real)(CUfunction *, CUkernel) = tfi_real(TFI_HOOK_cuKernelGetFunction);
    if (!real) return TFI_CUDA_MISSING;
    bool recorded = tfi_cuda_active() && tfi_cuda_enter(&call, TFI_HOOK_cuKernelGetFunction);
    CUresult result_ = real(pFunc, kernel);
    if (OUT(pFunc)) tfi_kernel_alias(OUT(pFunc), TFI_U(kernel));
    if (recorded) tfi_cuda_leave(&call, result_, TFI_VALUES(OUT(pFunc), TFI_U(kernel)), 2);
    return result_;
}

/* ---- mappings: followed also while nothing is recorded, as the allocators' segments ---- */

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    struct tfi_cuda_call call;
    CUresult (*real)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) =
        tfi_real(TFI_HOOK_cuMemMap);
    if (!real) return TFI_CUDA_MISSING;
    bool recorded = tfi_cuda_active() && tfi_cuda_enter(&call, TFI_HOOK_cuMemMap);
    CUresult result = real(ptr, size, offset, handle, flags);
    if (result == CUDA_SUCCESS) tfi_segment_mapped(ptr, size);
    if (recorded) tfi_cuda_leave(&call, result, TFI_VALUES(ptr, size, offset, handle, flags), 5);
    return result;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    struct tfi_cuda_call call;
    CUresult (*real)(CUdeviceptr, size_t) = tfi_real(TFI_HOOK_cuMemUnmap);
    if (!real) return TFI_CUDA_MISSING;
    bool recorded = tfi_cuda_active() && tfi_cuda_enter(&call, TFI_HOOK_cuMemUnmap);
    CUresult result = real(ptr, size);
    if (result == CUDA_SUCCESS && size) tfi_segment_returned(ptr, size);
    if (recorded) tfi_cuda_leave(&call, result, TFI_VALUES(ptr, size), 2);
    return result;
}

/* ---- profiler start and stop by the program: TFI_CAPTURE=cudaProfilerApi follows them ---- */

CUresult cuProfilerStart(void)
{
    struct tfi_cuda_call call;
    CUresult (*real)(void) = tfi_real(TFI_HOOK_cuProfilerStart);
    if (!real) return TFI_CUDA_MISSING;
    tfi_capture_call(true);
    bool recorded = tfi_cuda_active() && tfi_cuda_enter(&call, TFI_HOOK_cuProfilerStart);
    CUresult result = real();
    if (recorded) tfi_cuda_leave(&call, result, NULL, 0);
    return result;
}

CUresult cuProfilerStop(void)
{
    struct tfi_cuda_call call;
    CUresult (*real)(void) = tfi_real(TFI_HOOK_cuProfilerStop);
    if (!real) return TFI_CUDA_MISSING;
    bool recorded = tfi_cuda_active() && tfi_cuda_enter(&call, TFI_HOOK_cuProfilerStop);
    CUresult result = real();
    if (recorded) tfi_cuda_leave(&call, result, NULL, 0);
    tfi_capture_call(false);
    return result;
}

/* ---- look-ups ---- */

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    CUresult (*real)(const char *, void **, int, cuuint64_t) = tfi_real(TFI_HOOK_cuGetProcAddress);
    if (!real) return TFI_CUDA_MISSING;
    CUresult result = real(symbol, pfn, cudaVersion, flags);
    if (result == 0 && symbol && pfn && *pfn) *pfn = tfi_route_driver(symbol, (unsigned)cudaVersion, flags, *pfn);
    return result;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus)
{
    CUresult (*real)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
        tfi_real(TFI_HOOK_cuGetProcAddress_v2);
    if (!real) return TFI_CUDA_MISSING;
    CUresult result = real(symbol, pfn, cudaVersion, flags, symbolStatus);
    if (result == 0 && symbol && pfn && *pfn) *pfn = tfi_route_driver(symbol, (unsigned)cudaVersion, flags, *pfn);
    return result;
}
