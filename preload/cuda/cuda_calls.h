/* cuda_calls.h - the steps before and after a CUDA call, and the values of its record. */
#ifndef TFI_CUDA_CALLS_H
#define TFI_CUDA_CALLS_H

#include "base/process.h"
#include "control/config.h"
#include "cuda/blocks.h"
#include "cuda/graphs.h"
#include "cuda/call_values.h"
#include "cupti/client.h"
#include "hooks/call_record.h"

/* Result of a wrapper that finds no original: CUDA_ERROR_NOT_FOUND and cudaErrorSymbolNotFound. */
#define TFI_CUDA_MISSING 500

struct tfi_cuda_call {
    struct tfi_call call; /* its thread is NULL if only graphs.c needs the call */
    enum tfi_hook hook;
    uint32_t outer; /* runtime calls only: the thread's `runtime` before this call */
};

/* False while no call can be of interest: the wrapper then only forwards. A call means that the program uses a
 * device. CUPTI is therefore started here, before the first context, so that a selection that begins later finds
 * it started. */
static inline bool tfi_device_active(bool runtime)
{
    tfi_cupti_device_used(runtime);
    if (tfi_config.select == TFI_SELECT_ALL || __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED)) return true;
    if (tfi_config.sync_stages == 1) return true; /* captures are counted from the start */
    tfi_note_work();
    return false;
}

static inline bool tfi_cuda_active(void)
{
    return tfi_device_active(false);
}

static inline bool tfi_cudart_active(void)
{
    return tfi_device_active(true);
}

/* Runs before the original; false: the wrapper only forwards. Not inline: there are hundreds of wrappers. */
bool tfi_cuda_enter(struct tfi_cuda_call *call, enum tfi_hook hook);
bool tfi_cudart_enter(struct tfi_cuda_call *call, enum tfi_hook hook);

/* Runs after the original. */
void tfi_cuda_leave(const struct tfi_cuda_call *call, int64_t result, const uint64_t *args, uint32_t count);
void tfi_cudart_leave(const struct tfi_cuda_call *call, int64_t result, const uint64_t *args, uint32_t count);

/* Values of a row; see cuda.def. */
#define OUT(p) (result_ == 0 && (p) ? TFI_U(*(p)) : 0)
#define OUT_FIELD(p, field) (result_ == 0 && (p) ? TFI_U((p)->field) : 0)
#define IN(p, field) ((p) ? TFI_U((p)->field) : 0)
#define KERNEL(handle) tfi_cuda_kernel(TFI_U(handle))
#define TEXT(text) tfi_cuda_text(text)
#define SUM(array, count) tfi_cuda_sum(array, count)
#define CAPTURED(stream) tfi_graphs_captures(call_.hook, TFI_U(stream))
#define DEVICE(address) TFI_U(tfi_cuda_device_of(address))
#define ARRAY_BYTES(p, depth, levels, flags)                                                                           \
    tfi_cuda_array_bytes(tfi_cuda_format_bits(IN(p, Format), IN(p, NumChannels)), IN(p, Width), IN(p, Height), depth,  \
                         levels, flags)
#define CHANNEL_BYTES(p, ...)                                                                                          \
    tfi_cuda_array_bytes(tfi_cuda_channel_bits(IN(p, x) + IN(p, y) + IN(p, z) + IN(p, w), IN(p, f)), __VA_ARGS__)

/* Defines the wrapper of a row; `api` is cuda or cudart. */
#define TFI_CUDA_WRAP(api, ret, symbol, params, args, values)                                                          \
    TFI_EXPORT ret symbol params                                                                                       \
    {                                                                                                                  \
        struct tfi_cuda_call call_;                                                                                    \
        ret(*real_) params = (ret(*) params)tfi_real(TFI_HOOK_##symbol);                                               \
        if (TFI_UNLIKELY(!real_)) return (ret)TFI_CUDA_MISSING;                                                        \
        if (!tfi_##api##_active() || !tfi_##api##_enter(&call_, TFI_HOOK_##symbol)) return real_ args;                 \
        ret result_ = real_ args;                                                                                      \
        tfi_##api##_leave(&call_, result_, TFI_VALUES values, TFI_NR_VALUES values);                                   \
        return result_;                                                                                                \
    }

#endif
