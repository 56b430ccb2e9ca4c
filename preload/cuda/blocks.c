/* blocks.c - tells the device and the size of what a call of CUDA has allocated.
 *
 * The address alone says which device a block is on: the pool, the stream, or the current context of the call may belong
 * to another one. The driver is asked for it after each recorded allocation. The question is no operation of a stream,
 * so it is allowed in a capture.
 */
#include "cuda/blocks.h"

#include "base/tfi.h"
#include "cuda/call_values.h"
#include "cupti/client.h"
#include "hooks/hooks.h"

enum { UNKNOWN = -2, DEVICE_ORDINAL = 9 /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */ };
enum { SIGNED_OR_FLOAT = 2 /* cudaChannelFormatKindFloat, the last kind with plain elements */ };
enum { NO_MEMORY = 0x40 | 0x80 /* CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING */ };

typedef int attribute_function(void *value, int attribute, uint64_t address);
typedef int device_function(int *device);

/* Returns a function of the driver, looked up once; NULL if there is none. */
static void *driver_function(void **known, const char *symbol)
{
    void *function = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (function) return function;
    int error = errno;
    function = tfi_hook_sibling(TFI_HOOK_cuMemAlloc_v2, symbol, __builtin_return_address(0));
    __atomic_store_n(known, function, __ATOMIC_RELAXED);
    errno = error;
    return function;
}

int64_t tfi_cuda_device_of(uint64_t address)
{
    static void *attribute, *current;
    int device = UNKNOWN, error = errno, result;
    if (tfi_other_edges() & 1 || tfi_cupti_watched()) return UNKNOWN;
    attribute_function *ask = (attribute_function *)driver_function(&attribute, "cuPointerGetAttribute");
    device_function *ask_current = (device_function *)driver_function(&current, "cuCtxGetDevice");
    if (address) result = ask ? ask(&device, DEVICE_ORDINAL, address) : -1;
    else result = ask_current ? ask_current(&device) : -1;
    errno = error;
    return result == 0 && device >= 0 ? device : UNKNOWN;
}

/* CUarray_format: 1 to 3 unsigned integers of 8, 16 and 32 bits, 8 to 10 signed ones, 16 half, 32 float. */
uint64_t tfi_cuda_format_bits(uint64_t format, uint64_t channels)
{
    if (format == 16) return 16 * channels;
    if (format == 32) return 32 * channels;
    uint64_t size = format & ~(uint64_t)8;
    return size >= 1 && size <= 3 ? (UINT64_C(4) << size) * channels : 0;
}

uint64_t tfi_cuda_channel_bits(uint64_t bits, uint64_t kind)
{
    return kind <= SIGNED_OR_FLOAT ? bits : 0;
}

static uint64_t at_least_1(uint64_t number)
{
    return number ? number : 1;
}

/* Each level has half the width, height and depth of the one before. */
uint64_t tfi_cuda_array_bytes(uint64_t bits, uint64_t width, uint64_t height, uint64_t depth, uint64_t levels,
                              uint64_t flags)
{
    uint64_t sum = 0;
    if (flags & NO_MEMORY) return 0;
    for (uint64_t i = 0; i < levels && i < 32; i++)
        sum += bits / 8 * at_least_1(width >> i) * at_least_1(height >> i) * at_least_1(depth >> i);
    return sum;
}
