/* ring.h - keeps the trace of TFI_MODE=flight within a size: the last seconds, and those before the moments of moments.c. */
#ifndef TFI_RING_H
#define TFI_RING_H

#include <stdint.h>

#include "record/background.h"

/* Begins to keep the trace within `mb` megabytes of disk, and in it `seconds` if they fit; what is known of the whole run
 * is written every `period` seconds. Called at wake, after the writer has begun. */
void tfi_ring_begin(uint64_t mb, uint64_t seconds, uint64_t period);

/* The background thread's job: rewrites the trace without its old parts, and writes what is known of the whole run. */
extern const struct tfi_job tfi_ring_job;

/* Forgets the ring of a parent process, or of an earlier trace. */
void tfi_ring_restart(void);

#endif
