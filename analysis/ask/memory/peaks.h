/* peaks.h - the most memory that was in use while a stage was open, by stage, allocator and device.
 *
 * Memory counts that was in use when the stage was opened or that other threads allocate meanwhile. The sums of bytes
 * allocated and freed are those of all threads too. Of torch's allocators these are the figures that the library took
 * while it recorded (the record stage_memory), which include blocks without records; else they come from the blocks.
 */
#ifndef TFA_MEMORY_PEAKS_H
#define TFA_MEMORY_PEAKS_H

#include "ask/choice.h"
#include "ask/memory/changes.h"

struct peak_row {
    uint32_t stage; /* NAME_RUN: the whole run */
    int64_t device;
    uint32_t allocator; /* NAME_NONE: unknown */
    uint8_t kind;       /* BLOCK_NONE: all kinds */
    uint64_t calls;
    uint64_t allocated_peak, reserved_peak; /* TOTAL_UNKNOWN */
    uint64_t allocated, freed;
};

struct peak_rows {
    struct peak_row *row; /* the whole run first, then those with the largest peaks */
    size_t count, capacity;
    struct map of;   /* index by a hash of stage, device, allocator and kind */
    bool is_partial; /* the process has more pools than MOST_POOLS; some were left out */
};

/* `allocator` is the name of torch's allocators in records of blocks. */
void memory_peaks(struct peak_rows *rows, const struct choice *choice, const struct selection *chosen,
                  struct memory_reading *reading, uint32_t allocator);
/* Adds the peaks of each kind of memory of an allocator; the reading is by kind. */
void memory_peaks_of_kinds(struct peak_rows *rows, const struct choice *choice, const struct selection *chosen,
                           struct memory_reading *reading, uint32_t allocator);
void memory_peaks_free(struct peak_rows *rows);

#endif
