/* nccl_calls.h - the steps before and after a call of NCCL, and the wrappers of its rows. */
#ifndef TFI_NCCL_CALLS_H
#define TFI_NCCL_CALLS_H

#include "hooks/call_record.h"
#include "nccl/communicators.h"

/* Result of a wrapper that finds no original: ncclSystemError. */
#define TFI_NCCL_MISSING 2

/* Results after which a call's outputs are valid: ncclSuccess and ncclInProgress. */
static inline bool tfi_nccl_done(int result)
{
    return result == 0 || result == 7;
}

/* The parameters of a collective, a send or a receive: a row's values, in its order. */
struct tfi_collective {
    uint64_t count;
    uint32_t type;
    int32_t reduction, peer;
    uint64_t comm, stream;
    uint32_t how; /* enum tfi_collective_how */
};

enum tfi_collective_how { TFI_COUNT_WHOLE, TFI_COUNT_PART, TFI_COUNT_SENT, TFI_COUNT_RECEIVED };

/* A collective in progress. */
struct tfi_collective_call {
    struct tfi_call call; /* its thread is NULL: it is counted, but not recorded */
    struct tfi_communicator *communicator;
    uint64_t hash, sequence, bytes;
    int32_t rank;
    uint32_t ranks, flags;
};

/* True if calls have to be noted, recorded or not: NCCL is among the activities, and the caller is not NCCL itself. */
bool tfi_nccl_noted(enum tfi_hook hook, const void *caller);

/* Begins the record of a call that has to be noted; false: it is not recorded. */
bool tfi_nccl_begin(struct tfi_call *call, enum tfi_hook hook);

/* Runs before the original; false: the wrapper only forwards. `caller` is the wrapper's return address. */
bool tfi_nccl_enter(struct tfi_call *call, enum tfi_hook hook, const void *caller);
bool tfi_collective_enter(struct tfi_collective_call *call, enum tfi_hook hook, const struct tfi_collective *what,
                          const void *caller);

/* Runs after the original. A row without a recorded call, as entered above, is only counted. */
void tfi_collective_leave(const struct tfi_collective_call *call, const struct tfi_collective *what, int result);

/* The group of a communicator, 0 if it is unknown; and bytes of an element, 0 for an unknown type. */
uint64_t tfi_nccl_group(uint64_t comm);
uint64_t tfi_nccl_type_bytes(uint32_t type);

/* The larger sum of two lists with a count for each rank of a communicator; 0 if its size is unknown. */
uint64_t tfi_nccl_larger(uint64_t comm, const size_t *sent, const size_t *received);

/* Asks NCCL for the rank and size of a communicator, if they are unknown. NCCL must have finished making it. */
void tfi_nccl_learn(struct tfi_communicator *communicator);

/* Groups of calls: counts the thread's open ones. */
void tfi_nccl_group_began(void);
void tfi_nccl_group_ended(void);

/* Values of a row; see nccl.def. */
#define NONE (-1)
#define WHOLE TFI_COUNT_WHOLE
#define PART TFI_COUNT_PART
#define SENT TFI_COUNT_SENT
#define RECEIVED TFI_COUNT_RECEIVED
#define GROUP_OF(comm) tfi_nccl_group(TFI_U(comm))
#define STORED(p) (tfi_nccl_done((int)result_) && (p) ? TFI_U(*(p)) : 0)

/* The wrapper of a row that is recorded as a call. */
#define TFI_NCCL_CALL(ret, symbol, params, args, values)                                                               \
    TFI_EXPORT ret symbol params                                                                                       \
    {                                                                                                                  \
        struct tfi_call call_;                                                                                         \
        ret(*real_) params = (ret(*) params)tfi_real(TFI_HOOK_##symbol);                                               \
        if (TFI_UNLIKELY(!real_)) return (ret)TFI_NCCL_MISSING;                                                        \
        if (!tfi_nccl_enter(&call_, TFI_HOOK_##symbol, __builtin_return_address(0))) return real_ args;                \
        ret result_ = real_ args;                                                                                      \
        tfi_call_leave(&call_, (int64_t)result_, TFI_VALUES values, TFI_NR_VALUES values);                             \
        return result_;                                                                                                \
    }

#define TFI_NCCL_WHAT(count, type, reduction, peer, comm, stream, how)                                                 \
    {                                                                                                                  \
        count, (uint32_t)(type), (int32_t)(reduction), (int32_t)(peer), TFI_U(comm), TFI_U(stream), how                \
    }

/* The wrapper of a collective, a send or a receive. */
#define TFI_NCCL_COLLECTIVE(ret, symbol, params, args, values)                                                         \
    TFI_EXPORT ret symbol params                                                                                       \
    {                                                                                                                  \
        struct tfi_collective_call call_;                                                                              \
        ret(*real_) params = (ret(*) params)tfi_real(TFI_HOOK_##symbol);                                               \
        if (TFI_UNLIKELY(!real_)) return (ret)TFI_NCCL_MISSING;                                                        \
        const struct tfi_collective what_ = TFI_NCCL_WHAT values;                                                      \
        if (!tfi_collective_enter(&call_, TFI_HOOK_##symbol, &what_, __builtin_return_address(0))) return real_ args;  \
        ret result_ = real_ args;                                                                                      \
        tfi_collective_leave(&call_, &what_, (int)result_);                                                            \
        return result_;                                                                                                \
    }

#endif
