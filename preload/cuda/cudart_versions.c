/* cudart_versions.c - wraps the runtime functions whose parameters changed in CUDA 12 or 13 while their names stayed.
 *
 * One build of this library meets releases 11 to 13, and the vendor's header knows only one of them. These wrappers do
 * without the header. They pass every register on as it came and, for functions of more than six arguments, the words
 * on the stack. Before they interpret the arguments they find out which release the original belongs to. This is
 * correct on x86-64 because each of these arguments takes one integer register: cudaMemLocation has eight bytes, with
 * the type in the low half.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "cuda/cuda_calls.h"

/* The six registers, then the first words of the caller's stack, and the result of the call. */
struct words {
    uint64_t w[9];
    int result;
};

typedef int function(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
typedef int long_function(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

/* Interprets the arguments of a row: fills the values and returns their number. */
typedef uint32_t describe(const struct words *in, int release, uint64_t *values);

/* Reads the release from the file an original lies in: it is the number behind ".so." in the file's name. */
static int release_of(const void *real)
{
    static const void *last_new;
    Dl_info info;
    if (__atomic_load_n(&last_new, __ATOMIC_RELAXED) == real) return 13;
    const char *end = dladdr(real, &info) && info.dli_fname ? strstr(info.dli_fname, ".so.") : NULL;
    int release = end ? atoi(end + 4) : 13;
    if (release >= 13) __atomic_store_n(&last_new, real, __ATOMIC_RELAXED);
    return release;
}

static void leave(const struct tfi_cuda_call *call, int result, void *real, describe *what, const struct words *in)
{
    uint64_t values[8];
    int error = errno;
    uint32_t count = what(in, release_of(real), values);
    errno = error;
    tfi_cudart_leave(call, result, values, count);
}

/* Each wrapper has a C name of its own; the linker sees the name of the row. */
#define CHANGED(symbol, what)                                                                                          \
    TFI_EXPORT int tfi_changed_##symbol(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,                    \
                                        uint64_t f) __asm__(#symbol);                                                  \
    TFI_EXPORT int tfi_changed_##symbol(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)        \
    {                                                                                                                  \
        struct tfi_cuda_call call;                                                                                     \
        function *real = (function *)tfi_real(TFI_HOOK_##symbol);                                                      \
        if (!real) return TFI_CUDA_MISSING;                                                                            \
        if (!tfi_cudart_active() || !tfi_cudart_enter(&call, TFI_HOOK_##symbol)) return real(a, b, c, d, e, f);        \
        int result = real(a, b, c, d, e, f);                                                                           \
        leave(&call, result, (void *)real, what, &(struct words){{a, b, c, d, e, f}, result});                         \
        return result;                                                                                                 \
    }

#define CHANGED_LONG(symbol, what)                                                                                     \
    TFI_EXPORT int tfi_changed_##symbol(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,        \
                                        uint64_t g, uint64_t h, uint64_t i) __asm__(#symbol);                          \
    TFI_EXPORT int tfi_changed_##symbol(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,        \
                                        uint64_t g, uint64_t h, uint64_t i)                                            \
    {                                                                                                                  \
        struct tfi_cuda_call call;                                                                                     \
        long_function *real = (long_function *)tfi_real(TFI_HOOK_##symbol);                                            \
        if (!real) return TFI_CUDA_MISSING;                                                                            \
        if (!tfi_cudart_active() || !tfi_cudart_enter(&call, TFI_HOOK_##symbol))                                       \
            return real(a, b, c, d, e, f, g, h, i);                                                                    \
        int result = real(a, b, c, d, e, f, g, h, i);                                                                  \
        leave(&call, result, (void *)real, what, &(struct words){{a, b, c, d, e, f, g, h, i}, result});                \
        return result;                                                                                                 \
    }

static uint64_t as_int(uint64_t word)
{
    return (uint64_t)(int64_t)(int32_t)word;
}

static uint32_t put(uint64_t *values, const uint64_t *from, uint32_t count)
{
    memcpy(values, from, count * sizeof *values);
    return count;
}
#define PUT(...) put(values, TFI_VALUES(__VA_ARGS__), TFI_NR_VALUES(__VA_ARGS__))

/* 12: (dsts, srcs, sizes, count, attrs, indexes, numAttrs, failed, stream); 13 has no failed. */
static uint32_t copy_batch(const struct words *in, int release, uint64_t *values)
{
    return PUT(tfi_cuda_sum((const size_t *)in->w[2], in->w[3]), in->w[3], in->w[release < 13 ? 8 : 7]);
}

/* 12: (count, operations, failed, flags, stream); 13 has no failed. */
static uint32_t copy_batch_3d(const struct words *in, int release, uint64_t *values)
{
    return PUT(in->w[0], in->w[release < 13 ? 3 : 2], in->w[release < 13 ? 4 : 3]);
}

/* 12: (address, bytes, device, stream); 13: (address, bytes, location, flags, stream). Release 12 means a device,
 * a location of type 1; its device -1 is the host, of type 2. */
static uint32_t prefetch(const struct words *in, int release, uint64_t *values)
{
    uint64_t device = as_int(in->w[2]);
    if (release < 13) return PUT(in->w[0], in->w[1], (int64_t)device < 0 ? 2 : 1, device, 0, in->w[3]);
    return PUT(in->w[0], in->w[1], (uint32_t)in->w[2], as_int(in->w[2] >> 32), (uint32_t)in->w[3], in->w[4]);
}

/* 12: (address, bytes, advice, device); 13: (address, bytes, advice, location). */
static uint32_t advise(const struct words *in, int release, uint64_t *values)
{
    uint64_t device = as_int(in->w[3]);
    if (release < 13) return PUT(in->w[0], in->w[1], (uint32_t)in->w[2], (int64_t)device < 0 ? 2 : 1, device);
    return PUT(in->w[0], in->w[1], (uint32_t)in->w[2], (uint32_t)in->w[3], as_int(in->w[3] >> 32));
}

/* (array, parameters, count, stream): only the structure of the parameters changed. */
static uint32_t semaphores(const struct words *in, int release, uint64_t *values)
{
    (void)release;
    return PUT((uint32_t)in->w[2], in->w[3]);
}

/* 12: (stream, nodes, count, flags); 13: (stream, nodes, edges, count, flags). */
static uint32_t capture(const struct words *in, int release, uint64_t *values)
{
    return PUT(in->w[0], in->w[release < 13 ? 2 : 3], (uint32_t)in->w[release < 13 ? 3 : 4]);
}

/* 12: (graph, from, to, count); 13: (graph, from, to, edges, count). */
static uint32_t dependencies(const struct words *in, int release, uint64_t *values)
{
    return PUT(in->w[0], in->w[release < 13 ? 3 : 4]);
}

/* 12: (out, graph, nodes, count, parameters); 13: (out, graph, nodes, edges, count, parameters). */
static uint32_t add_node(const struct words *in, int release, uint64_t *values)
{
    const uint64_t *node = in->result == 0 ? (const uint64_t *)in->w[0] : NULL;
    return PUT(node ? *node : 0, in->w[1], in->w[release < 13 ? 3 : 4], in->w[release < 13 ? 4 : 5]);
}

/* 11: (out, graph, error_node, log, bytes); 12: (out, graph, flags). */
static uint32_t instantiate(const struct words *in, int release, uint64_t *values)
{
    const uint64_t *exec = in->result == 0 ? (const uint64_t *)in->w[0] : NULL;
    return PUT(exec ? *exec : 0, in->w[1], release < 12 ? 0 : in->w[2]);
}

/* 11: (exec, graph, error_node, result); 12: (exec, graph, result). */
static uint32_t update(const struct words *in, int release, uint64_t *values)
{
    (void)release;
    return PUT(in->w[0], in->w[1]);
}

CHANGED_LONG(cudaMemcpyBatchAsync, copy_batch)
CHANGED_LONG(cudaMemcpyBatchAsync_ptsz, copy_batch)
CHANGED(cudaMemcpy3DBatchAsync, copy_batch_3d)
CHANGED(cudaMemcpy3DBatchAsync_ptsz, copy_batch_3d)
CHANGED(cudaMemPrefetchAsync, prefetch)
CHANGED(cudaMemPrefetchAsync_ptsz, prefetch)
CHANGED(cudaMemAdvise, advise)
CHANGED(cudaSignalExternalSemaphoresAsync, semaphores)
CHANGED(cudaSignalExternalSemaphoresAsync_ptsz, semaphores)
CHANGED(cudaWaitExternalSemaphoresAsync, semaphores)
CHANGED(cudaWaitExternalSemaphoresAsync_ptsz, semaphores)
CHANGED(cudaStreamUpdateCaptureDependencies, capture)
CHANGED(cudaStreamUpdateCaptureDependencies_ptsz, capture)
CHANGED(cudaGraphAddDependencies, dependencies)
CHANGED(cudaGraphRemoveDependencies, dependencies)
CHANGED(cudaGraphAddNode, add_node)
CHANGED(cudaGraphInstantiate, instantiate)
CHANGED(cudaGraphExecUpdate, update)
