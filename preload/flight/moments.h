/* moments.h - chooses the moments of a run whose seconds before TFI_MODE=flight keeps in full. */
#ifndef TFI_MOMENTS_H
#define TFI_MOMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tfi_trace.h"

/* A stretch of the trace's file, from the end of the one before it. */
struct tfi_part {
    uint64_t number; /* counts from 1 */
    uint64_t end;
    uint64_t chunks, records;
    uint64_t first, last; /* ticks: when its first and its last chunk were appended */
    uint64_t serial;      /* of its first chunk */
    uint64_t lowest;      /* serial of its chunks */
    uint32_t moments;     /* that keep it, by bits */
    bool stays;           /* in the file that is being written */
};

/* Parts in their order, and where the first one begins. Of the first `chosen` ones those that do not stay are about to go. */
struct tfi_parts {
    struct tfi_part *part;
    unsigned count, chosen;
    uint64_t start;
};

/* Sets the bytes that all moments may keep, and the ticks before each. Called at wake. */
void tfi_moments_begin(uint64_t bytes, uint64_t ticks);

/* Asks for a moment: `name` is that of the stage, function or trigger, 0: none; it lasted from `start` to `end`, and usually
 * takes `usual` ticks. False if worse ones wait. Any thread, any time: takes no lock. */
bool tfi_moment_ask(enum tfi_moment_cause cause, uint32_t name, uint64_t start, uint64_t end, uint64_t usual);

/* True if a moment was asked for. */
bool tfi_moments_wait(void);

/* Chooses among the moments that were asked for; true if what is kept has changed. Under the writer's lock. */
bool tfi_moments_take(const struct tfi_parts *parts);

/* A chunk with this serial is appended to the last part: it stays if it was open in a moment. Under the writer's lock. */
void tfi_moments_note(const struct tfi_parts *parts, uint64_t serial);

/* Writes the kept moments as rows of the moment `now`: at most TFI_MOMENTS_BYTES. Returns the bytes. */
#define TFI_MOMENTS 8u
#define TFI_MOMENTS_BYTES ((TFI_MOMENTS + 1) * sizeof(struct tfi_rec_kept))
size_t tfi_moments_write(uint8_t *to, uint64_t now, uint32_t *count);

/* Forgets those of a parent process, or of an earlier trace. */
void tfi_moments_restart(void);

#endif
