/* dispatches.c - tells operators of other libraries from torch's by scope and name. */
#include "ask/ops/dispatches.h"

#include <string.h>

/* Namespaces of the operators that torch 2.15 itself registers (torch._C._dispatch_get_all_op_names), and of functions
 * that it records besides. A name below one of them, such as torch.distributed.ddp.reducer, is torch's too. */
static const char *const torchs[] = {"_c10d_functional",
                                     "_c10d_functional_autograd",
                                     "_dtensor",
                                     "_inductor_test",
                                     "_native",
                                     "_native_aot",
                                     "_quantized",
                                     "_test",
                                     "aten",
                                     "autograd",
                                     "c10d",
                                     "c10d_functional",
                                     "coor",
                                     "debug_mode_ops",
                                     "debugprims",
                                     "export",
                                     "flex_gemm",
                                     "flex_lib",
                                     "fsdp",
                                     "inductor",
                                     "inductor_prims",
                                     "mempool",
                                     "mkl",
                                     "mkldnn",
                                     "mkldnn_prepacked",
                                     "onednn",
                                     "onnx",
                                     "onnx_symbolic",
                                     "prim",
                                     "prims",
                                     "profiler",
                                     "quantization",
                                     "quantized",
                                     "quantized_decomposed",
                                     "rngprims",
                                     "sparse",
                                     "static_runtime",
                                     "streams",
                                     "symm_mem",
                                     "torch"};

static bool is_native_name(const char *name)
{
    size_t length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_."),
           first = strcspn(name, ".:");
    if (!length || strncmp(name + length, "::", 2) != 0) return false;
    for (size_t i = 0; i < ARRAY_SIZE(torchs); i++)
        if (strlen(torchs[i]) == first && strncmp(name, torchs[i], first) == 0) return false;
    return true;
}

bool is_dispatch(const struct model *model, uint32_t name, uint32_t scope, struct map *native)
{
    if (scope != TFI_SCOPE_FUNCTION && scope != TFI_SCOPE_NATIVE) return false;
    uint32_t known = map_get(native, name);
    if (known == MAP_NONE) {
        known = is_native_name(model_name(model, name));
        map_put(native, name, known);
    }
    return scope == TFI_SCOPE_NATIVE || known;
}
