/* segments.h - what a caching allocator got from the device, followed from report to report. */
#ifndef TFA_SEGMENTS_H
#define TFA_SEGMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEGMENT_GRAIN (2ull << 20) /* torch's segments of small blocks have this size, those of large ones a multiple */
#define SEGMENTS_LIMIT (1ull << 60) /* addresses and sizes above it are no memory */

struct segment {
    uint64_t address, size;
    uint32_t live;   /* blocks in use */
    bool is_made_up; /* nothing is known of its address */
};

/* Sorted by address. `tell` hears of every change, before the report that shows it: torch's name of it, address, size. */
struct segments {
    struct segment *segment;
    size_t count, capacity;
    uint64_t total;  /* of all sizes */
    uint64_t beyond; /* no block lies there or above */
    void (*tell)(void *context, const char *action, uint64_t address, uint64_t size);
    void *context;
};

/* Returns the size torch's allocator asks the device for to give out such a block. */
uint64_t segment_usual_size(uint64_t bytes);
/* A block was given out; `reserved` is the allocator's total afterwards, as in all of these. */
void segments_give(struct segments *s, uint64_t address, uint64_t bytes, uint64_t reserved);
/* The total may be lower now, before what is reported with it happened. */
void segments_shrink(struct segments *s, uint64_t reserved);
/* A block is gone; the total follows. */
void segments_forget(struct segments *s, uint64_t address);
/* The total is known, and no block changes. */
void segments_settle(struct segments *s, uint64_t reserved);
/* Blocks end before it. */
static inline bool segments_can_hold(uint64_t address, uint64_t bytes)
{
    return bytes <= SEGMENTS_LIMIT && address <= SEGMENTS_LIMIT - bytes;
}

#endif
