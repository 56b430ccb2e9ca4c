/* nccl_api.c - the functions of the API: collectives, sends and receives, memory and texts. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nccl_sim.h"

static bool is_valid(const struct task *t)
{
    bool has_peer = t->function == BROADCAST || t->function == REDUCE || t->function >= GATHER;
    size_t size = simnccl_type_bytes(t->type);
    if (!t->comm || !t->comm->shared || !size) return false;
    if (has_peer && (t->peer < 0 || t->peer >= t->comm->ranks)) return false;
    bool reduces = t->function == ALL_REDUCE || t->function == REDUCE || t->function == REDUCE_SCATTER;
    if (!reduces) return true;
    return t->type <= ncclBfloat16 && t->reduction >= 0 && t->reduction <= (int)ncclAvg + t->comm->nr_scales;
}

static uint64_t number_of(const struct task *t)
{
    if (t->function == SEND) return t->comm->sent[t->peer]++;
    if (t->function == RECV) return t->comm->received[t->peer]++;
    return t->comm->collectives++;
}

static ncclResult_t call(const char *name, struct task task)
{
    CUstreamCaptureStatus captured = CU_STREAM_CAPTURE_STATUS_NONE;
    uint64_t start = simnccl_clock();
    bool grouped = simnccl_in_group(), valid = is_valid(&task);
    ncclResult_t result = ncclInvalidArgument;
    char text[800];
    if (!valid) return result;
    task.sequence = number_of(&task);
    simnccl_driver()->cuStreamIsCapturing((CUstream)task.stream, &captured);
    result = simnccl_add(&task);
    simnccl_task_text(text, sizeof text, &task);
    simnccl_log(
        "{\"t\":\"call\",\"name\":\"%s\",%s,\"grouped\":%s,\"captured\":%s,\"tid\":%d,\"pid\":%d,\"start\":%llu,"
        "\"end\":%llu,\"result\":%d}",
        name, text, grouped ? "true" : "false", captured == CU_STREAM_CAPTURE_STATUS_ACTIVE ? "true" : "false",
        (int)syscall(SYS_gettid), (int)getpid(), (unsigned long long)start, (unsigned long long)simnccl_clock(),
        (int)result);
    return result;
}

PUBLIC ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return call(__func__, (struct task){ALL_REDUCE, sendbuff, recvbuff, count, datatype, op, -1, comm, stream, 0, 0});
}

PUBLIC ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                               ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return call(__func__, (struct task){REDUCE, sendbuff, recvbuff, count, datatype, op, root, comm, stream, 0, 0});
}

PUBLIC ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                                  ncclComm_t comm, cudaStream_t stream)
{
    return call(__func__, (struct task){BROADCAST, sendbuff, recvbuff, count, datatype, -1, root, comm, stream, 0, 0});
}

/* Calls the other function by its symbol, as NCCL does. */
PUBLIC ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                              cudaStream_t stream)
{
    return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

PUBLIC ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                  ncclComm_t comm, cudaStream_t stream)
{
    return call(__func__,
                (struct task){ALL_GATHER, sendbuff, recvbuff, sendcount, datatype, -1, -1, comm, stream, 0, 0});
}

PUBLIC ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                                      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return call(__func__,
                (struct task){REDUCE_SCATTER, sendbuff, recvbuff, recvcount, datatype, op, -1, comm, stream, 0, 0});
}

PUBLIC ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclComm_t comm, cudaStream_t stream)
{
    return call(__func__, (struct task){ALL_TO_ALL, sendbuff, recvbuff, count, datatype, -1, -1, comm, stream, 0, 0});
}

/* ---- functions that only RCCL has ---- */

ncclResult_t ncclAllReduceWithBias(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const void *acc);
ncclResult_t ncclAllToAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream);
ncclResult_t ncclAllToAllv(const void *sendbuff, const size_t sendcounts[], const size_t sdispls[], void *recvbuff,
                           const size_t recvcounts[], const size_t rdispls[], ncclDataType_t datatype, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t mscclLoadAlgo(const char *path, int *algorithm, int rank);
ncclResult_t mscclUnloadAlgo(int algorithm);

/* The bias is not added. */
PUBLIC ncclResult_t ncclAllReduceWithBias(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                          ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const void *acc)
{
    return call(__func__, (struct task){ALL_REDUCE, sendbuff, recvbuff, count, datatype, op, -1, comm, stream, 0, 0});
}

PUBLIC ncclResult_t ncclAllToAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclComm_t comm, cudaStream_t stream)
{
    return call(__func__, (struct task){ALL_TO_ALL, sendbuff, recvbuff, count, datatype, -1, -1, comm, stream, 0, 0});
}

