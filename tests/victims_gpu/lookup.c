/* lookup.c - programs that look the driver up themselves: like Triton, like cuFFT, and like the runtime.
 *
 * triton: dlopen, dlsym of cuLaunchKernelEx. cufft: dlopen, dlsym of cuLaunchKernel in the way of a library's
 * constructor, once. runtime: dlsym of cuGetProcAddress_v2, through it cuGetProcAddress, and through that all other
 * functions, with versions and with per-thread streams. An argument selects one; without arguments all run.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cuda.h"
#include "cudaTypedefs.h"

static void *handle;

static void *need(const char *name)
{
    void *f = dlsym(handle, name);
    if (!f) printf("no %s\n", name), exit(1);
    return f;
}
#define NEED(type, variable, name) type variable = (type)need(name)

static CUfunction kernel(const char *name)
{
    NEED(PFN_cuInit_v2000, init, "cuInit");
    NEED(PFN_cuDevicePrimaryCtxRetain_v7000, retain, "cuDevicePrimaryCtxRetain");
    NEED(PFN_cuCtxSetCurrent_v4000, set, "cuCtxSetCurrent");
    NEED(PFN_cuModuleLoadData_v2000, load, "cuModuleLoadData");
    NEED(PFN_cuModuleGetFunction_v2000, get, "cuModuleGetFunction");
    static const unsigned char cubin[64] = {0x7f, 'E', 'L', 'F', 2, 1};
    CUcontext ctx;
    CUmodule module;
    CUfunction f;
    CHECK(init(0));
    CHECK(retain(&ctx, 0));
    CHECK(set(ctx));
    CHECK(load(&module, cubin));
    CHECK(get(&f, module, name));
    return f;
}

static void like_triton(void)
{
    CUfunction f = kernel("triton_poi_fused_add_0");
    NEED(PFN_cuLaunchKernelEx_v11060, launch, "cuLaunchKernelEx");
    CUlaunchConfig config = {
        .gridDimX = 12, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1, .blockDimZ = 1};
    for (int i = 0; i < 4; i++) CHECK(launch(&config, f, NULL, NULL));
    puts("triton");
}

static void like_cufft(void)
{
    CUfunction f = kernel("regular_fft_factor");
    NEED(PFN_cuLaunchKernel_v4000, launch, "cuLaunchKernel");
    for (int i = 0; i < 3; i++) CHECK(launch(f, 2, 2, 1, 64, 1, 1, 512, NULL, NULL, NULL));
    puts("cufft");
}

static void like_runtime(void)
{
    NEED(PFN_cuGetProcAddress_v12000, first, "cuGetProcAddress_v2");
    PFN_cuGetProcAddress_v12000 get;
    CUdriverProcAddressQueryResult status;
    CHECK(first("cuGetProcAddress", (void **)&get, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    EXPECT(status == CU_GET_PROC_ADDRESS_SUCCESS);
    void *old, *new, *plain, *own;
    CHECK(get("cuEventElapsedTime", &old, 2000, 0, &status));
    CHECK(get("cuEventElapsedTime", &new, 12080, 0, &status));
    EXPECT(old != new);
    CHECK(get("cuLaunchKernel", &plain, 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status));
    CHECK(get("cuLaunchKernel", &own, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
    EXPECT(plain != own);
    EXPECT(get("cuGraphAddNode", &old, 12000, 0, &status) == CUDA_ERROR_NOT_FOUND);
    EXPECT(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    EXPECT(get("cuNothing", &old, 13000, 0, &status) == CUDA_ERROR_NOT_FOUND);
    EXPECT(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CUfunction f = kernel("ampere_sgemm_32x32");
    CHECK(((PFN_cuLaunchKernel_v4000)plain)(f, 1, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL));
    CHECK(((PFN_cuLaunchKernel_v4000)own)(f, 1, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL));
    puts("runtime");
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "all";
    handle = dlopen("libcuda.so.1", RTLD_NOW);
    if (!handle) return puts(dlerror()), 1;
    bool all = strcmp(which, "all") == 0;
    if (all || strcmp(which, "triton") == 0) like_triton();
    if (all || strcmp(which, "cufft") == 0) like_cufft();
    if (all || strcmp(which, "runtime") == 0) like_runtime();
    puts("ok");
    return 0;
}
