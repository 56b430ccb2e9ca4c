/* call_values.c - computes values of a call's record that are more than its arguments: strings, names of kernels, sums. */
#include "cuda/call_values.h"

#include "base/process.h"
#include "cuda/kernel_names.h"
#include "record/strings.h"
#include "record/thread.h"

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
