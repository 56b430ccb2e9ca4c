/* host_blocks.h - maps the address of each host block in use to its size in bytes. */
#ifndef TFI_HOST_BLOCKS_H
#define TFI_HOST_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* Stores a block that was given out; replaces an older one at the same address. False if there is no room: the
 * block is then unknown. Any thread, no lock; the same holds for the other functions. */
bool tfi_block_put(uint64_t address, uint64_t bytes);

/* Removes a block and returns its size; 0 if it is unknown. Called before the address can be given out again. */
uint64_t tfi_block_take(uint64_t address);

/* True if the block is known. */
bool tfi_block_known(uint64_t address);

#endif
