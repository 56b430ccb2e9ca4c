/* host_blocks.c - records the blocks that malloc and its relatives give to the program, above a size.
 *
 * libtfinject-alloc.so stands before malloc and hands the blocks over. The size of each one is kept by address, from the
 * start of the process on, also while it is asleep. What this library allocates for itself is not counted. A block is
 * forgotten before it is given back, because from then on another thread may get its address.
 *
 * The caller may be libc or an allocator with locks of its own held, a signal handler, or a child of a fork. So nothing
 * here takes a lock of theirs: a block wakes no process, starts no thread, and has no call stack, because libunwind asks
 * the loader for its objects and Python's frames may be changing.
 */
#include "hooks/host_blocks.h"

#include <errno.h>

#include "base/block_sizes.h"
#include "base/process.h"
#include "control/config.h"
#include "record/enter.h"
#include "record/strings.h"
#include "stage/allocator_totals.h"
#include "stage/recording_state.h"

static void given(const void *block, size_t bytes);
static size_t taken(const void *block);

TFI_EXPORT struct tfi_host_blocks tfi_host_blocks = {.least = SIZE_MAX, .given = given, .taken = taken};

static struct tfi_blocks blocks;
static uint64_t in_use;
static uint32_t string, string_gen; /* of the allocator's name, and the trace's generation */

static TFI_COLD void name_allocator(const struct tfi_thread *t)
{
    __atomic_store_n(&string, tfi_string("malloc", 6), __ATOMIC_RELAXED);
    __atomic_store_n(&string_gen, t->gen, __ATOMIC_RELEASE);
}

static void write_record(struct tfi_thread *t, uint64_t address, int64_t bytes, uint64_t total)
{
    if (TFI_UNLIKELY(__atomic_load_n(&string_gen, __ATOMIC_ACQUIRE) != t->gen)) name_allocator(t);
    TFI_WRITE(t, memory, .allocator = __atomic_load_n(&string, __ATOMIC_RELAXED), .time = tfi_ticks(),
              .address = address, .bytes = bytes, .allocated = total, .device = TFI_HOST);
}

static void report(uint64_t address, int64_t bytes)
{
    uint64_t total = __atomic_add_fetch(&in_use, (uint64_t)bytes, __ATOMIC_RELAXED);
    if (!__atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED)) return;
    struct tfi_thread *t = tfi_enter(TFI_WHY_NONE);
    if (t) {
        if (tfi_call_wanted(t) && tfi_recording(TFI_ACTIVITY_MEM)) write_record(t, address, bytes, total);
        tfi_leave(t);
    }
}

static size_t forget(const void *block)
{
    uint64_t bytes = tfi_block_take(&blocks, (uintptr_t)block);
    if (bytes) __atomic_sub_fetch(&tfi_host_blocks.marks[tfi_block_mark(block)], 1, __ATOMIC_RELAXED);
    return bytes;
}

/* A block that is known already was given by a function of the allocator that called another one of its own by name, or
 * was given back in a way that the other library does not see. */
static void given(const void *block, size_t bytes)
{
    if (tfi_inside) return;
    int error = errno;
    uint64_t had = forget(block);
    if (had && had != bytes) report((uintptr_t)block, -(int64_t)had);
    if (tfi_block_put(&blocks, (uintptr_t)block, bytes)) {
        __atomic_add_fetch(&tfi_host_blocks.marks[tfi_block_mark(block)], 1, __ATOMIC_RELAXED);
        if (had != bytes) report((uintptr_t)block, (int64_t)bytes);
    } else {
        tfi_count_drop(TFI_DROP_BLOCKS, 1);
    }
    errno = error;
}

static size_t taken(const void *block)
{
    if (!block) return 0;
    int error = errno;
    size_t bytes = forget(block);
    if (bytes) report((uintptr_t)block, -(int64_t)bytes);
    errno = error;
    return bytes;
}

void tfi_host_blocks_constructor(void)
{
    if (tfi_config.host_alloc_kb && tfi_config_may_have(TFI_ACTIVITY_MEM))
        tfi_host_blocks.least = tfi_config.host_alloc_kb << 10;
}
