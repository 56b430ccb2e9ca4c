/* nccl.c - defines the wrappers of nccl.def.
 *
 * The number of a communicator's group is a hash that all of its ranks compute alike, without asking each other: of the
 * unique id; of a split from its parent's hash, the number of the split and the color; of a shrunk one from its parent's
 * hash, the number of the shrink and the ranks left out. A grown communicator has none, because its old ranks do not
 * know the id that its new ranks are given.
 */
#include "nccl/nccl_compat.h"

#include <unistd.h>

#include "base/sys.h"
#include "nccl/nccl_calls.h"
#include "nccl/nccl.h"

/* Only addresses are needed: each declaration has a C name of its own, so that no prototype is required. */
#define LIBRARY(name, soname)
#define HOOK(class, ret, symbol, params, args, names, values) extern const char address_of_##symbol[] __asm__(#symbol);
#define HOOK_CUSTOM(class, ret, symbol, params, names) extern const char address_of_##symbol[] __asm__(#symbol);
#include "nccl/nccl.def"
#undef HOOK
#undef HOOK_CUSTOM

#define PLACE(symbol) [TFI_HOOK_##symbol - TFI_LIBRARY_nccl] = (void *)address_of_##symbol,
#define HOOK(class, ret, symbol, params, args, names, values) PLACE(symbol)
#define HOOK_CUSTOM(class, ret, symbol, params, names) PLACE(symbol)
static void *const wrappers[] = {
#include "nccl/nccl.def"
};
#undef HOOK
#undef HOOK_CUSTOM

void *tfi_nccl_wrapper(enum tfi_hook hook)
{
    return wrappers[hook - TFI_LIBRARY_nccl];
}

/* A row's class chooses its wrapper. */
#define WRAP_COLLECTIVE(...) TFI_NCCL_COLLECTIVE(__VA_ARGS__)
#define WRAP_PEER(...) TFI_NCCL_COLLECTIVE(__VA_ARGS__)
#define WRAP_REMOTE(...) TFI_NCCL_CALL(__VA_ARGS__)
#define WRAP_COMMUNICATOR(...) TFI_NCCL_CALL(__VA_ARGS__)
#define WRAP_SHARE(...) TFI_NCCL_CALL(__VA_ARGS__)
#define WRAP_ALLOC(...) TFI_NCCL_CALL(__VA_ARGS__)
#define WRAP_FREE(...) TFI_NCCL_CALL(__VA_ARGS__)
#define HOOK(class, ret, symbol, params, args, names, values) WRAP_##class(ret, symbol, params, args, values)
#define HOOK_CUSTOM(class, ret, symbol, params, names) TFI_EXPORT ret symbol params;
#include "nccl/nccl.def"
#undef HOOK
#undef HOOK_CUSTOM
#undef LIBRARY

/* One call of a function below. */
struct step {
    struct tfi_call call;
    bool noted, recorded;
};

#define CALLER __builtin_return_address(0)

static void begin_step(struct step *s, enum tfi_hook hook, const void *caller)
{
    s->noted = tfi_nccl_noted(hook, caller);
    s->recorded = s->noted && tfi_nccl_begin(&s->call, hook);
}

static uint64_t hash_of(uint64_t hash, uint64_t value)
{
    return tfi_communicator_hash(hash, &value, sizeof value);
}

/* ---- groups ---- */

ncclResult_t ncclGroupStart(void)
{
    struct step s;
    ncclResult_t (*real)(void) = tfi_real(TFI_HOOK_ncclGroupStart);
    if (!real) return TFI_NCCL_MISSING;
    begin_step(&s, TFI_HOOK_ncclGroupStart, CALLER);
    ncclResult_t result = real();
    if (s.recorded) tfi_call_leave(&s.call, result, NULL, 0);
    if (s.noted && result == ncclSuccess) tfi_nccl_group_began();
    return result;
}

ncclResult_t ncclGroupEnd(void)
{
    struct step s;
    ncclResult_t (*real)(void) = tfi_real(TFI_HOOK_ncclGroupEnd);
    if (!real) return TFI_NCCL_MISSING;
    begin_step(&s, TFI_HOOK_ncclGroupEnd, CALLER);
    ncclResult_t result = real();
    if (s.noted) tfi_nccl_group_ended();
    if (s.noted && result != ncclInProgress) tfi_communicator_arrived(0, result == ncclSuccess);
    if (s.recorded) tfi_call_leave(&s.call, result, NULL, 0);
    return result;
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
    struct step s;
    ncclResult_t (*real)(ncclSimInfo_t *) = tfi_real(TFI_HOOK_ncclGroupSimulateEnd);
    if (!real) return TFI_NCCL_MISSING;
    begin_step(&s, TFI_HOOK_ncclGroupSimulateEnd, CALLER);
    ncclResult_t result = real(simInfo);
    if (s.noted) tfi_nccl_group_ended();
    if (s.recorded) tfi_call_leave(&s.call, result, NULL, 0);
    return result;
}

/* ---- communicators from a unique id ---- */

