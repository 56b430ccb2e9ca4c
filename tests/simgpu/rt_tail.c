/* rt_tail.c - every runtime function of preload/cudart.def that has no body of its own: it is there and not supported.
 *
 * Weak, as in tail.c.
 */
#include "rt.h"

#if __has_include("cudart_compat.h")
#include "cudart_compat.h" /* types that this header is too old for */
#endif
#if __has_include("cudart.def")
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
#define HOOK_CUSTOM(class, ret, symbol, params, names) TAIL(ret, symbol, params)
#define HOOK_VOID(class, ret, symbol, params, args, names, values)
#define HOOK_CUSTOM_VOID(class, ret, symbol, params, names)
#include "cudart.def"
#endif
