/* rt_tail.c - every runtime function of preload/cuda/cudart.def that has no body of its own: it is there and not supported.
 *
 * Weak, as in tail.c. A row whose parameters are other ones in the header's release goes by its name alone.
 */
#include "rt.h"

#if __has_include("cuda/cudart_compat.h")
#include "cuda/cudart_compat.h" /* types that this header is too old for */
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
