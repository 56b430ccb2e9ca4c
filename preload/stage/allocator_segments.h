/* allocator_segments.h - finds out when a framework's allocator gives reserved memory of a device back, which it reports
 * to nobody. */
#ifndef TFI_ALLOCATOR_SEGMENTS_H
#define TFI_ALLOCATOR_SEGMENTS_H

#include <stdint.h>

/* cuMemMap has mapped a piece. */
void tfi_segment_mapped(uint64_t address, uint64_t bytes);

/* The allocator reported a block and `grown` more reserved bytes than before. */
void tfi_segment_grown(int32_t device, uint64_t block, uint64_t bytes, uint64_t grown);

/* cudaFree (bytes is 0) or cuMemUnmap has taken memory back: lowers the reserved total if it was the allocator's. */
void tfi_segment_returned(uint64_t address, uint64_t bytes);

#endif
