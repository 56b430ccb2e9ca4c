/* slow_stages.h - has the seconds before a slow call of a stage kept. */
#ifndef TFI_SLOW_STAGES_H
#define TFI_SLOW_STAGES_H

#include <stdbool.h>
#include <stdint.h>

struct tfi_thread;

/* A call of a stage has ended in this thread and its record is written. `again`: it ran inside another call of the same
 * stage. Called with TFI_MODE=flight. */
void tfi_flight_stage(struct tfi_thread *thread, uint32_t name, uint64_t start, uint64_t end, bool again);

#endif
