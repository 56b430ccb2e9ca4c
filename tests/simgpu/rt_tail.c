/* rt_tail.c - defines the runtime functions of preload/cuda/cudart.def that no other file does: "not supported".
 *
 * They are weak, as in tail.c. A row whose parameters differ in the header's release is defined by its name alone.
 */
#include "rt.h"

#if __has_include("cuda/cudart_compat.h")
#include "cuda/cudart_compat.h" /* types that an older header lacks */
#endif
#if __has_include("cuda/cudart.def")
#define LIBRARY(name, soname)
#define TAIL(ret, symbol, params)                                                                                      \
    PUBLIC __attribute__((weak)) ret symbol params;                                                                    \
    PUBLIC __attribute__((weak)) ret symbol params                                                                     \
    {                                                                                                                  \
        struct simgpu_frame frame_;                                                                                    \
        int result_ = rt_begin(&frame_, RT_CONTEXT, #symbol);                                                          \
        return (ret)rt_end(&frame_, result_ ? result_ : (int)cudaErrorNotSupported);                                   \
    }
#define HOOK(class, ret, symbol, params, args, names, values) TAIL(ret, symbol, params)
#if CUDART_VERSION >= 13000
#define HOOK_CUSTOM(class, ret, symbol, params, names) TAIL(ret, symbol, params)
#else
#define HOOK_CUSTOM(class, ret, symbol, params, names)                                                                 \
    PUBLIC __attribute__((weak)) cudaError_t tail_##symbol(void) __asm__(#symbol);                                     \
    PUBLIC __attribute__((weak)) cudaError_t tail_##symbol(void)                                                       \
    {                                                                                                                  \
        struct simgpu_frame frame_;                                                                                    \
        int result_ = rt_begin(&frame_, RT_CONTEXT, #symbol);                                                          \
        return rt_end(&frame_, result_ ? result_ : (int)cudaErrorNotSupported);                                        \
    }
#endif
#define HOOK_VOID(class, ret, symbol, params, args, names, values)
#define HOOK_CUSTOM_VOID(class, ret, symbol, params, names)
#include "cuda/cudart.def"
#endif
