/* proc.c - cuGetProcAddress: the function for a name, a version, and the program's kind of default stream.
 *
 * The versions are those of cudaTypedefs.h. A name that is not in the table has one variant only, or its second variant
 * is so old that programs never ask for the first: the answer is _v2 then. A name with a version suffix is not found.
 */
#include <stdio.h>

#include "model.h"
#include "symbols.h"

static const struct {
    const char *name;
    int version;
    const char *suffix;
} versions[] = {
    {"cuCtxCreate", 3020, "_v2"},
    {"cuCtxCreate", 11040, "_v3"},
    {"cuCtxCreate", 12050, "_v4"},
    {"cuCtxGetDevice", 2000, ""},
    {"cuCtxGetDevice", 13000, "_v2"},
    {"cuCtxSynchronize", 2000, ""},
    {"cuCtxSynchronize", 13000, "_v2"},
    {"cuDeviceGetUuid", 9020, ""},
    {"cuDeviceGetUuid", 11040, "_v2"},
    {"cuDevicePrimaryCtxRelease", 7000, ""},
    {"cuDevicePrimaryCtxRelease", 11000, "_v2"},
    {"cuDevicePrimaryCtxReset", 7000, ""},
    {"cuDevicePrimaryCtxReset", 11000, "_v2"},
    {"cuDevicePrimaryCtxSetFlags", 7000, ""},
    {"cuDevicePrimaryCtxSetFlags", 11000, "_v2"},
    {"cuEventElapsedTime", 2000, ""},
    {"cuEventElapsedTime", 12080, "_v2"},
    {"cuGetProcAddress", 11030, ""},
    {"cuGetProcAddress", 12000, "_v2"},
    {"cuGraphAddDependencies", 10000, ""},
    {"cuGraphAddDependencies", 12030, "_v2"},
    {"cuGraphAddKernelNode", 10000, ""},
    {"cuGraphAddKernelNode", 12000, "_v2"},
    {"cuGraphAddNode", 12020, ""},
    {"cuGraphAddNode", 12030, "_v2"},
    {"cuGraphExecKernelNodeSetParams", 10010, ""},
    {"cuGraphExecKernelNodeSetParams", 12000, "_v2"},
    {"cuGraphExecUpdate", 10020, ""},
    {"cuGraphExecUpdate", 12000, "_v2"},
    {"cuGraphGetEdges", 10000, ""},
    {"cuGraphGetEdges", 12030, "_v2"},
    {"cuGraphInstantiate", 10000, ""},
    {"cuGraphInstantiate", 11000, "_v2"},
    {"cuGraphInstantiate", 12000, "WithFlags"},
    {"cuGraphKernelNodeGetParams", 10000, ""},
    {"cuGraphKernelNodeGetParams", 12000, "_v2"},
    {"cuGraphKernelNodeSetParams", 10000, ""},
    {"cuGraphKernelNodeSetParams", 12000, "_v2"},
    {"cuGraphNodeGetDependencies", 10000, ""},
    {"cuGraphNodeGetDependencies", 12030, "_v2"},
    {"cuGraphNodeGetDependentNodes", 10000, ""},
    {"cuGraphNodeGetDependentNodes", 12030, "_v2"},
    {"cuGraphRemoveDependencies", 10000, ""},
    {"cuGraphRemoveDependencies", 12030, "_v2"},
    {"cuIpcOpenMemHandle", 4010, ""},
    {"cuIpcOpenMemHandle", 11000, "_v2"},
    {"cuLaunchHostFunc", 10000, ""},
    {"cuLaunchHostFunc", 13010, "_v2"},
    {"cuMemAdvise", 8000, ""},
    {"cuMemAdvise", 12020, "_v2"},
    {"cuMemHostRegister", 4000, ""},
    {"cuMemHostRegister", 6050, "_v2"},
    {"cuMemPrefetchAsync", 8000, ""},
    {"cuMemPrefetchAsync", 12020, "_v2"},
    {"cuMemcpy3DBatchAsync", 12080, ""},
    {"cuMemcpy3DBatchAsync", 13000, "_v2"},
    {"cuMemcpyBatchAsync", 12080, ""},
    {"cuMemcpyBatchAsync", 13000, "_v2"},
    {"cuMulticastBindAddr", 12010, ""},
    {"cuMulticastBindAddr", 13010, "_v2"},
    {"cuMulticastBindMem", 12010, ""},
    {"cuMulticastBindMem", 13010, "_v2"},
    {"cuStreamBatchMemOp", 8000, ""},
    {"cuStreamBatchMemOp", 11070, "_v2"},
    {"cuStreamBeginCapture", 10000, ""},
    {"cuStreamBeginCapture", 10010, "_v2"},
    {"cuStreamGetCaptureInfo", 10010, ""},
    {"cuStreamGetCaptureInfo", 11030, "_v2"},
    {"cuStreamGetCaptureInfo", 12030, "_v3"},
    {"cuStreamGetCtx", 9020, ""},
    {"cuStreamGetCtx", 12050, "_v2"},
    {"cuStreamUpdateCaptureDependencies", 11030, ""},
    {"cuStreamUpdateCaptureDependencies", 12030, "_v2"},
    {"cuStreamWaitValue32", 8000, ""},
    {"cuStreamWaitValue32", 11070, "_v2"},
    {"cuStreamWaitValue64", 9000, ""},
    {"cuStreamWaitValue64", 11070, "_v2"},
    {"cuStreamWriteValue32", 8000, ""},
    {"cuStreamWriteValue32", 11070, "_v2"},
    {"cuStreamWriteValue64", 9000, ""},
    {"cuStreamWriteValue64", 11070, "_v2"},
};

/* Returns the suffix for a version. NULL: the version is too old for the name. "?": the table lacks the name. */
static const char *suffix_of(const char *name, int version)
{
    const char *suffix = "?";
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        if (strcmp(versions[i].name, name) != 0) continue;
        if (versions[i].version <= version) suffix = versions[i].suffix;
        else if (*suffix == '?') return NULL;
    }
    return suffix;
}

static void *with(const char *name, const char *suffix, const char *more)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s%s", name, suffix, more);
    return sim_symbol(full);
}

static void *variant(const char *name, const char *suffix, bool per_thread)
{
    void *found = NULL;
    if (per_thread && !(found = with(name, suffix, "_ptsz"))) found = with(name, suffix, "_ptds");
    return found ? found : with(name, suffix, "");
}

static bool is_plain(const char *name)
{
    size_t n = strlen(name);
    return strncmp(name, "cu", 2) == 0 && n < 200 && !(n > 3 && name[n - 3] == '_' && name[n - 2] == 'v') &&
           !(n > 5 && strncmp(name + n - 5, "_pt", 3) == 0);
}

static CUresult look_up(const char *name, void **function, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult *status)
{
    NEED_VALUE(name && function && flags <= 2);
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const char *suffix = suffix_of(name, version);
    *function = NULL;
    if (is_plain(name) && suffix && *suffix == '?' && !(*function = variant(name, "_v2", per_thread)))
        *function = variant(name, "", per_thread);
    else if (is_plain(name) && suffix && *suffix != '?') *function = variant(name, suffix, per_thread);
    if (status)
        *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS
                  : suffix  ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
                            : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API(cuGetProcAddress, (const char *name, void **function, int version, cuuint64_t flags),
    (name, function, version, flags))
{
    return look_up(name, function, version, flags, NULL);
}
API(cuGetProcAddress_v2,
    (const char *name, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status),
    (name, function, version, flags, status))
{
    return look_up(name, function, version, flags, status);
}
