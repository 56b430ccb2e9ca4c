/* segments.h - the segments that a caching allocator holds from the device, followed from report to report. */
#ifndef TFA_SEGMENTS_H
#define TFA_SEGMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEGMENT_GRAIN (2ull << 20) /* size of torch's segments for small blocks; those for large blocks are multiples */
#define SEGMENTS_LIMIT (1ull << 60) /* addresses and sizes above it are invalid */

/* The origin of a segment. Above SEGMENT_MAPPED stands the number of the reserved addresses. */
enum {
    SEGMENT_GUESSED, /* reconstructed from reports */
    SEGMENT_WHOLE,   /* the call that gave it was recorded */
    SEGMENT_MAPPED   /* it is a piece of an expandable one, whose pieces lie side by side */
};

struct segment {
    uint64_t address, size;
    uint64_t stream; /* of the blocks in it */
    uint32_t live;   /* number of blocks in use */
    uint32_t area;   /* SEGMENT_* */
    bool is_made_up; /* its address is unknown */
};

/* Segments sorted by address. `tell` is called for every change, before the report that shows it, with torch's name
 * of the change, the address, the size and the stream. */
struct segments {
    struct segment *segment;
    size_t count, capacity;
    uint64_t total;  /* sum of all sizes */
    uint64_t beyond; /* no block lies at this address or above */
    void (*tell)(void *context, const char *action, uint64_t address, uint64_t size, uint64_t stream);
    void *context;
};

/* True if a segment whose call was recorded lies at an address. */
bool segments_know(const struct segments *s, uint64_t address);
/* True if the segment ends where the next one begins, and both are pieces of one expandable segment. */
static inline bool segment_goes_on(const struct segment *segment, const struct segment *next)
{
    return segment->area >= SEGMENT_MAPPED && segment->area == next->area &&
           segment->address + segment->size == next->address;
}
/* Returns the size of the segment that torch's allocator requests from the device for a block of `bytes`. */
uint64_t segment_usual_size(uint64_t bytes);
/* The allocator handed out a block of a stream. `reserved` is the allocator's total afterwards, here and below. */
void segments_give(struct segments *s, uint64_t address, uint64_t bytes, uint64_t reserved, uint64_t stream);
/* Lowers the total to `reserved` if it is larger. Call it before applying the change reported with that total. */
void segments_shrink(struct segments *s, uint64_t reserved);
/* A block was freed. The caller reports the new total separately. */
void segments_forget(struct segments *s, uint64_t address, uint64_t bytes);
/* A call gave the allocator a segment, or a piece of one; a call took one back. Neither is told. They return false if a
 * segment that is in use lies there, and if none begins there. */
bool segments_hold(struct segments *s, uint64_t address, uint64_t size, uint32_t area, uint64_t stream);
bool segments_release(struct segments *s, uint64_t address);
/* Sets the total; no block changes. */
void segments_settle(struct segments *s, uint64_t reserved);
/* True if the block ends at or below SEGMENTS_LIMIT. */
static inline bool segments_can_hold(uint64_t address, uint64_t bytes)
{
    return bytes <= SEGMENTS_LIMIT && address <= SEGMENTS_LIMIT - bytes;
}

#endif
