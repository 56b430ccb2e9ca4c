/* allocator_totals.h - keeps the bytes that a framework's allocators hold, by device, and their peaks in each stage. */
#ifndef TFI_ALLOCATOR_TOTALS_H
#define TFI_ALLOCATOR_TOTALS_H

#include <stdbool.h>
#include <stdint.h>

struct tfi_text;

/* Devices are numbered as in the trace: -1 is the host. */
#define TFI_HOST (-1)

/* Bytes of one device in one stage. */
struct tfi_memory {
    int32_t device;
    uint32_t known; /* 0: nothing was reported for it yet */
    uint64_t allocated, reserved;
    uint64_t peak_allocated, peak_reserved; /* since the stage was opened */
};

/* Reports that an allocator gave out a block, or (bytes < 0) got one back. `allocated` and `reserved` are its totals
 * afterwards. May be called under the allocator's own lock, so takes a lock only at a device's first report. Any
 * thread. Returns by how much the reserved total has grown; 0 if that is unknown. */
uint64_t tfi_allocator_totals_report(int32_t device, int64_t bytes, uint64_t allocated, uint64_t reserved);

/* An allocator has given reserved memory back without a report. Called before its next report. */
void tfi_allocator_totals_returned(int32_t device, uint64_t bytes);

/* Memory of an open stage up to now: of the device with the highest peak, or of the host if no device has reported.
 * `start` is when the stage was opened. False if nothing was reported since the process woke. */
bool tfi_allocator_totals_of(uint64_t id, uint64_t start, struct tfi_memory *memory);

/* Adds `, "memory": {...}` with TeleFuser's keys, in MiB, to a JSON text; adds nothing if `memory` is not known. */
void tfi_allocator_totals_text(struct tfi_text *text, const struct tfi_memory *memory);

#endif
