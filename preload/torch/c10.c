/* c10.c - defines the wrappers of c10.def: records the blocks that torch's allocators give out and get back.
 *
 * Host blocks. The host's allocator calls a counter for each block, and that counter reports only while a profiler of
 * the program asks for it. It is called with unchanged arguments and serves that profiler alone, so the profiler sees
 * the same. Sizes and the total are kept here (base/block_sizes.c), from the start of the process on, also while it is
 * asleep; without `mem` all functions only forward. The counter's own reports are already known. Files mapped as
 * tensors have no other report, and their totals mean nothing. Where stages are only timed, blocks of the host are not
 * followed: nearly every operator gets one, and following it costs 7 % of a small operator. A program that selects
 * stages later is followed from then on.
 *
 * A device's reports come under its allocator's lock, some with the interpreter's lock held and some without. Nothing
 * of torch, CUDA or Python is called here, with two exceptions: the current stream is read (streams.c), and for a call
 * stack a Python of unknown layout is asked for its frames by a thread that holds its lock (python/frames.c).
 */
#include "base/block_sizes.h"
#include "base/process.h"
#include "hooks/hooks.h"
#include "python/python.h"
#include "record/enter.h"
#include "record/strings.h"
#include "stage/allocator_segments.h"
#include "stage/allocator_totals.h"
#include "stage/recording_state.h"
#include "stage/watch.h"
#include "torch/torch.h"

enum { DEVICE_TYPE_CPU = 0, DEVICE_TYPE_CUDA = 1 };

void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *block, int64_t bytes, size_t allocated,
                                                           size_t reserved, uint16_t device);
void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t bytes, size_t allocated, size_t reserved,
                                                         uint16_t device);
void _ZN3c1025ProfiledCPUMemoryReporter3NewEPvm(void *reporter, void *block, size_t bytes);
void _ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv(void *reporter, void *block);

typedef void report_function(void *, int64_t, size_t, size_t, uint16_t);
typedef void oom_function(int64_t, size_t, size_t, uint16_t);
typedef void new_function(void *, void *, size_t);
typedef void delete_function(void *, void *);

enum what { BLOCK, CUDA_BLOCK, NO_BLOCK };

static struct tfi_blocks blocks; /* of the host */

/* String number of "c10" in this process's trace, and the trace's generation. */
static uint32_t allocator, allocator_gen;

static TFI_COLD void name_allocator(struct tfi_thread *t)
{
    __atomic_store_n(&allocator, tfi_string("c10", 3), __ATOMIC_RELAXED);
    __atomic_store_n(&allocator_gen, t->gen, __ATOMIC_RELEASE);
}

/* The columns that the records `memory` and `oom` share. */
#define SHARED(from, name, callers)                                                                                    \
    .allocator = (name), .time = (from)->time, .bytes = (from)->bytes, .allocated = (from)->allocated,                 \
    .reserved = (from)->reserved, .device = (from)->device, .stack = (callers)

static void write_record(struct tfi_thread *t, const struct tfi_rec_memory *from, uint64_t stream, enum what what)
{
    uint32_t stack = tfi_callstack(t);
    if (TFI_UNLIKELY(__atomic_load_n(&allocator_gen, __ATOMIC_ACQUIRE) != t->gen)) name_allocator(t);
    uint32_t name = __atomic_load_n(&allocator, __ATOMIC_RELAXED);
    if (TFI_UNLIKELY(what == NO_BLOCK)) TFI_WRITE(t, oom, SHARED(from, name, stack));
    else TFI_WRITE(t, memory, SHARED(from, name, stack), .address = from->address, .stream = stream);
}

/* The first block a program allocates wakes the process; blocks of an import of torch don't. */
static enum tfi_why why(void)
{
    return tfi_torch_imported() || !tfi_python_here() ? TFI_WHY_CALL : TFI_WHY_NONE;
}

/* The calling thread's state; NULL if it cannot have one. */
static struct tfi_thread *thread_here(void)
{
    struct tfi_thread *t = tfi_self;
    if (TFI_LIKELY(t && t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))) return t;
    t = tfi_enter(why());
    if (t) tfi_leave(t);
    return t;
}

static void record(const struct tfi_rec_memory *from, enum what what)
{
    struct tfi_thread *t = thread_here();
    if (!t || !tfi_call_wanted(t) || !tfi_recording(TFI_ACTIVITY_MEM)) return;
    if (tfi_guarded(t)) {
        tfi_count_drop(TFI_DROP_REENTRANT, 1);
        return;
    }
    uint64_t stream = what == CUDA_BLOCK && from->bytes > 0 ? tfi_torch_stream(from->device) : 0;
    tfi_guard_set(t);
    if (TFI_LIKELY(t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))) write_record(t, from, stream, what);
    tfi_guard_clear(t);
}

