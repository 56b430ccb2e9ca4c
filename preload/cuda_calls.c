/* cuda_calls.c - the way round a call of the CUDA driver or runtime that is being recorded.
 *
 * The runtime does its work by calling the driver, through pointers that our look-ups gave it. Only the outer call is
 * the program's: while a thread is in a recorded call of the runtime, its calls of the driver are forwarded and nothing
 * else. `runtime` in the thread's state is that call's depth, so a value left over by a longjmp heals itself.
 */
#include "cuda_calls.h"

#include "cuda_names.h"
#include "cuda_sync.h"
#include "events.h"
#include "graphs.h"
#include "strings.h"

/* Which stages what is launched now belongs to. A thread that records nothing of its own gets its state here. */
static inline void look(void)
{
    if (TFI_LIKELY(!tfi_sums_on)) return;
    struct tfi_thread *t = tfi_self;
    if (TFI_UNLIKELY(!t)) {
        t = tfi_enter(TFI_WHY_NONE);
        if (t) tfi_leave(t);
    }
    tfi_sums_look(t);
}

/* True if calls of the host are not among the activities of a process that records. */
static bool not_recorded(void)
{
    uint32_t now = __atomic_load_n(&tfi_recording_now, __ATOMIC_RELAXED);
    return (now & (TFI_RECORDING_ANY | TFI_ACTIVITY_CPU)) == TFI_RECORDING_ANY;
}

/* A call that is not recorded: graphs.c may have to know of it all the same. */
static bool only_for_graphs(struct tfi_cuda_call *call)
{
    call->call = (struct tfi_call){.start = tfi_ticks()};
    return tfi_graphs_watch(call->hook);
}

static inline bool cuda_enter(struct tfi_cuda_call *call, enum tfi_hook hook)
{
    struct tfi_thread *t = tfi_self;
    call->hook = hook;
    if (TFI_UNLIKELY(tfi_config.sync_stages)) tfi_cuda_sync_note(hook);
    if (TFI_UNLIKELY(not_recorded())) return only_for_graphs(call);
    if (t && t->runtime && t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED)) {
        tfi_calls_left(t);
        if (t->runtime <= t->calls) return false;
        t->runtime = 0;
    }
    call->call = tfi_call_enter(hook);
    return call->call.thread != NULL || only_for_graphs(call);
}

bool tfi_cuda_enter(struct tfi_cuda_call *call, enum tfi_hook hook)
{
    bool recorded = cuda_enter(call, hook);
    look();
    return recorded;
}

/* After the record, for that has the time of the call's end in it. */
static inline void leave(const struct tfi_cuda_call *call, int64_t result, const uint64_t *args, uint32_t count)
{
    if (TFI_LIKELY(call->call.thread != NULL)) tfi_call_leave(&call->call, result, args, count);
    if (TFI_UNLIKELY(tfi_graphs_watch(call->hook))) tfi_graphs_after(call->hook, call->call.start, result, args, count);
}

void tfi_cuda_leave(const struct tfi_cuda_call *call, int64_t result, const uint64_t *args, uint32_t count)
{
    leave(call, result, args, count);
}

static inline bool cudart_enter(struct tfi_cuda_call *call, enum tfi_hook hook)
{
    call->hook = hook;
    if (TFI_UNLIKELY(hook == TFI_HOOK_cudaDeviceReset || hook == TFI_HOOK_cudaThreadExit)) tfi_events_device_reset();
    if (TFI_UNLIKELY(tfi_config.sync_stages)) tfi_cuda_sync_note(hook);
    if (TFI_UNLIKELY(not_recorded())) return only_for_graphs(call);
    call->call = tfi_call_enter(hook);
    struct tfi_thread *t = call->call.thread;
    if (!t) return only_for_graphs(call);
    call->outer = t->runtime <= call->call.depth ? t->runtime : 0;
    t->runtime = call->call.depth + 1;
    return true;
}

bool tfi_cudart_enter(struct tfi_cuda_call *call, enum tfi_hook hook)
{
    bool recorded = cudart_enter(call, hook);
    look();
    return recorded;
}

void tfi_cudart_leave(const struct tfi_cuda_call *call, int64_t result, const uint64_t *args, uint32_t count)
{
    if (TFI_LIKELY(call->call.thread != NULL)) call->call.thread->runtime = call->outer;
    leave(call, result, args, count);
}

uint64_t tfi_cuda_text(const char *text)
{
    struct tfi_thread *t = tfi_self;
    uint32_t string = 0;
    if (!text || !t) return 0;
    if (tfi_guarded(t)) return 0;
    tfi_guard_set(t);
    if (t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))
        string = tfi_string(text, strnlen(text, TFI_STRING_MAX));
    tfi_guard_clear(t);
    return string;
}

uint64_t tfi_cuda_kernel(uint64_t handle)
{
    struct tfi_thread *t = tfi_self;
    struct tfi_kernel *kernel = tfi_kernel_find(handle);
    if (!kernel || !t) return 0;
    uint64_t string = __atomic_load_n(&kernel->string, __ATOMIC_RELAXED);
    if (TFI_LIKELY(string >> 32 == t->gen)) return (uint32_t)string;
    string = tfi_cuda_text(__atomic_load_n(&kernel->name, __ATOMIC_RELAXED));
    if (string) __atomic_store_n(&kernel->string, (uint64_t)t->gen << 32 | string, __ATOMIC_RELAXED);
    return string;
}

uint64_t tfi_cuda_sum(const size_t *array, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; array && i < count; i++) sum += array[i];
    return sum;
}
