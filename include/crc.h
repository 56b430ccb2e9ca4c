/* crc.h - computes the CRC-32 of gzip and of a trace's blocks, as fast as the processor can. */
#ifndef TFI_CRC_H
#define TFI_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Returns the same as zlib's crc32(crc, data, bytes), about ten times as fast where the processor has carry-less
 * multiplication. The first call passes crc = 0. */
uint32_t tfi_crc(uint32_t crc, const void *data, size_t bytes);

#endif
