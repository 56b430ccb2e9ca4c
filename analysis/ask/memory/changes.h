/* changes.h - every change of the memory in use in a process, in order of time, with the totals after it.
 *
 * A pool is what one allocator holds on one device. torch's allocators report their own totals. The totals of CUDA's calls
 * are sums since the recording began. An allocation and what frees it know each other.
 */
#ifndef TFA_MEMORY_CHANGES_H
#define TFA_MEMORY_CHANGES_H

#include "ask/memory/physical.h"
#include "model/model.h"

struct memory_pool {
    int64_t device;     /* DEVICE_HOST, DEVICE_OTHER: unknown, or its number */
    uint32_t allocator; /* NAME_NONE: unknown */
    bool is_summed;     /* its totals are our own sums */
    uint8_t kind;       /* BLOCK_LIBC; else BLOCK_*, if pools are told apart by kind, else BLOCK_NONE */
    uint64_t in_use;    /* while collecting, if is_summed */
    struct map live;    /* while collecting: the change that allocated, by address */
};

struct memory_change {
    int64_t time;
    int64_t bytes;                /* negative: freed; never 0 */
    uint64_t allocated, reserved; /* of the pool afterwards; TOTAL_UNKNOWN */
    uint32_t block;               /* index in process->blocks */
    uint32_t pool;
    uint32_t other; /* of an allocation the change that ended it, of a free its allocation; NO_PLACE: none recorded */
    uint32_t ended; /* of an allocation: an earlier one at this address, whose end was not recorded; NO_PLACE: none */
};

struct memory_changes {
    const struct process *process;
    struct memory_change *change;
    size_t count, capacity;
    struct memory_pool *pool;
    size_t pools, pool_capacity;
    struct map number_of_device, pool_of;
    struct physicals physicals;  /* while collecting */
    uint32_t physical_allocator; /* NAME_NONE: none was created */
    bool by_kind;
    uint64_t older; /* blocks that calls of CUDA freed and that were allocated before the recording */
};

/* `by_kind`: each kind of memory that calls of CUDA give has a pool of its own. */
void memory_changes_init(struct memory_changes *changes, const struct process *process, bool by_kind);
/* True if the blocks are those of torch's allocators, which categories are known of. */
static inline bool memory_pool_has_categories(const struct memory_pool *pool)
{
    return !pool->is_summed && pool->kind != BLOCK_LIBC;
}
/* Returns the block that a change allocates or frees: its index in process->blocks. What one call unmaps may be several
 * blocks. */
uint32_t memory_block(const struct memory_changes *changes, const struct memory_change *change);
void memory_changes_free(struct memory_changes *changes);
/* Returns the device of a block or a refused request: the process's only one where the call does not tell it. */
int64_t memory_device(const struct process *process, const struct blocks *blocks, size_t i);
/* True if a block comes from a call of CUDA: it has no totals. */
static inline bool is_cuda_block(const struct blocks *blocks, size_t i)
{
    return blocks->allocator[i] != NAME_NONE && blocks->allocated[i] == TOTAL_UNKNOWN;
}

#endif
