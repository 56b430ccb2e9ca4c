/* nccl_open.c - all ranks in one process, with an NCCL that it opens and looks up itself, as vLLM does.
 *
 * nccl_open [SONAME [RANKS]]: libnccl.so.2 and 2 ranks. With librccl.so.1 it also calls what only RCCL has. Prints the
 * result of a look-up in the whole program before NCCL is loaded, and "ok" at the end.
 */
#include <dlfcn.h>
#include <string.h>

#include <cuda.h>
#include <nccl.h>

#include "check.h"

#define MOST 8

typedef ncclResult_t reduces(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
typedef ncclResult_t reduces_more(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t,
                                  const void *);
typedef ncclResult_t exchanges(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
typedef ncclResult_t exchanges_parts(const void *, const size_t *, const size_t *, void *, const size_t *,
                                     const size_t *, ncclDataType_t, ncclComm_t, cudaStream_t);

static void *library;
static int ranks = 2;
static CUcontext context[MOST];
static CUstream stream[MOST];
static float *from[MOST], *to[MOST];
static ncclComm_t comm[MOST];
static ncclResult_t (*start)(void), (*end)(void);

static void *function(const char *name)
{
    void *found = dlsym(library, name);
    EXPECT(found != NULL);
    return found;
}

static void prepare(void)
{
    CHECK(cuInit(0));
    for (int i = 0; i < ranks; i++) {
        CUdeviceptr memory;
        CHECK(cuDevicePrimaryCtxRetain(&context[i], i));
        CHECK(cuCtxSetCurrent(context[i]));
        CHECK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
        CHECK(cuMemAlloc(&memory, 4096));
        from[i] = (float *)memory;
        to[i] = from[i] + 512;
        for (int k = 0; k < 512; k++) from[i][k] = (float)(100 * i + k);
    }
}

static void wait_for_all(void)
{
    EXPECT(end() == ncclSuccess);
    for (int i = 0; i < ranks; i++) {
        CHECK(cuCtxSetCurrent(context[i]));
        CHECK(cuStreamSynchronize(stream[i]));
    }
}

/* Rank i sends i + 1 elements to each rank, and receives r + 1 from rank r. */
static void exchange_parts(void)
{
    exchanges_parts *all_to_all = function("ncclAllToAllv");
    size_t sent[MOST][MOST], at[MOST][MOST], received[MOST], place[MOST];
    for (int r = 0; r < ranks; r++) {
        received[r] = (size_t)r + 1;
        place[r] = r ? place[r - 1] + received[r - 1] : 0;
    }
    EXPECT(start() == ncclSuccess);
    for (int i = 0; i < ranks; i++) {
        for (int r = 0; r < ranks; r++) {
            sent[i][r] = (size_t)i + 1;
            at[i][r] = (size_t)r * 10;
        }
        EXPECT(all_to_all(from[i], sent[i], at[i], to[i], received, place, ncclFloat, comm[i],
                          (cudaStream_t)stream[i]) == ncclSuccess);
    }
    wait_for_all();
    for (int i = 0; i < ranks; i++)
        for (int r = 0; r < ranks; r++) EXPECT(to[i][place[r]] == (float)(100 * r + 10 * i));
}

static void only_in_rccl(void)
{
    reduces_more *all_reduce = function("ncclAllReduceWithBias");
    exchanges *all_to_all = function("ncclAllToAll");
    ncclResult_t (*load)(const char *, int *, int) = function("mscclLoadAlgo");
    ncclResult_t (*unload)(int) = function("mscclUnloadAlgo");
    int algorithm;
    EXPECT(load("algorithm.xml", &algorithm, 1) == ncclSuccess && unload(algorithm) == ncclSuccess);
    EXPECT(start() == ncclSuccess);
    for (int i = 0; i < ranks; i++)
        EXPECT(all_reduce(from[i], to[i], 3, ncclFloat, ncclMax, comm[i], (cudaStream_t)stream[i], from[i]) ==
               ncclSuccess);
    wait_for_all();
    for (int i = 0; i < ranks; i++) EXPECT(to[i][1] == (float)(100 * (ranks - 1) + 1));
    EXPECT(start() == ncclSuccess);
    for (int i = 0; i < ranks; i++)
        EXPECT(all_to_all(from[i], to[i], 5, ncclFloat, comm[i], (cudaStream_t)stream[i]) == ncclSuccess);
    wait_for_all();
    for (int i = 0; i < ranks; i++) EXPECT(to[i][5] == (float)(100 + 5 * i));
    exchange_parts();
}

int main(int argc, char **argv)
{
    const char *soname = argc > 1 ? argv[1] : "libnccl.so.2";
    if (argc > 2) ranks = atoi(argv[2]);
    EXPECT(ranks >= 1 && ranks <= MOST);
    printf("%s\n", dlsym(RTLD_DEFAULT, "ncclAllReduce") ? "found" : "none");
    library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    EXPECT(library != NULL);
    ncclResult_t (*init_all)(ncclComm_t *, int, const int *) = function("ncclCommInitAll");
    ncclResult_t (*destroy)(ncclComm_t) = function("ncclCommDestroy");
    reduces *all_reduce = function("ncclAllReduce");
    start = function("ncclGroupStart");
    end = function("ncclGroupEnd");
    prepare();
    EXPECT(init_all(comm, ranks, NULL) == ncclSuccess);
    EXPECT(start() == ncclSuccess);
    for (int i = 0; i < ranks; i++)
        EXPECT(all_reduce(from[i] + 1, to[i], 1, ncclFloat, ncclSum, comm[i], (cudaStream_t)stream[i]) == ncclSuccess);
    wait_for_all();
    for (int i = 0; i < ranks; i++) EXPECT(to[i][0] == (float)(50 * ranks * (ranks - 1) + ranks));
    if (strcmp(soname, "librccl.so.1") == 0) only_in_rccl();
    for (int i = 0; i < ranks; i++) EXPECT(destroy(comm[i]) == ncclSuccess);
    puts("ok");
    return 0;
}