/* True if the allocators are watched. The first call decides for good. */
static inline bool active(void)
{
    static uint8_t known; /* 1 no, 2 yes */
    uint8_t state = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (TFI_UNLIKELY(!state)) {
        tfi_prepare();
        state = tfi_config_may_have(TFI_ACTIVITY_MEM) ? 2 : 1;
        __atomic_store_n(&known, state, __ATOMIC_RELAXED);
    }
    return state == 2;
}

/* True if blocks of the host are followed. */
static inline bool follows_host(void)
{
    return active() && __atomic_load_n(&tfi_config.select, __ATOMIC_RELAXED) != TFI_SELECT_NOTHING;
}

/* Wakes a sleeping process if it is to be recorded from its first block on; true if it is awake now. */
static TFI_COLD bool wake(void)
{
    if (tfi_config.select != TFI_SELECT_ALL || !tfi_recording(TFI_ACTIVITY_MEM)) return false;
    return thread_here() != NULL;
}

static void report(enum what what, void *block, int64_t bytes, uint64_t allocated, uint64_t reserved, int32_t device)
{
    if (!__atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED) && !wake()) return;
    struct tfi_rec_memory rec = {
        .time = tfi_ticks(),
        .address = (uintptr_t)block,
        .bytes = bytes,
        .allocated = allocated,
        .reserved = reserved,
        .device = device,
    };
    uint64_t grown = what != NO_BLOCK ? tfi_allocator_totals_report(device, bytes, allocated, reserved) : 0;
    if (TFI_UNLIKELY(grown && bytes > 0)) tfi_segment_grown(device, rec.address, (uint64_t)bytes, grown);
    record(&rec, what);
}

/* Reports a block of the host, whose total is kept here. */
static void report_host(void *block, int64_t bytes)
{
    static uint64_t total;
    report(BLOCK, block, bytes, __atomic_add_fetch(&total, (uint64_t)bytes, __ATOMIC_RELAXED), 0, TFI_HOST);
}

/* `device` is a struct of two signed bytes, type and index, passed in one register. */
TFI_EXPORT void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *block, int64_t bytes, size_t allocated,
                                                                      size_t reserved, uint16_t device)
{
    report_function *real = tfi_real(TFI_HOOK__ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE);
    int8_t number = (int8_t)(device >> 8);
    if (real) real(block, bytes, allocated, reserved, device);
    if (!active()) return;
    enum what what = (uint8_t)device == DEVICE_TYPE_CUDA ? CUDA_BLOCK : BLOCK;
    if ((uint8_t)device != DEVICE_TYPE_CPU) report(what, block, bytes, allocated, reserved, number < 0 ? 0 : number);
    else if (follows_host() && !tfi_block_known(&blocks, (uintptr_t)block)) report_host(block, bytes);
}

TFI_EXPORT void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t bytes, size_t allocated, size_t reserved,
                                                                    uint16_t device)
{
    oom_function *real = tfi_real(TFI_HOOK__ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE);
    int8_t number = (int8_t)(device >> 8);
    if (real) real(bytes, allocated, reserved, device);
    if (!active()) return;
    if ((uint8_t)device == DEVICE_TYPE_CPU) number = TFI_HOST;
    else if (number < 0) number = 0;
    report(NO_BLOCK, NULL, bytes, allocated, reserved, number);
}

/* The block is known before the original is called, and until it has returned: the original's own report is then
 * not taken for that of a mapped file. */
TFI_EXPORT void _ZN3c1025ProfiledCPUMemoryReporter3NewEPvm(void *reporter, void *block, size_t bytes)
{
    new_function *real = tfi_real(TFI_HOOK__ZN3c1025ProfiledCPUMemoryReporter3NewEPvm);
    bool counts = follows_host() && block && bytes, known = counts && tfi_block_put(&blocks, (uintptr_t)block, bytes);
    if (real) real(reporter, block, bytes);
    if (known) report_host(block, (int64_t)bytes);
    else if (counts) tfi_count_drop(TFI_DROP_BLOCKS, 1);
}

TFI_EXPORT void _ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv(void *reporter, void *block)
{
    delete_function *real = tfi_real(TFI_HOOK__ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv);
    if (real) real(reporter, block);
    uint64_t bytes = active() ? tfi_block_take(&blocks, (uintptr_t)block) : 0;
    if (bytes) report_host(block, -(int64_t)bytes);
}
