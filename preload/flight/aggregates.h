/* aggregates.h - sums over the whole run of TFI_MODE=flight: by stage, kernel, collective and sampled line. */
#ifndef TFI_AGGREGATES_H
#define TFI_AGGREGATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most bytes of tfi_aggregates_write(). */
#define TFI_AGGREGATES_BYTES (1u << 20)

/* Makes the tables, empty, for a trace of `mb` megabytes; without memory there are none. Called at wake. */
void tfi_aggregates_begin(uint64_t mb);

/* Forgets those of a parent process, or of an earlier trace. */
void tfi_aggregates_restart(void);

/* Counts a call of a stage. `again`: it ran inside another call of the same stage. Returns the usual duration if this one
 * is slow by the rule in aggregates.c, else 0. Any thread, any time: takes no lock. */
uint64_t tfi_aggregate_stage(uint32_t name, uint64_t ticks, bool again);

/* Counts the kernels, collectives and samples among the rows of a chunk. Under the writer's lock. */
void tfi_aggregates_note(const void *rows, size_t bytes);

/* Finds out anew what is usual for each stage that was called since. The background thread's. */
void tfi_aggregates_judge(void);

/* Writes all of them as rows of the moment `now` into `to`, which has TFI_AGGREGATES_BYTES. Returns the bytes; `count` gets
 * the number of rows. Under the writer's lock. */
size_t tfi_aggregates_write(uint8_t *to, uint64_t now, uint32_t *count);

/* Grows with each value that is counted. */
uint64_t tfi_aggregates_values(void);

#endif
