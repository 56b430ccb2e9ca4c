/* blocks.h - how many bytes each block of the host has that is in use, by address. */
#ifndef TFI_BLOCKS_H
#define TFI_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* Remembers a block that was given out; replaces what was known of an older one at the same address. False if there is no
 * room: then it is not known. Any thread, no lock; so with the others. */
bool tfi_block_put(uint64_t address, uint64_t bytes);

/* Forgets a block and returns its size; 0 if it is not known. To be called before the address can be given out again. */
uint64_t tfi_block_take(uint64_t address);

/* True if the block is known. */
bool tfi_block_known(uint64_t address);

#endif
