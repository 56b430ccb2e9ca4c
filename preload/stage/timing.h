/* timing.h - sums how long each stage of this process took, and writes timing.json. */
#ifndef TFI_TIMING_H
#define TFI_TIMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stage/allocator_totals.h"

struct tfi_dir;

/* A stage by its name, with the sums of all its calls. stage.c uses `selected` and `step` as caches for the name. */
struct tfi_timing {
    uint32_t name; /* 0: free */
    uint32_t selected;
    uint32_t step;
    uint32_t inputs; /* string number: the arguments of its last described call, as JSON; `outputs`: its result */
    uint64_t calls;
    uint64_t waited; /* of these, calls that waited for the device before their end */
    uint64_t ticks;  /* host time: it ran so long */
    uint64_t wall;
    uint64_t longest;
    uint64_t device;  /* device ns of the work launched in it; known at the end */
    uint64_t last;    /* ticks of its last call, from entry to exit */
    uint32_t request; /* number of the request of that call, see telefuser_timing.c */
    uint32_t outputs;
    uint64_t again;                     /* as `wall`, for calls inside a call of the same stage */
    uint64_t calls_before, wall_before; /* `calls`, and `wall` + `again`, when the current request began */
    struct tfi_memory memory, snapshot;
};

/* Makes the table; false if there is no memory. Called at wake. */
bool tfi_timing_init(void);

/* The entry of a stage, made at its first use; NULL if there are too many different ones. Any thread. */
struct tfi_timing *tfi_timing_of(uint32_t name);

/* Called when ENABLE_PROFILER_NAMES has changed: stages opened from now on are matched again. */
void tfi_timing_forget_selected(void);

/* Stores the description of a stage's arguments (direction 0) or result (1); `text` is a string of JSON. Any thread. */
void tfi_timing_signature(uint32_t name, uint32_t direction, uint32_t text);

/* Counts a call of a stage that has no entry. */
void tfi_timing_left_out(void);

/* Returns how long all stages took from entry to exit, in ticks, and how often they were called, since the program's
 * last request began. The second function begins a request. */
void tfi_timing_of_request(uint64_t *ticks, uint64_t *calls);
void tfi_timing_begin_request(void);

/* True if any stage was opened in this process. */
bool tfi_timing_any(void);

/* Calls `see` with the name of every stage that was opened in this process, until it returns false. A process that
 * never woke has none. */
void tfi_timing_each(bool (*see)(void *context, const char *text, size_t length), void *context);

/* Writes `name`.timing.json beside the trace; false with errno set. */
bool tfi_timing_write(struct tfi_dir *dir, const char *name);

#endif
