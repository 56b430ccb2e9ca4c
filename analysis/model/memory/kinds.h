/* kinds.h - kinds of memory: those that calls of CUDA give, with the names of their allocators, and the others. */
#ifndef TFA_MEMORY_KINDS_H
#define TFA_MEMORY_KINDS_H

/* Kinds of memory that calls of CUDA give. A call that frees does not tell the kind: BLOCK_DEVICE is any of the first. */
enum {
    BLOCK_NONE, /* torch's allocators */
    BLOCK_DEVICE,
    BLOCK_MANAGED,
    BLOCK_POOL,
    BLOCK_ARRAY,
    BLOCK_PINNED,
    BLOCK_PHYSICAL,
    BLOCK_MAPPED,
    BLOCK_RESERVED,
    BLOCK_REGISTERED,
    BLOCK_LIBC, /* malloc and mmap of the host */
    BLOCK_KINDS,
    BLOCK_RETAINED = BLOCK_KINDS, /* no block: another handle of physical memory */
    BLOCK_SEGMENT /* no block: torch's allocator took memory from the device or gave it back, and its totals changed */
};
#define ALLOCATOR_CUDA "cuda"
#define ALLOCATOR_PHYSICAL "cuda physical memory"
#define ALLOCATOR_MAPPED "cuda mapped memory"
#define ALLOCATOR_RESERVED "cuda reserved addresses"
#define ALLOCATOR_REGISTERED "cuda registered memory"

#endif
