/* bench-cuda-driver.c - a libcuda.so.1 whose calls do nothing: what a launch costs on it is what stands in front of it.
 *
 * Only scripts/bench-cuda.c uses it; it has the functions that that program calls, and no device behind them.
 */
#include <cuda.h>

#define NOTHING(function, parameters)                                                                                  \
    CUresult function parameters;                                                                                      \
    CUresult function parameters                                                                                       \
    {                                                                                                                  \
        return CUDA_SUCCESS;                                                                                           \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"
NOTHING(cuInit, (unsigned flags))
NOTHING(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))
NOTHING(cuCtxSetCurrent, (CUcontext context))
NOTHING(cuModuleLoadData, (CUmodule * module, const void *image))
NOTHING(cuStreamCreate, (CUstream * stream, unsigned flags))
NOTHING(cuLaunchKernel, (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                         unsigned shared, CUstream stream, void **parameters, void **extra))
NOTHING(cuCtxSynchronize, (void))

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    *function = (CUfunction)name; /* any address will do, as long as it is not zero */
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}
