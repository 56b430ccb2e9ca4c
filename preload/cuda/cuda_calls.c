/* cuda_calls.c - the steps before and after a recorded call of the CUDA driver or runtime.
 *
 * The runtime does its work by calling the driver, through pointers that our look-ups gave it. Only the outer call is
 * the program's. A call of the driver inside a recorded call of the runtime is therefore only forwarded. `runtime` in
 * the thread's state is the depth of that runtime call, so a value left over by a longjmp is recognised and cleared.
 */
#include "cuda/cuda_calls.h"

#include "base/process.h"
#include "control/schedule.h"
#include "cuda/event_times.h"
#include "cuda/graphs.h"
#include "cuda/sync_stages.h"
#include "record/clock.h"
#include "record/enter.h"

/* Finds the stages that a launch made now belongs to. A thread that records nothing of its own gets its state
 * here. */
static __attribute__((noinline)) void look(void)
{
    struct tfi_thread *t = tfi_self;
    if (TFI_UNLIKELY(!t)) {
        t = tfi_enter(TFI_WHY_NONE);
        if (t) tfi_leave(t);
    }
    tfi_sums_look(t);
}

/* True if the process records, but calls of the host are not among its activities. */
static bool not_recorded(void)
{
    uint32_t now = __atomic_load_n(&tfi_recording_now, __ATOMIC_RELAXED);
    return (now & (TFI_RECORDING_ANY | TFI_ACTIVITY_CPU)) == TFI_RECORDING_ANY;
}

/* Prepares a call that is not recorded; true if graphs.c needs it all the same. */
static bool only_for_graphs(struct tfi_cuda_call *call)
{
    call->call = (struct tfi_call){.start = tfi_ticks()};
    return tfi_graphs_watch(call->hook);
}

static inline bool cuda_enter(struct tfi_cuda_call *call, enum tfi_hook hook)
{
    struct tfi_thread *t = tfi_self;
    call->hook = hook;
    if (TFI_UNLIKELY(tfi_config.sync_stages == 1)) tfi_cuda_sync_note(hook);
    if (TFI_UNLIKELY(not_recorded())) return only_for_graphs(call);
    if (t && t->runtime && t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED)) {
        tfi_calls_left(t, (uintptr_t)__builtin_frame_address(0));
        if (t->runtime <= t->calls) return false;
        t->runtime = 0;
    }
    return tfi_call_enter(&call->call, hook) || only_for_graphs(call);
}

bool tfi_cuda_enter(struct tfi_cuda_call *call, enum tfi_hook hook)
{
    bool recorded = cuda_enter(call, hook);
    if (TFI_UNLIKELY(tfi_sums_on)) look();
    return recorded;
}

/* graphs.c comes after the record, because the record holds the time of the call's end. */
static __attribute__((noinline)) void leave_watched(const struct tfi_cuda_call *call, int64_t result,
                                                    const uint64_t *args, uint32_t count)
{
    if (call->call.thread) tfi_call_leave(&call->call, result, args, count);
    tfi_graphs_after(call->hook, call->call.start, result, args, count);
}

static inline void leave(const struct tfi_cuda_call *call, int64_t result, const uint64_t *args, uint32_t count)
{
    if (TFI_UNLIKELY(tfi_graphs_watch(call->hook))) leave_watched(call, result, args, count);
    else if (TFI_LIKELY(call->call.thread != NULL)) tfi_call_leave(&call->call, result, args, count);
}

void tfi_cuda_leave(const struct tfi_cuda_call *call, int64_t result, const uint64_t *args, uint32_t count)
{
    leave(call, result, args, count);
}

static inline bool cudart_enter(struct tfi_cuda_call *call, enum tfi_hook hook)
{
    call->hook = hook;
    if (TFI_UNLIKELY(hook == TFI_HOOK_cudaDeviceReset || hook == TFI_HOOK_cudaThreadExit))
        tfi_event_times_device_reset();
    if (TFI_UNLIKELY(tfi_config.sync_stages == 1)) tfi_cuda_sync_note(hook);
    if (TFI_UNLIKELY(not_recorded())) return only_for_graphs(call);
    if (!tfi_call_enter(&call->call, hook)) return only_for_graphs(call);
    struct tfi_thread *t = call->call.thread;
    call->outer = t->runtime <= call->call.depth ? t->runtime : 0;
    t->runtime = call->call.depth + 1;
    return true;
}

bool tfi_cudart_enter(struct tfi_cuda_call *call, enum tfi_hook hook)
{
    bool recorded = cudart_enter(call, hook);
    if (TFI_UNLIKELY(tfi_sums_on)) look();
    return recorded;
}

void tfi_cudart_leave(const struct tfi_cuda_call *call, int64_t result, const uint64_t *args, uint32_t count)
{
    if (TFI_LIKELY(call->call.thread != NULL)) call->call.thread->runtime = call->outer;
    leave(call, result, args, count);
}
