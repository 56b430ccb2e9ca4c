/* host.c - records the blocks that malloc, mmap and their relatives give to the program, above a size.
 *
 * The functions here take the place of libc's in the objects of the program (patches.c). They forward each call and keep
 * the size of each large block by address, from the start of the process on, also while it is asleep. What this library
 * allocates for itself is not counted. A block is forgotten before it is given back, because from then on another thread
 * may get its address.
 *
 * Not seen: what libc maps for itself (stacks of threads, arenas), memory of allocators that the program brings and that
 * take it from the kernel themselves, and calls by addresses that the program took before it loaded the object.
 */
#include "host/host.h"

#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/block_sizes.h"
#include "base/process.h"
#include "control/config.h"
#include "hooks/dl.h"
#include "host/patches.h"
#include "host/ranges.h"
#include "python/python.h"
#include "record/enter.h"
#include "record/strings.h"
#include "stage/allocator_totals.h"
#include "stage/wanted.h"
#include "stage/watch.h"
#include "torch/torch.h"

enum allocator { HEAP, MAPPINGS, ALLOCATORS };

static const struct {
    const char *name;
    size_t length;
} names[ALLOCATORS] = {[HEAP] = {"malloc", 6}, [MAPPINGS] = {"mmap", 4}};

static size_t least; /* bytes of the smallest block that counts */
static struct tfi_blocks blocks;
static uint64_t in_use[ALLOCATORS];
static uint32_t string[ALLOCATORS], string_gen; /* of the allocators' names, and the trace's generation */

/* ---- records ---- */

static TFI_COLD void name_allocators(const struct tfi_thread *t)
{
    for (unsigned i = 0; i < ALLOCATORS; i++)
        __atomic_store_n(&string[i], tfi_string(names[i].name, names[i].length), __ATOMIC_RELAXED);
    __atomic_store_n(&string_gen, t->gen, __ATOMIC_RELEASE);
}

/* The first block of a program wakes it, as one of torch's does; what Python allocates before torch does not. */
static struct tfi_thread *thread_here(void)
{
    struct tfi_thread *t = tfi_self;
    if (t && t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED)) return t;
    bool wakes = !tfi_held && tfi_config.select == TFI_SELECT_ALL && tfi_recording(TFI_ACTIVITY_MEM) &&
                 (tfi_torch_imported() || !tfi_python_here());
    if (!wakes && !__atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED)) return NULL;
    t = tfi_enter(wakes ? TFI_WHY_CALL : TFI_WHY_NONE);
    if (t) tfi_leave(t);
    return t;
}

static void write_record(struct tfi_thread *t, enum allocator which, uint64_t address, int64_t bytes, uint64_t total)
{
    uint64_t time = tfi_ticks();
    uint32_t stack = tfi_callstack(t);
    if (TFI_UNLIKELY(__atomic_load_n(&string_gen, __ATOMIC_ACQUIRE) != t->gen)) name_allocators(t);
    TFI_WRITE(t, memory, .allocator = __atomic_load_n(&string[which], __ATOMIC_RELAXED), .time = time,
              .address = address, .bytes = bytes, .allocated = total, .device = TFI_HOST, .stack = stack);
}

static void report(enum allocator which, uint64_t address, int64_t bytes)
{
    int error = errno;
    uint64_t total = __atomic_add_fetch(&in_use[which], (uint64_t)bytes, __ATOMIC_RELAXED);
    struct tfi_thread *t = thread_here();
    if (t && tfi_call_wanted(t) && tfi_recording(TFI_ACTIVITY_MEM)) {
        if (tfi_guarded(t)) {
            tfi_count_drop(TFI_DROP_REENTRANT, 1);
        } else {
            tfi_guard_set(t);
            if (t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))
                write_record(t, which, address, bytes, total);
            tfi_guard_clear(t);
        }
    }
    errno = error;
}

/* ---- the heap ---- */

/* A block that is known already was given by a function of libc that called another one of these. */
static TFI_COLD void born(uint64_t address, size_t bytes)
{
    int error = errno;
    uint64_t had = tfi_block_take(&blocks, address);
    if (had == bytes && tfi_block_put(&blocks, address, bytes)) return;
    if (had) report(HEAP, address, -(int64_t)had);
    if (tfi_block_put(&blocks, address, bytes)) report(HEAP, address, (int64_t)bytes);
    else tfi_count_drop(TFI_DROP_BLOCKS, 1);
    errno = error;
}

