/* nccl_comm.c - makes communicators, from a unique id or by split and shrink, and ends them.
 *
 * A communicator is never freed, so that a kernel that still runs can use it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl_sim.h"

static ncclComm_t new_comm(const char *id, int rank, int ranks)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);
    CUdevice device = 0;
    snprintf(comm->id, sizeof comm->id, "%s", id);
    comm->rank = rank;
    comm->ranks = ranks;
    comm->blocking = true;
    pthread_mutex_init(&comm->running, NULL);
    if (simnccl_driver()) simnccl_driver()->cuCtxGetDevice(&device);
    comm->device = device;
    return comm;
}

PUBLIC ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static uint32_t number;
    if (!id) return ncclInvalidArgument;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "simnccl-%d-%u-%llx", (int)getpid(),
             __atomic_add_fetch(&number, 1, __ATOMIC_RELAXED), (unsigned long long)simnccl_clock());
    return ncclSuccess;
}

/* ---- from a unique id ---- */

struct init {
    ncclComm_t comm;
    const char *function;
};

static ncclResult_t join(void *data)
{
    struct init *init = data;
    ncclResult_t result = simnccl_join(init->comm) ? ncclSuccess : ncclSystemError;
    simnccl_plugin_begin(init->comm);
    simnccl_log_comm(init->function, init->comm, NULL, result);
    return result;
}

static ncclResult_t init(ncclComm_t *comm, int ranks, const char *id, int rank, const ncclConfig_t *config,
                         const char *function)
{
    if (!comm || ranks < 1 || ranks > MAX_RANKS || rank < 0 || rank >= ranks || !simnccl_driver())
        return ncclInvalidArgument;
    *comm = new_comm(id, rank, ranks);
    (*comm)->blocking = !config || config->blocking != 0;
    struct init job = {*comm, function};
    return simnccl_job(join, &job, sizeof job, (*comm)->blocking, &(*comm)->state);
}

PUBLIC ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    return init(comm, nranks, commId.internal, rank, NULL, __func__);
}

PUBLIC ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                           ncclConfig_t *config)
{
    return init(comm, nranks, commId.internal, rank, config, __func__);
}

PUBLIC ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                             ncclUniqueId *commIds, ncclConfig_t *config)
{
    if (!commIds || nId < 1) return ncclInvalidArgument;
    return init(newcomm, nranks, commIds[0].internal, myrank, config, __func__);
}

PUBLIC ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    ncclUniqueId id;
    ncclResult_t result = ncclSuccess;
    ncclGetUniqueId(&id); /* by its symbol, as in NCCL */
    ncclGroupStart();
    for (int i = 0; i < ndev && result == ncclSuccess; i++) {
        result = init(&comm[i], ndev, id.internal, i, NULL, __func__);
        if (result == ncclSuccess) comm[i]->device = devlist ? devlist[i] : i;
    }
    ncclResult_t ended = ncclGroupEnd();
    return result != ncclSuccess ? result : ended;
}

/* ---- from other communicators ---- */

struct child {
    ncclComm_t parent, *out;
    const char *function;
    char id[256];
    int rank, ranks, color;
};

static ncclResult_t join_child(struct child *c)
{
    ncclComm_t comm = new_comm(c->id, c->rank, c->ranks);
    comm->device = c->parent->device;
    ncclResult_t result = simnccl_join(comm) ? ncclSuccess : ncclSystemError;
    simnccl_plugin_begin(comm);
    simnccl_log_comm(c->function, comm, c->parent->id, result);
    if (result == ncclSuccess) __atomic_store_n(c->out, comm, __ATOMIC_RELEASE);
    return result;
}

/* Orders by key, equal keys by rank. */
static ncclResult_t split(void *data)
{
    struct child *c = data;
    struct shared_rank *all = c->parent->shared->rank;
    int mine = c->parent->rank;
    if (!simnccl_barrier(c->parent, ON_HOST)) return ncclSystemError;
    for (int r = 0; r < c->parent->ranks; r++) {
        if (all[r].color != c->color) continue;
        c->ranks++;
        bool before = r < mine ? all[r].key <= all[mine].key : all[r].key < all[mine].key;
        c->rank += before;
    }
    if (!simnccl_barrier(c->parent, ON_HOST)) return ncclSystemError;
    return c->color == NCCL_SPLIT_NOCOLOR ? ncclSuccess : join_child(c);
}

PUBLIC ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
    struct child child = {.parent = comm, .out = newcomm, .function = __func__, .color = color};
    if (!comm || !newcomm) return ncclInvalidArgument;
    *newcomm = NULL;
    comm->shared->rank[comm->rank].color = color;
    comm->shared->rank[comm->rank].key = key;
    snprintf(child.id, sizeof child.id, "%s-s%uc%d", comm->id, comm->splits++, color);
    return simnccl_job(split, &child, sizeof child, comm->blocking, &comm->state);
}

static ncclResult_t shrink(void *data)
{
    return join_child(data);
}

PUBLIC ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
                                   ncclConfig_t *config, int shrinkFlags)
{
    struct child child = {.parent = comm, .out = newcomm, .function = __func__};
    if (!comm || !newcomm || !excludeRanksList || excludeRanksCount < 1) return ncclInvalidArgument;
    *newcomm = NULL;
    if (shrinkFlags & NCCL_SHRINK_ABORT) __atomic_store_n(&comm->aborted, true, __ATOMIC_RELAXED);
    child.rank = comm->rank;
    child.ranks = comm->ranks - excludeRanksCount;
    for (int i = 0; i < excludeRanksCount; i++) {
        if (excludeRanksList[i] == comm->rank) return ncclInvalidArgument;
        child.rank -= excludeRanksList[i] < comm->rank;
    }
    snprintf(child.id, sizeof child.id, "%s-x%u", comm->id, comm->shrinks++);
    return simnccl_job(shrink, &child, sizeof child, comm->blocking, &comm->state);
}

/* ---- queries and the end ---- */

PUBLIC ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    if (!comm || !asyncError) return ncclInvalidArgument;
    *asyncError = (ncclResult_t)__atomic_load_n(&comm->state, __ATOMIC_ACQUIRE);
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    if (!comm || !count) return ncclInvalidArgument;
    *count = comm->ranks;
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    if (!comm || !rank) return ncclInvalidArgument;
    *rank = comm->rank;
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    if (!comm || !device) return ncclInvalidArgument;
    *device = comm->device;
    return ncclSuccess;
}

static ncclResult_t end(ncclComm_t comm, const char *function, bool aborts)
{
    if (!comm) return ncclInvalidArgument;
    if (aborts) __atomic_store_n(&comm->aborted, true, __ATOMIC_RELAXED);
    simnccl_log_comm(function, comm, NULL, ncclSuccess);
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    return end(comm, __func__, false);
}

PUBLIC ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (comm) simnccl_plugin_end(comm);
    return end(comm, __func__, false);
}

PUBLIC ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (comm) simnccl_plugin_end(comm);
    return end(comm, __func__, true);
}

PUBLIC ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    return end(comm, __func__, true);
}
