/* changes.h - every change of the memory in use in a process, one after the other in order of time, with the totals after it.
 *
 * A pool is what one allocator holds on one device. torch's allocators report their own totals. The totals of CUDA's calls
 * are sums since the recording began. A change that frees knows what it frees. Only the blocks in use are held, so a walk
 * over a process whose blocks stay in its file (model/sweep) needs as much memory as that process had blocks at once.
 */
#ifndef TFA_MEMORY_CHANGES_H
#define TFA_MEMORY_CHANGES_H

#include "ask/choice.h"
#include "ask/memory/physical.h"
#include "model/sweep/sweep.h"

/* The process whose blocks are asked for, and how to read them. */
struct memory_reading {
    const struct process *process;
    struct names *names;
    bool by_kind;                      /* each kind of memory that calls of CUDA give has a pool of its own */
    bool stacks;                       /* changes have their stacks */
    bool ahead;                        /* a thread of its own reads the file */
    const struct stage_finder *finder; /* NULL: the attribution has the stages of blocks, or they are not asked for */
};

struct memory_pool {
    int64_t device;     /* DEVICE_HOST, DEVICE_OTHER: unknown, or its number */
    uint32_t allocator; /* NAME_NONE: unknown */
    bool is_summed;     /* its totals are our own sums */
    uint8_t kind;       /* BLOCK_LIBC; else BLOCK_*, if pools are told apart by kind, else BLOCK_NONE */
    uint64_t in_use;    /* if is_summed */
    struct map live;    /* index in walk->live, by address */
};

/* A block in use. */
struct memory_live {
    int64_t bytes, until; /* until: for the user of a walk */
    uint64_t address, other;
    uint32_t block, pool;
    uint32_t holder; /* for the user of a walk; NO_PLACE at first */
    uint32_t next_free;
    uint8_t kind;
    bool in_stage; /* for the user of a walk */
    bool is_free;  /* this entry of walk->live is none */
};

struct memory_change {
    int64_t time;
    int64_t bytes;                /* negative: freed; 0: of BLOCK_SEGMENT, the totals alone changed */
    uint64_t allocated, reserved; /* of the pool afterwards; TOTAL_UNKNOWN */
    uint64_t address;             /* of the block that is allocated or freed */
    uint32_t block; /* number of the record in file order: the index in process->blocks if they are held */
    uint32_t pool, thread, stack;
    uint32_t live; /* of an allocation: its index in walk->live */
    uint8_t kind;  /* of the block that is allocated or freed */
    bool is_older; /* it began before the recording: the time of the first event stands for its own */
    bool has_gone;
    struct memory_live gone; /* of a free its allocation, of an allocation an earlier one at this address, whose end was
                                not recorded; if has_gone */
};

struct memory_walk {
    struct memory_reading *reading;
    const struct process *process;
    struct memory_pool *pool;
    size_t pools, pool_capacity;
    struct memory_live *live;
    size_t lives, live_capacity;
    uint32_t free; /* first free entry; NO_PLACE */
    struct map number_of_device, pool_of;
    struct memory_pool latest; /* the one that was looked for last */
    uint32_t latest_number;    /* NO_PLACE: none */
    struct physicals physicals;
    uint32_t physical_allocator;  /* NAME_NONE: none was created */
    struct memory_change *change; /* of the last block: what one call unmaps may be several blocks */
    size_t changes, next, capacity;
    uint32_t *order; /* held blocks by time */
    size_t next_block;
    struct sweep *sweep; /* NULL: the blocks are held */
};

void memory_walk_init(struct memory_walk *walk, struct memory_reading *reading);
/* Returns the next change, valid until the next call; NULL at the end. */
const struct memory_change *memory_walk_next(struct memory_walk *walk);
void memory_walk_free(struct memory_walk *walk);

/* True if the blocks are those of torch's allocators, the only ones with known categories. */
static inline bool memory_pool_has_categories(const struct memory_pool *pool)
{
    return !pool->is_summed && pool->kind != BLOCK_LIBC;
}
/* Returns the stage that a change belongs to. */
struct belonging memory_change_at(const struct memory_reading *reading, const struct choice *choice,
                                  const struct memory_change *change);
bool memory_change_chosen(const struct memory_walk *walk, const struct choice *choice,
                          const struct memory_change *change);
/* Returns the device of a refused request: the process's only one where the call does not tell it. */
int64_t memory_request_device(const struct process *process, size_t request);
/* True if a block comes from a call of CUDA: it has no totals. */
static inline bool is_cuda_block(uint32_t allocator, uint64_t allocated)
{
    return allocator != NAME_NONE && allocated == TOTAL_UNKNOWN;
}

#endif