static void made(const struct step *s, ncclResult_t result, const ncclComm_t *comm, uint64_t hash, int rank, int ranks)
{
    uint64_t handle = tfi_nccl_done(result) && comm ? TFI_U(*comm) : 0;
    if (s->noted && handle) tfi_communicator_add(handle, hash, rank, (uint32_t)ranks);
    if (s->recorded) tfi_call_leave(&s->call, result, TFI_VALUES(handle, hash, TFI_U(rank), TFI_U(ranks)), 4);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    struct step s;
    ncclResult_t (*real)(ncclComm_t *, int, ncclUniqueId, int) = tfi_real(TFI_HOOK_ncclCommInitRank);
    if (!real) return TFI_NCCL_MISSING;
    begin_step(&s, TFI_HOOK_ncclCommInitRank, CALLER);
    ncclResult_t result = real(comm, nranks, commId, rank);
    made(&s, result, comm, tfi_communicator_hash(TFI_HASH_START, &commId, sizeof commId), rank, nranks);
    return result;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config)
{
    struct step s;
    ncclResult_t (*real)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *) =
        tfi_real(TFI_HOOK_ncclCommInitRankConfig);
    if (!real) return TFI_NCCL_MISSING;
    begin_step(&s, TFI_HOOK_ncclCommInitRankConfig, CALLER);
    ncclResult_t result = real(comm, nranks, commId, rank, config);
    made(&s, result, comm, tfi_communicator_hash(TFI_HASH_START, &commId, sizeof commId), rank, nranks);
    return result;
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds,
                                      ncclConfig_t *config)
{
    struct step s;
    ncclResult_t (*real)(ncclComm_t *, int, int, int, ncclUniqueId *, ncclConfig_t *) =
        tfi_real(TFI_HOOK_ncclCommInitRankScalable);
    if (!real) return TFI_NCCL_MISSING;
    begin_step(&s, TFI_HOOK_ncclCommInitRankScalable, CALLER);
    ncclResult_t result = real(newcomm, nranks, myrank, nId, commIds, config);
    bool valid = s.noted && tfi_nccl_done(result) && commIds && nId > 0;
    uint64_t hash = valid ? tfi_communicator_hash(TFI_HASH_START, commIds, (size_t)nId * sizeof *commIds) : 0;
    made(&s, result, newcomm, hash, myrank, nranks);
    return result;
}

/* All ranks are in this process: any number that no other process has will do. */
ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    static uint64_t groups;
    struct step s;
    ncclResult_t (*real)(ncclComm_t *, int, const int *) = tfi_real(TFI_HOOK_ncclCommInitAll);
    if (!real) return TFI_NCCL_MISSING;
    begin_step(&s, TFI_HOOK_ncclCommInitAll, CALLER);
    ncclResult_t result = real(comm, ndev, devlist);
    uint64_t hash = hash_of(hash_of(TFI_HASH_START, (uint64_t)tfi_getpid()), tfi_realtime_ns());
    hash = hash_of(hash, __atomic_add_fetch(&groups, 1, __ATOMIC_RELAXED));
    bool valid = tfi_nccl_done(result) && comm;
    for (int i = 0; s.noted && valid && i < ndev; i++) tfi_communicator_add(TFI_U(comm[i]), hash, i, (uint32_t)ndev);
    uint64_t first = valid && ndev > 0 ? TFI_U(comm[0]) : 0;
    if (s.recorded) tfi_call_leave(&s.call, result, TFI_VALUES(first, hash, TFI_U(-1), TFI_U(ndev)), 4);
    return result;
}

/* ---- communicators from others ---- */

/* Adds a child, or awaits it; returns its handle, 0 if it has none yet. */
static uint64_t add_child(ncclResult_t result, ncclComm_t *newcomm, uint64_t hash, ncclComm_t parent)
{
    if (!tfi_nccl_done(result) || !newcomm) return 0;
    if (!*newcomm) {
        tfi_communicator_await((void *const *)newcomm, hash, TFI_U(parent));
        return 0;
    }
    struct tfi_communicator *c = tfi_communicator_add(TFI_U(*newcomm), hash, -1, 0);
    if (c && result == ncclSuccess) tfi_nccl_learn(c);
    return TFI_U(*newcomm);
}

static int64_t rank_in(uint64_t handle)
{
    const struct tfi_communicator *c = tfi_communicator_find(handle);
    return c ? c->rank : -1;
}

static uint64_t ranks_in(uint64_t handle)
{
    const struct tfi_communicator *c = tfi_communicator_find(handle);
    return c ? c->ranks : 0;
}

/* The hash of a child; `what` tells splits from shrinks, `number` counts them in the parent. A refused one does
 * not count: NCCL does not number it either. */
