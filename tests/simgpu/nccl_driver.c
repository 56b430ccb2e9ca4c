/* nccl_driver.c - finds the driver like NCCL's own runtime: one function by dlsym, and with it all others. */
#include <dlfcn.h>
#include <string.h>

#include "nccl_sim.h"

static struct driver driver;
static CUlibrary kernels;

typedef CUresult look_up(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static void find(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    look_up *get = library ? (look_up *)dlsym(library, "cuGetProcAddress_v2") : NULL;
    CUdriverProcAddressQueryResult why;
    if (!get) return;
#define FIND(name) get(#name, (void **)&driver.name, 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &why)
    FIND(cuLaunchKernelEx);
    FIND(cuLibraryLoadData);
    FIND(cuLibraryGetKernel);
    FIND(cuStreamIsCapturing);
    FIND(cuCtxGetDevice);
    FIND(cuMemAlloc);
    FIND(cuMemFree);
#undef FIND
    *(void **)&driver.next_kernel = dlsym(library, "simgpu_next_kernel");
}

const struct driver *simnccl_driver(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find);
    return driver.cuLaunchKernelEx && driver.next_kernel ? &driver : NULL;
}

static void load(void)
{
    driver.cuLibraryLoadData(&kernels, "\177ELF", NULL, NULL, 0, NULL, NULL, 0);
}

CUfunction simnccl_kernel(const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    CUkernel kernel = NULL;
    pthread_once(&once, load);
    return driver.cuLibraryGetKernel(&kernel, kernels, name) == CUDA_SUCCESS ? (CUfunction)kernel : NULL;
}
