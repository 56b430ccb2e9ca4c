/* failed_calls.h - has the seconds before an error of CUDA or NCCL kept. */
#ifndef TFI_FAILED_CALLS_H
#define TFI_FAILED_CALLS_H

#include <stdint.h>

struct tfi_thread;

/* A call has returned a result other than 0, and its record is written. Called with TFI_MODE=flight; of other libraries'
 * calls it takes no note. */
void tfi_flight_result(struct tfi_thread *thread, uint32_t func, uint64_t start, uint64_t end, int64_t result);

/* Forgets the errors of a parent process, or of an earlier trace. */
void tfi_failed_calls_restart(void);

#endif