static uint64_t child_of(const struct tfi_communicator *parent, uint64_t what, uint64_t number, uint64_t which)
{
    return parent && parent->hash ? hash_of(hash_of(hash_of(parent->hash, what), number), which) : 0;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
    struct step s;
    ncclResult_t (*real)(ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *) = tfi_real(TFI_HOOK_ncclCommSplit);
    if (!real) return TFI_NCCL_MISSING;
    begin_step(&s, TFI_HOOK_ncclCommSplit, CALLER);
    struct tfi_communicator *parent = s.noted ? tfi_communicator_find(TFI_U(comm)) : NULL;
    uint32_t number = parent ? __atomic_fetch_add(&parent->splits, 1, __ATOMIC_RELAXED) : 0;
    bool member = color != NCCL_SPLIT_NOCOLOR;
    uint64_t of = parent ? parent->hash : 0, hash = member ? child_of(parent, 's', number, (uint64_t)color) : 0;
    ncclResult_t result = real(comm, color, key, newcomm, config);
    if (parent && !tfi_nccl_done(result)) __atomic_fetch_sub(&parent->splits, 1, __ATOMIC_RELAXED);
    uint64_t handle = s.noted && member ? add_child(result, newcomm, hash, comm) : 0;
    if (s.recorded)
        tfi_call_leave(&s.call, result,
                       TFI_VALUES(handle, hash, TFI_U(rank_in(handle)), ranks_in(handle), of, TFI_U(color), TFI_U(key)),
                       7);
    return result;
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
                            ncclConfig_t *config, int shrinkFlags)
{
    struct step s;
    ncclResult_t (*real)(ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int) = tfi_real(TFI_HOOK_ncclCommShrink);
    if (!real) return TFI_NCCL_MISSING;
    begin_step(&s, TFI_HOOK_ncclCommShrink, CALLER);
    struct tfi_communicator *parent = s.noted ? tfi_communicator_find(TFI_U(comm)) : NULL;
    uint32_t number = parent ? __atomic_fetch_add(&parent->shrinks, 1, __ATOMIC_RELAXED) : 0;
    uint64_t of = parent ? parent->hash : 0, excluded = 0; /* a sum: the list may have any order */
    for (int i = 0; parent && excludeRanksList && i < excludeRanksCount; i++)
        excluded += hash_of(TFI_HASH_START, (uint64_t)excludeRanksList[i]);
    uint64_t hash = child_of(parent, 'x', number, excluded);
    ncclResult_t result = real(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
    if (parent && !tfi_nccl_done(result)) __atomic_fetch_sub(&parent->shrinks, 1, __ATOMIC_RELAXED);
    uint64_t handle = s.noted ? add_child(result, newcomm, hash, comm) : 0;
    if (s.recorded)
        tfi_call_leave(&s.call, result,
                       TFI_VALUES(handle, hash, TFI_U(rank_in(handle)), ranks_in(handle), of, TFI_U(excludeRanksCount),
                                  TFI_U(shrinkFlags)),
                       7);
    return result;
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm,
                          ncclConfig_t *config)
{
    struct step s;
    ncclResult_t (*real)(ncclComm_t, int, const ncclUniqueId *, int, ncclComm_t *, ncclConfig_t *) =
        tfi_real(TFI_HOOK_ncclCommGrow);
    if (!real) return TFI_NCCL_MISSING;
    begin_step(&s, TFI_HOOK_ncclCommGrow, CALLER);
    uint64_t of = s.noted ? tfi_nccl_group(TFI_U(comm)) : 0;
    ncclResult_t result = real(comm, nRanks, uniqueId, rank, newcomm, config);
    uint64_t handle = s.noted ? add_child(result, newcomm, 0, comm) : 0;
    if (s.recorded)
        tfi_call_leave(&s.call, result, TFI_VALUES(handle, 0, TFI_U(rank_in(handle)), TFI_U(nRanks), of), 5);
    return result;
}

/* ---- the end of a communicator ---- */

/* Forgets the communicator before the real call: its handle may be given out again at once. */
static inline ncclResult_t end(enum tfi_hook hook, ncclComm_t comm, const void *caller)
{
    struct step s;
    ncclResult_t (*real)(ncclComm_t) = tfi_real(hook);
    if (!real) return TFI_NCCL_MISSING;
    begin_step(&s, hook, caller);
    uint64_t hash = s.noted ? tfi_nccl_group(TFI_U(comm)) : 0;
    if (s.noted) tfi_communicator_remove(TFI_U(comm));
    ncclResult_t result = real(comm);
    if (s.recorded) tfi_call_leave(&s.call, result, TFI_VALUES(TFI_U(comm), hash), 2);
    return result;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return end(TFI_HOOK_ncclCommAbort, comm, CALLER);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return end(TFI_HOOK_ncclCommDestroy, comm, CALLER);
}

/* A program that does not block learns by this call that a communicator is ready. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    struct step s;
    ncclResult_t (*real)(ncclComm_t, ncclResult_t *) = tfi_real(TFI_HOOK_ncclCommGetAsyncError);
    if (!real) return TFI_NCCL_MISSING;
    begin_step(&s, TFI_HOOK_ncclCommGetAsyncError, CALLER);
    ncclResult_t result = real(comm, asyncError), state = result == 0 && asyncError ? *asyncError : ncclInProgress;
    if (s.noted && state != ncclInProgress) tfi_communicator_arrived(TFI_U(comm), state == ncclSuccess);
    if (s.recorded) tfi_call_leave(&s.call, result, TFI_VALUES(tfi_nccl_group(TFI_U(comm)), TFI_U(state)), 2);
    return result;
}
