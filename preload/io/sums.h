/* sums.h - adds up calls by function, file and interval instead of recording each one (TFI_IO_AGGREGATE_MS). */
#ifndef TFI_IO_SUMS_H
#define TFI_IO_SUMS_H

#include "hooks/call_record.h"

/* A finished call. */
struct tfi_sum {
    const struct tfi_call *call;
    uint64_t duration, requested, moved;
    uint32_t path;
    bool failed;
};

/* Adds a call to its sum; false if there is no memory for sums. The thread's guard is set. */
bool tfi_sum_add(struct tfi_thread *thread, const struct tfi_sum *sum);

/* Writes the sums of all threads at the end of a trace, when no thread is in the recorder any more. */
void tfi_sums_finish(void);

void tfi_sums_constructor(void);

#endif
