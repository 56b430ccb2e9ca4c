/* request.h - what TeleFuser's timing.json would say of this process: see request.c. */
#ifndef TFI_REQUEST_H
#define TFI_REQUEST_H

#include <stdint.h>

struct tfi_memory;
struct tfi_text;
struct tfi_timing;

/* A call of a stage ends, which took so many ticks from entry to exit. Any thread. */
void tfi_request_add(struct tfi_timing *stage, uint64_t wall);

/* A profiler of the program's own has read its device's memory at the end of a stage. */
void tfi_request_snapshot(uint32_t name, const struct tfi_memory *memory);

/* The program begins another request: what went before is left out. */
void tfi_request_begin(void);

/* At wake: sums of a parent process, or of an earlier trace, are forgotten. */
void tfi_request_restart(void);

/* Add to a JSON text: the members before and behind "stages", and those of one stage, which begin with a comma. */
void tfi_request_head(struct tfi_text *text);
void tfi_request_stage(struct tfi_text *text, const struct tfi_timing *stage);
void tfi_request_tail(struct tfi_text *text);

#endif
