/* timing.h - how long each stage of this process took, and the file that says so. */
#ifndef TFI_TIMING_H
#define TFI_TIMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory.h"

struct tfi_dir;

/* A stage by its name, with the sums of all its calls. The two words are stage.c's own notes about the name. */
struct tfi_timing {
    uint32_t name; /* 0: free */
    uint32_t selected;
    uint32_t step;
    uint32_t inputs; /* what its calls were last described with, as JSON: strings' numbers, 0 if nothing */
    uint64_t calls;
    uint64_t ticks; /* that it ran */
    uint64_t wall;
    uint64_t longest;
    uint64_t device;  /* ns of what was launched in it on a device; at the end */
    uint64_t last;    /* ticks of its last call, from entry to exit */
    uint32_t request; /* request.c: the one which that call belongs to */
    uint32_t outputs;
    uint64_t again;                     /* as `wall`, of calls inside a call of the same stage */
    uint64_t calls_before, wall_before; /* the request: calls, and `wall` and `again`, of earlier ones */
    struct tfi_memory memory, snapshot;
};

/* Makes the table at wake; false if there is no memory. */
bool tfi_timing_init(void);

/* The entry of a stage, made at its first use; NULL if there are too many different ones. Any thread. */
struct tfi_timing *tfi_timing_of(uint32_t name);

/* ENABLE_PROFILER_NAMES has changed: stages that are opened from now on are judged anew. */
void tfi_timing_forget_selected(void);

/* A stage was described: its arguments (direction 0) or its result (1); `text` is JSON. Any thread. */
void tfi_timing_signature(uint32_t name, uint32_t direction, uint32_t text);

/* Counts a call of a stage that has no entry. */
void tfi_timing_left_out(void);

/* Tells how long all stages took from entry to exit, in ticks, and how often they were called, since the program's last
 * request began. The second function begins a request. */
void tfi_timing_of_request(uint64_t *ticks, uint64_t *calls);
void tfi_timing_begin_request(void);

/* True if any stage was opened in this process. */
bool tfi_timing_any(void);

/* Calls `see` with the name of every stage that was opened in this process, until it returns false; with none while the
 * process never woke. */
void tfi_timing_each(bool (*see)(void *context, const char *text, size_t length), void *context);

/* Writes `name`.timing.json beside the trace; false with errno set. */
bool tfi_timing_write(struct tfi_dir *dir, const char *name);

/* The path of that file; "" while there is no trace. In tfinject.c. */
void tfi_timing_path(char *path, size_t size);

#endif
