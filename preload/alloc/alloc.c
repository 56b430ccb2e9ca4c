/* alloc.c - libtfinject-alloc.so: stands before malloc and its relatives, and hands large blocks to libtfinject.so.
 *
 * Each function calls the one of the next object that has it, libc's or that of an allocator behind this library. A
 * program whose executable has an allocator of its own never comes here. Without libtfinject.so nothing is handed over.
 *
 * There is no lock and no system call here. The next functions are looked up once, by the constructor or by the first
 * call, which comes from the loader or from a constructor that runs earlier. dlsym may allocate meanwhile: that thread
 * gets memory of this library, which is never used again.
 */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/tfi.h"
#include "hooks/host_blocks.h"

__asm__(".symver dlsym, dlsym@GLIBC_2.2.5"); /* since 2.34 there is another one, which older systems lack */

#pragma weak tfi_host_blocks

/* ROW(symbol, result, parameters...); reallocarray is realloc after a multiplication. */
#define FUNCTIONS(ROW)                                                                                                 \
    ROW(malloc, void *, size_t)                                                                                        \
    ROW(calloc, void *, size_t, size_t)                                                                                \
    ROW(realloc, void *, void *, size_t)                                                                               \
    ROW(free, void, void *)                                                                                            \
    ROW(posix_memalign, int, void **, size_t, size_t)                                                                  \
    ROW(aligned_alloc, void *, size_t, size_t)                                                                         \
    ROW(memalign, void *, size_t, size_t)                                                                              \
    ROW(valloc, void *, size_t)                                                                                        \
    ROW(pvalloc, void *, size_t)

#define MEMBER(symbol, result, ...) result (*symbol)(__VA_ARGS__);
static struct {
    FUNCTIONS(MEMBER)
} next;

static __thread bool is_looking_up;

/* ---- memory for dlsym ---- */

static _Alignas(16) char room[16 << 10];
static size_t room_used;

static TFI_COLD void *room_for(size_t bytes)
{
    size_t rounded = (bytes + 15) & ~(size_t)15;
    size_t at = rounded <= sizeof room ? __atomic_fetch_add(&room_used, rounded, __ATOMIC_RELAXED) : sizeof room;
    if (at <= sizeof room - rounded && rounded <= sizeof room) return room + at;
    errno = ENOMEM;
    return NULL;
}

static inline bool is_of_room(const void *block)
{
    return (uintptr_t)block - (uintptr_t)room < sizeof room;
}

/* Sizes in the room are not kept: what follows the block is copied with it. */
static TFI_COLD void *moved_from_room(const char *block, size_t bytes)
{
    void *to = is_looking_up ? room_for(bytes) : malloc(bytes);
    size_t most = block ? (size_t)(room + sizeof room - block) : 0;
    if (to && block) memcpy(to, block, bytes < most ? bytes : most);
    return to;
}

/* ---- the next functions ---- */

/* False in a call that dlsym makes. */
static TFI_COLD bool look_up(void)
{
    int error = errno;
    if (is_looking_up) return false;
    is_looking_up = true;
#define FIND(symbol, result, ...) next.symbol = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #symbol);
    FUNCTIONS(FIND)
    is_looking_up = false;
    errno = error;
    return true;
}

#define IS_READY(symbol) (TFI_LIKELY(next.symbol != NULL) || look_up())

__attribute__((constructor)) static void load(void)
{
    if (!next.malloc) look_up();
}

/* ---- the blocks ---- */

static inline void *given(void *block, size_t bytes)
{
    if (&tfi_host_blocks && TFI_UNLIKELY(bytes >= tfi_host_blocks.least) && block) tfi_host_blocks.given(block, bytes);
    return block;
}

/* Called before the block is given back. Returns its bytes if it counts. */
static inline size_t taken(const void *block)
{
    bool may_count = &tfi_host_blocks && TFI_UNLIKELY(tfi_host_blocks.marks[tfi_block_mark(block)]);
    return may_count ? tfi_host_blocks.taken(block) : 0;
}

TFI_EXPORT void *malloc(size_t bytes)
{
    return IS_READY(malloc) ? given(next.malloc(bytes), bytes) : room_for(bytes);
}

TFI_EXPORT void *calloc(size_t items, size_t size)
{
    return IS_READY(calloc) ? given(next.calloc(items, size), items * size) : room_for(items * size);
}

TFI_EXPORT void free(void *block)
{
    if (TFI_UNLIKELY(is_of_room(block)) || !IS_READY(free)) return;
    taken(block);
    next.free(block);
}

TFI_EXPORT void *realloc(void *block, size_t bytes)
{
    if (TFI_UNLIKELY(is_of_room(block)) || !IS_READY(realloc)) return moved_from_room(block, bytes);
    size_t had = taken(block);
    void *moved = next.realloc(block, bytes);
    if (!moved && bytes && had) tfi_host_blocks.given(block, had); /* it failed, and the block stays */
    return given(moved, bytes);
}

/* Calls the realloc that the program's calls reach, which may be one of the executable. */
TFI_EXPORT void *reallocarray(void *block, size_t items, size_t size)
{
    size_t bytes;
    if (!__builtin_mul_overflow(items, size, &bytes)) return realloc(block, bytes);
    errno = ENOMEM;
    return NULL;
}

TFI_EXPORT int posix_memalign(void **to, size_t alignment, size_t bytes)
{
    int error = IS_READY(posix_memalign) ? next.posix_memalign(to, alignment, bytes) : ENOMEM;
    if (error == 0) given(*to, bytes);
    return error;
}

TFI_EXPORT void *aligned_alloc(size_t alignment, size_t bytes)
{
    return IS_READY(aligned_alloc) ? given(next.aligned_alloc(alignment, bytes), bytes) : NULL;
}

TFI_EXPORT void *memalign(size_t alignment, size_t bytes)
{
    return IS_READY(memalign) ? given(next.memalign(alignment, bytes), bytes) : NULL;
}

TFI_EXPORT void *valloc(size_t bytes)
{
    return IS_READY(valloc) ? given(next.valloc(bytes), bytes) : NULL;
}

TFI_EXPORT void *pvalloc(size_t bytes)
{
    return IS_READY(pvalloc) ? given(next.pvalloc(bytes), bytes) : NULL;
}
