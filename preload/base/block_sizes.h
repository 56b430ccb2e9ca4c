/* block_sizes.h - maps the address of each block in use to its size in bytes. Each allocator has its own table. */
#ifndef TFI_BLOCK_SIZES_H
#define TFI_BLOCK_SIZES_H

#include <stdbool.h>
#include <stdint.h>

enum { TFI_BLOCK_LEVELS = 11 };

/* Zeros: an empty table. */
struct tfi_blocks {
    struct tfi_block_group *level[TFI_BLOCK_LEVELS];
    uint32_t levels;
};

/* Stores a block that was given out; replaces an older one at the same address. False if there is no room: the
 * block is then unknown. Any thread, no lock; the same holds for the other functions. */
bool tfi_block_put(struct tfi_blocks *blocks, uint64_t address, uint64_t bytes);

/* Removes a block and returns its size; 0 if it is unknown. Called before the address can be given out again. */
uint64_t tfi_block_take(struct tfi_blocks *blocks, uint64_t address);

/* True if the block is known. */
bool tfi_block_known(const struct tfi_blocks *blocks, uint64_t address);

#endif
