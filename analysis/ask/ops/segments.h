/* segments.h - the segments that a caching allocator holds from the device, followed from report to report. */
#ifndef TFA_SEGMENTS_H
#define TFA_SEGMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sets/tallies.h"
#include "base/sets/sorted_list.h"

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
    size_t piece;    /* of a piece of an expandable segment: its number */
    uint32_t live;   /* number of blocks in use; of a piece it is uses[piece] */
    uint32_t area;   /* SEGMENT_* */
    bool is_made_up; /* its address is unknown */
};

/* A place where calls gave a piece of an expandable segment. */
struct extent {
    uint64_t address, size; /* the size is that of the piece which is there now */
};

/* `tell` is called for every change, before the report that shows it, with torch's name of the change, the address, the
 * size and the stream. */
struct segments {
    struct sorted all;     /* struct segment, by address */
    struct sorted empties; /* those without a block in use; see segments.c about pieces */
    struct sorted ends;    /* addresses of pieces after which no other one goes on */
    struct extent *piece;  /* by address */
    size_t pieces;
    size_t moves;        /* number of pieces that may be moved to `empties` */
    struct tallies uses; /* by piece: number of blocks in use; watched if the piece exists and is not in `empties` */
    uint64_t total;      /* sum of all sizes */
    uint64_t spare;      /* sum of the sizes of guessed segments without a block in use */
    uint64_t beyond;     /* no block lies at this address or above */
    void (*tell)(void *context, const char *action, uint64_t address, uint64_t size, uint64_t stream);
    void *context;
};
#define EMPTIES_WORDS 3 /* length of the key of an empty segment */

/* Begins without a segment. `piece` holds the address of every later piece of an expandable segment, in any order; the
 * segments own it from here on. */
void segments_init(struct segments *s, struct extent *piece, size_t pieces);
void segments_free(struct segments *s);
/* Returns the last segment that begins below an address; NULL if there is none. */
const struct segment *segments_below(const struct segments *s, uint64_t address);
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
