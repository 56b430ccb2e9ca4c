/* stage.h - opens and ends named ranges and marks, selects stages and times them.
 *
 * Callers (nvtx.c, user_api.c, python/builtins.c) look like this:
 *
 *     struct tfi_thread *t = tfi_enter(TFI_WHY_STAGE);
 *     if (!t) return ...;                         // asleep, off, or re-entered: only forward
 *     struct tfi_range range = {.name = tfi_string(text, length), .flags = TFI_RANGE_STAGE | TFI_RANGE_NVTX};
 *     int depth = tfi_stage_push(t, &range);
 *     tfi_leave(t);
 */
#ifndef TFI_STAGE_H
#define TFI_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tfi_thread;
struct tfi_text;

struct tfi_range {
    uint32_t name;   /* string numbers, from tfi_string() */
    uint32_t domain; /* 0 for the default domain */
    uint32_t flags;  /* enum tfi_range_flag; NESTED is set by push */
    uint32_t category;
    uint32_t color;
    uint32_t payload_type;
    uint64_t payload;
    uint32_t shapes, types, concrete, strides; /* of its inputs; 0 if it has none */
    uint32_t modules;                          /* of TorchScript, around it; 0: none */
};

/* Opens a nested range; returns how many ranges of its domain were open in this thread before. */
int tfi_stage_push(struct tfi_thread *thread, const struct tfi_range *range);

/* Closes the innermost nested range of a domain; returns how many of the domain are still open, -1 if none was. */
int tfi_stage_pop(struct tfi_thread *thread, uint32_t domain);

/* Opens a range that any thread may end, in any order; returns its id, never 0. */
uint64_t tfi_stage_start(struct tfi_thread *thread, const struct tfi_range *range);

/* True if a stage with these flags waits for the device before its end. */
bool tfi_stage_waits(uint32_t flags);

/* Records a range that is over, from its two times; returns its id. The range was never open, so it selects nothing.
 * Times before the trace or behind it are cut to the trace. */
uint64_t tfi_stage_past(struct tfi_thread *thread, const struct tfi_range *range, uint64_t start, uint64_t end);

/* Ends a started range; an id that is not open is counted. */
void tfi_stage_end(struct tfi_thread *thread, uint64_t id);

/* Takes an open started range off its thread, because its coroutine or generator is suspended. Launches until the
 * resume do not belong to it, and that time does not count as run. */
void tfi_stage_pause(struct tfi_thread *thread, uint64_t id);

/* Puts a paused range back, as the innermost one of the calling thread. */
void tfi_stage_resume(struct tfi_thread *thread, uint64_t id);

/* Lists the ids of the started ranges of these origins (TFI_RANGE_*) that are open on this thread, outermost first, at
 * most `room`; returns how many. */
unsigned tfi_stage_list(struct tfi_thread *thread, uint32_t origins, uint64_t *ids, unsigned room);

/* The name of an open started range, 0 if it is not open. */
uint32_t tfi_stage_name(uint64_t id);

void tfi_stage_mark(struct tfi_thread *thread, const struct tfi_range *mark);

/* True if threads without stages are recorded in detail: exactly one thread has stages, and it is selected. */
bool tfi_stage_detail_elsewhere(void);

/* Removes from the calling thread's stack the started ranges that other threads have ended or paused. */
void tfi_stage_sweep(struct tfi_thread *thread);

/* The time when a started range was opened, in ticks; 0 if it is not open any more. */
uint64_t tfi_stage_started(uint64_t id);

/* Prepares the tables; false if there is no memory. Called at wake. */
bool tfi_stage_init(void);

#endif
