/* segment.h - the segments of torch's allocator in a memory snapshot. */
#ifndef TFA_MEMORY_SEGMENT_H
#define TFA_MEMORY_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

/* A segment of torch's allocator at the end of the recording, by the blocks in it. */
struct memory_segment {
    int64_t device;
    uint64_t address, total, stream;
    uint64_t pool[2];                      /* 0, 0: the default pool */
    uint64_t allocated, active, requested; /* sums; active: also what waits for another stream before it is free */
    uint64_t blocks, largest_free;
    uint32_t stack;
    bool is_small, is_expandable;
};

#endif
