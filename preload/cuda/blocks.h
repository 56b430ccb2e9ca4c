/* blocks.h - tells the device and the size of what a call of CUDA has allocated. */
#ifndef TFI_CUDA_BLOCKS_H
#define TFI_CUDA_BLOCKS_H

#include <stdint.h>

/* Returns the device of a block; for address 0, the calling thread's current device. Returns -2 if the driver does not
 * tell, or is not asked because another client of CUPTI records its calls. Keeps errno. */
int64_t tfi_cuda_device_of(uint64_t address);

/* Bits of an element: from a driver's format with its channels, and from the runtime's sum of bits with its kind. 0 for
 * formats whose elements have no size of their own, such as compressed ones. */
uint64_t tfi_cuda_format_bits(uint64_t format, uint64_t channels);
uint64_t tfi_cuda_channel_bits(uint64_t bits, uint64_t kind);

/* Bytes of the elements of an array with all its levels; 0 if it gets no memory of its own, or if its size is unknown. */
uint64_t tfi_cuda_array_bytes(uint64_t bits, uint64_t width, uint64_t height, uint64_t depth, uint64_t levels,
                              uint64_t flags);

#endif
