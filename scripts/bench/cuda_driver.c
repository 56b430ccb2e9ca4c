/* cuda_driver.c - a libcuda.so.1 whose calls do nothing: a launch on it costs only the code above the driver.
 *
 * Only cuda.c uses it. It has the functions that the program calls, and no device behind them.
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
    *function = (CUfunction)name; /* any address but NULL */
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}
