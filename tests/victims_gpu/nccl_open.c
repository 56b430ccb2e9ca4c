/* nccl_open.c - both ranks in one process, with an NCCL that it opens and looks up itself, as vLLM does.
 *
 * Prints the result of a look-up in the whole program before NCCL is loaded, and "ok" at the end.
 */
#include <dlfcn.h>

#include <cuda.h>
#include <nccl.h>

#include "check.h"

static void *library;

static void *function(const char *name)
{
    void *found = dlsym(library, name);
    EXPECT(found != NULL);
    return found;
}

int main(void)
{
    CUcontext context[2];
    CUstream stream[2];
    CUdeviceptr memory[2];
    ncclComm_t comm[2];
    printf("%s\n", dlsym(RTLD_DEFAULT, "ncclAllReduce") ? "found" : "none");
    library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    EXPECT(library != NULL);
    ncclResult_t (*init_all)(ncclComm_t *, int, const int *) = function("ncclCommInitAll");
    ncclResult_t (*start)(void) = function("ncclGroupStart"), (*end)(void) = function("ncclGroupEnd");
    ncclResult_t (*destroy)(ncclComm_t) = function("ncclCommDestroy");
    ncclResult_t (*all_reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) =
        function("ncclAllReduce");
    CHECK(cuInit(0));
    for (int i = 0; i < 2; i++) {
        CHECK(cuDevicePrimaryCtxRetain(&context[i], i));
        CHECK(cuCtxSetCurrent(context[i]));
        CHECK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
        CHECK(cuMemAlloc(&memory[i], 64));
        *(float *)memory[i] = (float)(i + 1);
    }
    EXPECT(init_all(comm, 2, NULL) == ncclSuccess);
    EXPECT(start() == ncclSuccess);
    for (int i = 0; i < 2; i++)
        EXPECT(all_reduce((void *)memory[i], (void *)memory[i], 1, ncclFloat, ncclSum, comm[i],
                          (cudaStream_t)stream[i]) == ncclSuccess);
    EXPECT(end() == ncclSuccess);
    for (int i = 0; i < 2; i++) {
        CHECK(cuCtxSetCurrent(context[i]));
        CHECK(cuStreamSynchronize(stream[i]));
        EXPECT(*(float *)memory[i] == 3);
        EXPECT(destroy(comm[i]) == ncclSuccess);
    }
    puts("ok");
    return 0;
}
