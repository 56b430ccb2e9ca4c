/* host_blocks.h - takes the blocks of malloc's family from libtfinject-alloc.so (alloc/alloc.c), above TFI_HOST_ALLOC_KB. */
#ifndef TFI_HOST_BLOCKS_H
#define TFI_HOST_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

enum { TFI_BLOCK_MARKS_BITS = 12 };

/* The other library finds it by its name; all functions may be called in any thread and in a signal handler. */
struct tfi_host_blocks {
    size_t least;                        /* bytes of the smallest block that counts; SIZE_MAX: none does */
    void (*given)(const void *, size_t); /* a block was given to the program; keeps errno */
    size_t (*taken)(const void *);       /* forgets a block before it is given back; its bytes, 0: it did not count */
    uint32_t marks[1 << TFI_BLOCK_MARKS_BITS]; /* blocks in use that count, by tfi_block_mark() of their address */
};

extern struct tfi_host_blocks tfi_host_blocks;

static inline size_t tfi_block_mark(const void *block)
{
    return (uint64_t)(uintptr_t)block * 0x9e3779b97f4a7c15u >> (64 - TFI_BLOCK_MARKS_BITS);
}

/* Called in the constructor. */
void tfi_host_blocks_constructor(void);

#endif
