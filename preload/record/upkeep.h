/* upkeep.h - writes the library's own records: pairs of clocks, and messages. */
#ifndef TFI_UPKEEP_H
#define TFI_UPKEEP_H

#include <stdint.h>

#include "record/clock.h"

struct tfi_thread;

/* Writes clock records of a pair into the thread's chunk. */
void tfi_clock_write(struct tfi_thread *thread, const struct tfi_clock_pair *pair);

/* Writes a pair if one is due: the interval doubles from a millisecond to about a second. Otherwise costs one
 * compare. */
void tfi_clock_tick(struct tfi_thread *thread, uint64_t now);

/* Starts over with frequent pairs. Called at wake. */
void tfi_clock_restart(void);

/* Writes the messages that are kept for the trace. */
void tfi_log_flush(struct tfi_thread *thread);

/* Writes the messages that came too late for a thread's chunk. Called by the thread that closes the trace. */
void tfi_log_end(void);

#endif