static inline bool counts(const void *block, size_t bytes)
{
    return TFI_UNLIKELY(bytes >= least) && block && !tfi_inside;
}

/* Forgets a block that is about to be given back; returns its size, 0 if it is none of the large ones. */
static inline uint64_t gone(uint64_t address)
{
    uint64_t bytes = address ? tfi_block_take(&blocks, address) : 0;
    if (TFI_UNLIKELY(bytes != 0)) report(HEAP, address, -(int64_t)bytes);
    return bytes;
}

static void *host_malloc(size_t bytes)
{
    void *block = malloc(bytes);
    if (counts(block, bytes)) born((uintptr_t)block, bytes);
    return block;
}

static void *host_calloc(size_t items, size_t size)
{
    void *block = calloc(items, size);
    if (counts(block, items * size)) born((uintptr_t)block, items * size);
    return block;
}

static void host_free(void *block)
{
    gone((uintptr_t)block);
    free(block);
}

static void *host_realloc(void *block, size_t bytes)
{
    uint64_t old = (uintptr_t)block, had = gone(old);
    void *moved = realloc(block, bytes);
    if (counts(moved, bytes)) born((uintptr_t)moved, bytes);
    else if (!moved && bytes && had) born(old, had);
    return moved;
}

static void *host_reallocarray(void *block, size_t items, size_t size)
{
    size_t bytes;
    if (!__builtin_mul_overflow(items, size, &bytes)) return host_realloc(block, bytes);
    errno = ENOMEM;
    return NULL;
}

static int host_posix_memalign(void **to, size_t alignment, size_t bytes)
{
    int result = posix_memalign(to, alignment, bytes);
    if (result == 0 && counts(*to, bytes)) born((uintptr_t)*to, bytes);
    return result;
}

static void *host_aligned_alloc(size_t alignment, size_t bytes)
{
    void *block = aligned_alloc(alignment, bytes);
    if (counts(block, bytes)) born((uintptr_t)block, bytes);
    return block;
}

static void *host_memalign(size_t alignment, size_t bytes)
{
    void *block = memalign(alignment, bytes);
    if (counts(block, bytes)) born((uintptr_t)block, bytes);
    return block;
}

static void *host_valloc(size_t bytes)
{
    void *block = valloc(bytes);
    if (counts(block, bytes)) born((uintptr_t)block, bytes);
    return block;
}

/* ---- mappings ---- */

static uint64_t whole_pages(uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) & ~(page - 1);
}

static void mapped(uint64_t start, uint64_t end)
{
    if (end - start < least || tfi_inside) return;
    int error = errno;
    if (tfi_mapping_add(start, end)) report(MAPPINGS, start, (int64_t)(end - start));
    else tfi_count_drop(TFI_DROP_BLOCKS, 1);
    errno = error;
}

/* Each rest of a range that is unmapped in part becomes a block of its own. Returns the addresses that were recorded, from
 * the first to the last one; an empty range if none were. */
static struct tfi_mapping unmapped(uint64_t start, uint64_t end)
{
    struct tfi_mapping range, were = {end, end};
    int error = errno;
    while (tfi_mapping_take(start, end, &range)) {
        report(MAPPINGS, range.start, -(int64_t)(range.end - range.start));
        if (were.start == were.end) were = (struct tfi_mapping){range.start > start ? range.start : start, end};
        were.end = range.end < end ? range.end : end;
        if (range.start < start) mapped(range.start, start);
        if (range.end > end) mapped(end, range.end);
    }
    errno = error;
    return were;
}

typedef void *map_function(void *, size_t, int, int, int, off_t);

static void *map(map_function *real, void *start, size_t bytes, int rights, int flags, int fd, off_t at)
{
    uint64_t size = whole_pages(bytes);
    if (flags & MAP_FIXED && bytes) unmapped((uintptr_t)start, (uintptr_t)start + size);
    void *to = real(start, bytes, rights, flags, fd, at);
    if (to != MAP_FAILED) mapped((uintptr_t)to, (uintptr_t)to + size);
    return to;
}

static void *host_mmap(void *start, size_t bytes, int rights, int flags, int fd, off_t at)
{
    return map(mmap, start, bytes, rights, flags, fd, at);
}

static void *host_mmap64(void *start, size_t bytes, int rights, int flags, int fd, off64_t at)
{
    return map(mmap64, start, bytes, rights, flags, fd, at);
}

