/* memory.h - what a framework's allocators hold, by device, and what that was during each open stage. */
#ifndef TFI_MEMORY_H
#define TFI_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct tfi_thread;
struct tfi_open;
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

/* An allocator has given out a block, or (bytes < 0) got it back; `allocated` and `reserved` are its totals afterwards.
 * Called under the allocator's own lock: takes none itself but at a device's first report. Any thread. */
void tfi_memory_report(int32_t device, int64_t bytes, uint64_t allocated, uint64_t reserved);

/* A stage was opened. Costs one load while no allocator has reported anything; so do the next two. */
void tfi_memory_stage_begin(uint64_t id);

/* A stage ends, in whichever thread: writes a stage_memory record for each device that has reported anything, and brings
 * `sum`, that of all calls of the stage, up to date: values at the last exit, highest peaks, of the device that used
 * most, or of the host where there is no other. */
void tfi_memory_stage_end(struct tfi_thread *thread, const struct tfi_open *open, uint64_t now, struct tfi_memory *sum);

/* A stage is gone without an end: its thread has ended. */
void tfi_memory_stage_forget(uint64_t id);

/* A stage that is still open, as it is now, of the device that matters as above; `start` is when it was opened. False if
 * nothing was reported since the process woke. */
bool tfi_memory_of(uint64_t id, uint64_t start, struct tfi_memory *memory);

/* Adds `, "memory": {...}` with TeleFuser's keys, in MiB, to a JSON text; nothing if nothing is known. */
void tfi_memory_text(struct tfi_text *text, const struct tfi_memory *memory);

/* Forgets everything of a parent process, at wake. */
void tfi_memory_restart(void);

#endif
