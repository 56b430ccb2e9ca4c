/* tail.c - defines the driver functions of preload/cuda/cuda.def that no other file does: "not supported".
 *
 * They are weak, so that a body elsewhere in the library replaces them. The header checks their prototypes.
 */
#include "model.h"

#if __has_include("cuda/cuda_compat.h")
#include "cuda/cuda_compat.h" /* types that an older header lacks */
#endif
#if __has_include("cuda/cuda.def")
#define LIBRARY(name, soname)
#define TAIL(ret, symbol, params)                                                                                      \
    PUBLIC __attribute__((weak)) ret symbol params                                                                     \
    {                                                                                                                  \
        struct simgpu_frame frame_;                                                                                    \
        int result_ = sim_begin(&frame_, #symbol);                                                                     \
        return (ret)simgpu_end(&frame_, result_ ? result_ : CUDA_ERROR_NOT_SUPPORTED);                                 \
    }
#define HOOK(class, ret, symbol, params, args, names, values) TAIL(ret, symbol, params)
#define HOOK_CUSTOM(class, ret, symbol, params, names) TAIL(ret, symbol, params)
#include "cuda/cuda.def"
#endif
