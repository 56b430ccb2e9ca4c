/* bench-nccl-library.c - an NCCL whose calls do nothing, so that scripts/bench-cuda measures the wrapper alone. */
#include <string.h>

#include <nccl.h>

#define PUBLIC __attribute__((visibility("default")))

static char communicator[64];

PUBLIC ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 1, sizeof *id);
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    (void)nranks, (void)commId, (void)rank;
    *comm = (ncclComm_t)(void *)communicator;
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    (void)sendbuff, (void)recvbuff, (void)count, (void)datatype, (void)op, (void)comm, (void)stream;
    return ncclSuccess;
}
