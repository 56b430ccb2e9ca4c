/* assign.h - the category of each block of torch's allocators, by the rules of torch's _memory_profiler.py.
 *
 * It needs the storages that TFI_TENSOR_ADDRESSES records. Memory that no rule names is unknown.
 */
#ifndef TFA_MEMORY_ASSIGN_H
#define TFA_MEMORY_ASSIGN_H

#include "ask/memory/changes.h"

/* In the order of torch, and of memory_categories. */
enum memory_category {
    CATEGORY_PARAMETER,
    CATEGORY_STATE,
    CATEGORY_INPUT,
    CATEGORY_TEMPORARY,
    CATEGORY_ACTIVATION,
    CATEGORY_GRADIENT,
    CATEGORY_DETAIL,
    CATEGORY_UNKNOWN
};

/* An operator wrote into a block, and its bytes have another category from then on. */
struct category_move {
    int64_t time;
    uint32_t block; /* the record of its allocation, else that of its end */
    uint8_t from, to;
};

struct assigned {
    uint8_t *first, *last;      /* by index in process->blocks: of that block when it began and when it ended */
    struct category_move *move; /* by time */
    size_t moves, move_capacity;
};

/* Returns false if no storages were recorded; then there is nothing to free. */
bool assign_categories(struct assigned *assigned, const struct process *process, const struct names *names);
void assigned_free(struct assigned *assigned);

/* The bytes of each category in each pool, over the changes of a process. */
struct assigned_walk {
    const struct assigned *assigned;
    const struct process *process;
    int64_t (*bytes)[MEMORY_CATEGORIES]; /* by pool; the last one is what is in use beyond the others */
    size_t pools, capacity;
    uint32_t *pool_of; /* by block; NO_PLACE: none */
    size_t next;       /* move */
};

void assigned_walk_init(struct assigned_walk *walk, const struct assigned *assigned, struct memory_reading *reading);
/* Takes the next change of a walk. Returns the bytes of its pool; NULL for a pool of CUDA's calls. */
const int64_t *assigned_walk_take(struct assigned_walk *walk, const struct memory_walk *changes,
                                  const struct memory_change *change);
void assigned_walk_free(struct assigned_walk *walk);

#endif