/* Sends to each rank and receives from it, by their symbols as RCCL does. */
PUBLIC ncclResult_t ncclAllToAllv(const void *sendbuff, const size_t sendcounts[], const size_t sdispls[],
                                  void *recvbuff, const size_t recvcounts[], const size_t rdispls[],
                                  ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    size_t size = simnccl_type_bytes(datatype);
    if (!comm || !size) return ncclInvalidArgument;
    comm->collectives++;
    ncclGroupStart();
    for (int r = 0; r < comm->ranks; r++) {
        ncclSend((const char *)sendbuff + sdispls[r] * size, sendcounts[r], datatype, r, comm, stream);
        ncclRecv((char *)recvbuff + rdispls[r] * size, recvcounts[r], datatype, r, comm, stream);
    }
    return ncclGroupEnd();
}

PUBLIC ncclResult_t mscclLoadAlgo(const char *path, int *algorithm, int rank)
{
    if (!path || !algorithm) return ncclInvalidArgument;
    *algorithm = rank + 7;
    return ncclSuccess;
}

PUBLIC ncclResult_t mscclUnloadAlgo(int algorithm)
{
    return ncclSuccess;
}

/* ---- the rest of the collectives ---- */

PUBLIC ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                               ncclComm_t comm, cudaStream_t stream)
{
    return call(__func__, (struct task){GATHER, sendbuff, recvbuff, count, datatype, -1, root, comm, stream, 0, 0});
}

PUBLIC ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                                ncclComm_t comm, cudaStream_t stream)
{
    return call(__func__, (struct task){SCATTER, sendbuff, recvbuff, count, datatype, -1, root, comm, stream, 0, 0});
}

PUBLIC ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                             cudaStream_t stream)
{
    return call(__func__, (struct task){SEND, sendbuff, NULL, count, datatype, -1, peer, comm, stream, 0, 0});
}

PUBLIC ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                             cudaStream_t stream)
{
    return call(__func__, (struct task){RECV, NULL, recvbuff, count, datatype, -1, peer, comm, stream, 0, 0});
}

PUBLIC ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                             ncclScalarResidence_t residence, ncclComm_t comm)
{
    if (!op || !scalar || !comm || comm->nr_scales == MAX_REDUCTIONS) return ncclInvalidArgument;
    if (datatype != ncclFloat32 && datatype != ncclFloat64) return ncclInvalidArgument;
    comm->scale[comm->nr_scales] = datatype == ncclFloat32 ? (double)*(float *)scalar : *(double *)scalar;
    *op = (ncclRedOp_t)((int)ncclAvg + ++comm->nr_scales);
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    return comm ? ncclSuccess : ncclInvalidArgument;
}

/* ---- memory: device memory is host memory here, so registration does nothing ---- */

PUBLIC ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    CUdeviceptr at = 0;
    if (!ptr || !simnccl_driver() || simnccl_driver()->cuMemAlloc(&at, size) != CUDA_SUCCESS)
        return ncclUnhandledCudaError;
    *ptr = (void *)at;
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclMemFree(void *ptr)
{
    return simnccl_driver()->cuMemFree((CUdeviceptr)ptr) == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

PUBLIC ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    if (!comm || !handle) return ncclInvalidArgument;
    *handle = buff;
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    return comm ? ncclSuccess : ncclInvalidArgument;
}

PUBLIC ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags)
{
    if (!comm || !win) return ncclInvalidArgument;
    *win = buff;
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    return comm ? ncclSuccess : ncclInvalidArgument;
}

/* ---- texts ---- */

PUBLIC ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

PUBLIC const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess ? "no error (simulated NCCL)" : "an error of the simulated NCCL";
}

PUBLIC const char *ncclGetLastError(ncclComm_t comm)
{
    return "";
}
