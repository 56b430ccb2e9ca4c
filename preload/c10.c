/* c10.c - the bodies of c10.def: what torch's allocators give out and get back.
 *
 * c10 counts the host's blocks only while a profiler asks for them, and complains about those it has not counted. So
 * with `mem` among the activities somebody asks from the start of the process on, also while it is asleep; without, both
 * functions only forward. The original that takes reports is called as often as without us: a device's allocator always
 * reports, the host's only when the program has a profiler of its own that wants it.
 *
 * A device's reports come under its allocator's lock, some with the interpreter's lock held and some without: nothing of
 * torch, CUDA or Python is called here.
 */
#include "callstack.h"
#include "hooks.h"
#include "memory.h"
#include "strings.h"

enum { DEVICE_TYPE_CPU = 0 };

void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *block, int64_t bytes, size_t allocated,
                                                           size_t reserved, uint16_t device);
bool _ZN3c1022memoryProfilingEnabledEv(void);

typedef void report_function(void *, int64_t, size_t, size_t, uint16_t);
typedef bool enabled_function(void);

/* "c10" in this process's trace: number, and the generation it is of. */
static uint32_t allocator, allocator_gen;

static TFI_COLD void name_allocator(struct tfi_thread *t)
{
    __atomic_store_n(&allocator, tfi_string("c10", 3), __ATOMIC_RELAXED);
    __atomic_store_n(&allocator_gen, t->gen, __ATOMIC_RELEASE);
}

static void write_record(struct tfi_thread *t, const struct tfi_rec_memory *from)
{
    uint32_t stack = tfi_callstack(t);
    if (TFI_UNLIKELY(__atomic_load_n(&allocator_gen, __ATOMIC_ACQUIRE) != t->gen)) name_allocator(t);
    struct tfi_rec_memory *rec = TFI_RESERVE(t, memory);
    if (TFI_UNLIKELY(!rec)) return;
    rec->allocator = __atomic_load_n(&allocator, __ATOMIC_RELAXED);
    rec->time = from->time;
    rec->address = from->address;
    rec->bytes = from->bytes;
    rec->allocated = from->allocated;
    rec->reserved = from->reserved;
    rec->device = from->device;
    rec->stack = stack;
    tfi_commit(t, sizeof *rec);
}

/* The calling thread's state; NULL if it gets none. */
static struct tfi_thread *thread_here(void)
{
    struct tfi_thread *t = tfi_self;
    if (TFI_LIKELY(t && t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))) return t;
    t = tfi_enter(TFI_WHY_NONE);
    if (t) tfi_leave(t);
    return t;
}

static void record(const struct tfi_rec_memory *report)
{
    struct tfi_thread *t = thread_here();
    if (!t || !tfi_call_wanted(t) || !tfi_recording(TFI_ACTIVITY_MEM)) return;
    if (TFI_UNLIKELY(t->guard)) {
        tfi_count_drop(TFI_DROP_REENTRANT, 1);
        return;
    }
    t->guard = 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (TFI_LIKELY(t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))) write_record(t, report);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    t->guard = 0;
}

/* True if the allocators are watched: from the first call on, or never. */
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

/* The device is a struct of two signed bytes, type and index, handed over in one register. */
TFI_EXPORT void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *block, int64_t bytes, size_t allocated,
                                                                      size_t reserved, uint16_t device)
{
    report_function *real = tfi_real(TFI_HOOK__ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE);
    enabled_function *enabled = tfi_real(TFI_HOOK__ZN3c1022memoryProfilingEnabledEv);
    bool host = (uint8_t)device == DEVICE_TYPE_CPU;
    int8_t number = (int8_t)(device >> 8);
    if (real && (!host || !enabled || enabled())) real(block, bytes, allocated, reserved, device);
    if (!active() || !__atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED)) return;
    struct tfi_rec_memory report = {
        .time = tfi_ticks(),
        .address = (uintptr_t)block,
        .bytes = bytes,
        .allocated = allocated,
        .reserved = reserved,
        .device = host         ? TFI_HOST
                  : number < 0 ? 0
                               : number,
    };
    tfi_memory_report(report.device, bytes, allocated, reserved);
    record(&report);
}

TFI_EXPORT bool _ZN3c1022memoryProfilingEnabledEv(void)
{
    if (active()) return true;
    enabled_function *real = tfi_real(TFI_HOOK__ZN3c1022memoryProfilingEnabledEv);
    return real && real();
}
