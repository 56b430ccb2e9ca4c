/* holders.h - who holds memory: blocks by the stage that allocated them and their call stack.
 *
 * A block belongs to the innermost stage that was open when it was allocated (attribute.h). It outlives its stage if the
 * call of the stage ended before the block was freed, and is never freed if the trace ends before that. An address that
 * was given out again was freed, even if the record of that is missing.
 */
#ifndef TFA_MEMORY_HOLDERS_H
#define TFA_MEMORY_HOLDERS_H

#include "ask/choice.h"
#include "ask/memory/changes.h"

struct holder {
    uint32_t stage, stack; /* names; stack NAME_NONE: none was recorded */
    uint32_t pool;
    uint64_t blocks, bytes; /* the blocks in use; where leaks are asked for, all that were allocated */
    uint64_t outliving_blocks, outliving_bytes; /* 0 outside of all stages, which never ends */
    uint64_t unfreed_blocks, unfreed_bytes;
};

struct holders {
    struct holder *holder;
    size_t count, capacity;
    struct map of; /* index by a hash of stage, stack and pool */
};

/* Collects the chosen allocations of a walk that has just begun: those with a block that outlives its stage or is never
 * freed, the most unfreed bytes first. `choice` has an attribution. */
void memory_leaks(struct holders *leaks, const struct choice *choice, struct memory_walk *changes);

/* A request for memory that was refused, and who held the allocator's memory on that device then. */
struct refusal {
    size_t request; /* index in process->ooms */
    int64_t device;
    uint64_t in_use;       /* as the allocator said, or the sum of what its calls allocated */
    uint64_t known;        /* bytes in blocks of all stages: less than in_use if blocks are older than the recording */
    struct holder *holder; /* of chosen stages, those with the most bytes first */
    size_t holders;
};

enum { MOST_REFUSALS = 16 }; /* a loop that tries again and again refuses any number of requests: the last ones count */
struct refusals {
    struct refusal refusal[MOST_REFUSALS]; /* in order of time */
    size_t count;
    uint64_t all; /* chosen requests, including those that were left out */
};

/* `changes` is a walk that has just begun; it is not walked beyond the last request. */
void memory_refusals(struct refusals *refusals, const struct choice *choice, struct memory_walk *changes);
void holders_free(struct holders *holders);
void refusals_free(struct refusals *refusals);

#endif
