/* telefuser_timing.h - adds to timing.json the members that only TeleFuser's own file has: see telefuser_timing.c. */
#ifndef TFI_TELEFUSER_TIMING_H
#define TFI_TELEFUSER_TIMING_H

#include <stdint.h>

struct tfi_memory;
struct tfi_text;
struct tfi_timing;

/* Counts a call of a stage that took `wall` ticks from entry to exit. Any thread. */
void tfi_request_add(struct tfi_timing *stage, uint64_t wall);

/* Stores the device memory that a profiler of the program's own has read at the end of a stage. */
void tfi_request_snapshot(uint32_t name, const struct tfi_memory *memory);

/* Begins another request of the program: earlier calls no longer count. */
void tfi_request_begin(void);

/* Starts the time of the process's own request. Called at wake. */
void tfi_request_restart(void);

/* Add members to a JSON text: those before "stages" (head), those of one stage, and those behind "stages" (tail). The
 * added text begins with a comma. */
void tfi_request_head(struct tfi_text *text);
void tfi_request_stage(struct tfi_text *text, const struct tfi_timing *stage);
void tfi_request_tail(struct tfi_text *text);

#endif
