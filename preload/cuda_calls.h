/* cuda_calls.h - what the wrappers of the driver and of the runtime share: the way round a call, what its record holds. */
#ifndef TFI_CUDA_CALLS_H
#define TFI_CUDA_CALLS_H

#include "cupti_client.h"
#include "hooks.h"

/* What a wrapper returns that finds no original: CUDA_ERROR_NOT_FOUND and cudaErrorSymbolNotFound. */
#define TFI_CUDA_MISSING 500

struct tfi_cuda_call {
    struct tfi_call call; /* without a thread: not recorded, and only graphs.c has to know of it */
    enum tfi_hook hook;
    uint32_t outer; /* of the runtime: what the thread's `runtime` was before */
};

/* False as long as no call can be of interest: nothing else is done then. A device is being used: CUPTI is started before
 * its first context, which is also where a later selection finds it. */
static inline bool tfi_device_active(bool runtime)
{
    tfi_cupti_device_used(runtime);
    if (tfi_config.select == TFI_SELECT_ALL || __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED)) return true;
    if (tfi_config.sync_stages) return true; /* captures are counted from the start */
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

/* Before the original is called; false: only forward. Not inline: there are hundreds of wrappers. */
bool tfi_cuda_enter(struct tfi_cuda_call *call, enum tfi_hook hook);
bool tfi_cudart_enter(struct tfi_cuda_call *call, enum tfi_hook hook);

/* After it. */
void tfi_cuda_leave(const struct tfi_cuda_call *call, int64_t result, const uint64_t *args, uint32_t count);
void tfi_cudart_leave(const struct tfi_cuda_call *call, int64_t result, const uint64_t *args, uint32_t count);

/* For the values of a record, between the two: the string of a text, of a kernel's name (0 where it is not known), and
 * the sum of an array. They keep errno. */
uint64_t tfi_cuda_text(const char *text);
uint64_t tfi_cuda_kernel(uint64_t handle);
uint64_t tfi_cuda_sum(const size_t *array, size_t count);

/* Values of a row; see cuda.def. */
#define OUT(p) (result_ == 0 && (p) ? TFI_U(*(p)) : 0)
#define OUT_FIELD(p, field) (result_ == 0 && (p) ? TFI_U((p)->field) : 0)
#define IN(p, field) ((p) ? TFI_U((p)->field) : 0)
#define KERNEL(handle) tfi_cuda_kernel(TFI_U(handle))
#define TEXT(text) tfi_cuda_text(text)
#define SUM(array, count) tfi_cuda_sum(array, count)

/* The body of a row; `api` is cuda or cudart. */
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