/* The kernel refuses an odd address and no bytes, and then nothing is unmapped. */
static int host_munmap(void *start, size_t bytes)
{
    uint64_t from = (uintptr_t)start;
    if (bytes && whole_pages(from) == from) unmapped(from, from + whole_pages(bytes));
    return munmap(start, bytes);
}

/* The ranges that the kernel moves away or overwrites are forgotten before the call: another thread may map there as soon
 * as the kernel has moved them. A call that fails has moved nothing, and the mapping counts again. */
static void *host_mremap(void *start, size_t bytes, size_t wanted, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    void *proposed = va_arg(list, void *);
    va_end(list);
    uint64_t from = (uintptr_t)start, at = (uintptr_t)proposed;
    struct tfi_mapping old = {0, 0}, overwritten = {0, 0};
    if (bytes && !(flags & MREMAP_DONTUNMAP)) old = unmapped(from, from + whole_pages(bytes));
    if (flags & MREMAP_FIXED) overwritten = unmapped(at, at + whole_pages(wanted));
    void *to = mremap(start, bytes, wanted, flags, proposed);
    if (to != MAP_FAILED) {
        mapped((uintptr_t)to, (uintptr_t)to + whole_pages(wanted));
    } else {
        mapped(old.start, old.end);
        mapped(overwritten.start, overwritten.end);
    }
    return to;
}

/* ---- calls of libc and of allocators ---- */

/* libc calls malloc, and an allocator mmap, with locks of their own held, which waking and starting a thread take too. */

static void *held_malloc(size_t bytes)
{
    tfi_held++;
    void *block = host_malloc(bytes);
    tfi_held--;
    return block;
}

static void *held_calloc(size_t items, size_t size)
{
    tfi_held++;
    void *block = host_calloc(items, size);
    tfi_held--;
    return block;
}

static void held_free(void *block)
{
    tfi_held++;
    host_free(block);
    tfi_held--;
}

static void *held_realloc(void *block, size_t bytes)
{
    tfi_held++;
    void *moved = host_realloc(block, bytes);
    tfi_held--;
    return moved;
}

static void *held_mmap(void *start, size_t bytes, int rights, int flags, int fd, off_t at)
{
    tfi_held++;
    void *to = host_mmap(start, bytes, rights, flags, fd, at);
    tfi_held--;
    return to;
}

static int held_munmap(void *start, size_t bytes)
{
    tfi_held++;
    int result = host_munmap(start, bytes);
    tfi_held--;
    return result;
}

static void *held_mremap(void *start, size_t bytes, size_t wanted, int flags, void *proposed)
{
    tfi_held++;
    void *to = host_mremap(start, bytes, wanted, flags, proposed);
    tfi_held--;
    return to;
}

/* ---- the constructor ---- */

#define PATCH(symbol)                                                                                                  \
    {                                                                                                                  \
#symbol, (void *)symbol, (void *)host_##symbol                                                                 \
    }

#define HELD(symbol, name)                                                                                             \
    {                                                                                                                  \
#symbol, (void *)symbol, (void *)held_##name                                                                   \
    }

static void patch(void)
{
    static const struct tfi_patch held[] = {
        HELD(malloc, malloc), HELD(calloc, calloc), HELD(free, free),     HELD(realloc, realloc), HELD(mmap, mmap),
        HELD(mmap64, mmap),   HELD(munmap, munmap), HELD(mremap, mremap), PATCH(reallocarray),    PATCH(posix_memalign),
        PATCH(aligned_alloc), PATCH(memalign),      PATCH(valloc)};
    _Static_assert(TFI_COUNT(held) == 13, "as many as patches");
    static const struct tfi_patch patches[] = {
        PATCH(malloc),         PATCH(calloc),        PATCH(free),     PATCH(realloc), PATCH(reallocarray),
        PATCH(posix_memalign), PATCH(aligned_alloc), PATCH(memalign), PATCH(valloc),  PATCH(mmap),
        PATCH(mmap64),         PATCH(munmap),        PATCH(mremap)};
    tfi_patch_objects(patches, held, TFI_COUNT(patches));
}

void tfi_host_constructor(void)
{
    if (!tfi_config.host_alloc_kb || !tfi_config_may_have(TFI_ACTIVITY_MEM)) return;
    least = tfi_config.host_alloc_kb << 10;
    patch();
    tfi_dl_looked_up = patch;
}
