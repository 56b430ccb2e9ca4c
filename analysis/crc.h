/* crc.h - the CRC-32 of gzip, as fast as the processor can. */
#ifndef TFA_CRC_H
#define TFA_CRC_H

#include <stddef.h>
#include <stdint.h>

/* As zlib's crc32: begin with 0. */
uint32_t crc_add(uint32_t crc, const void *bytes, size_t length);

#endif
