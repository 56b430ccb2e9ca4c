/* nccl_link.c - the functions of NCCL that releases of torch are linked to and that the simulated NCCL does not have.
 *
 * Without them libtorch_cuda.so does not load. Each returns ncclInvalidUsage; torch calls none of them unless the program
 * asks for what they do. They are declared without their parameters, which the calling convention allows because none
 * is read.
 */
#define LINKED(name)                                                                                                   \
    __attribute__((visibility("default"))) int name(void);                                                             \
    int name(void)                                                                                                     \
    {                                                                                                                  \
        return 5;                                                                                                      \
    }
LINKED(ncclCommGetUniqueId)
LINKED(ncclCommGrow)
LINKED(ncclCommMemStats)
LINKED(ncclCommQueryProperties)
LINKED(ncclCommResume)
LINKED(ncclCommSuspend)
LINKED(ncclDevCommCreate)
LINKED(ncclDevCommDestroy)
LINKED(ncclGetLsaMultimemDevicePointer)
LINKED(ncclGetPeerDevicePointer)
LINKED(ncclPutSignal)
LINKED(ncclSignal)
LINKED(ncclWaitSignal)
LINKED(ncclWinGetUserPtr)
