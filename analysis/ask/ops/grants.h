/* grants.h - the memory that a device granted to a framework's allocator, told by the calls underneath that allocator. */
#ifndef TFA_GRANTS_H
#define TFA_GRANTS_H

#include "model/model.h"

/* A call gave a piece of memory, or took one back. */
struct grant {
    int64_t time;
    uint64_t address, bytes;
    int64_t device;  /* whose allocator gave out blocks of this piece; DEVICE_OTHER: none did */
    uint64_t stream; /* of these blocks */
    uint32_t row;    /* in process->grants */
    uint32_t given;  /* of a piece that is taken back: index of the grant that gave it; else its own index */
    uint32_t area; /* SEGMENT_WHOLE, or SEGMENT_MAPPED and above: the reserved addresses that the piece is mapped to */
    bool is_taken;
};

struct grants {
    struct grant *grant; /* by time */
    size_t count, capacity;
};

/* Finds the grants up to a time. `block` lists the blocks of the framework's allocators, by time. */
void grants_find(struct grants *grants, const struct process *process, const uint32_t *block, size_t blocks,
                 int64_t until);
void grants_free(struct grants *grants);

#endif
