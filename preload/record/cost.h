/* cost.h - measures the recorder's own cost, for the end of the trace. */
#ifndef TFI_COST_H
#define TFI_COST_H

#include <stdint.h>

/* Adds ticks that were spent off the hot path. Any thread. */
void tfi_cost_add(uint64_t ticks);

/* Estimates the cost of a record on the hot path, and clears the added ticks. Called at wake, with the clock chosen. */
void tfi_cost_restart(void);

/* The whole cost in nanoseconds, for `records` records. */
uint64_t tfi_cost_ns(uint64_t records);

#endif
