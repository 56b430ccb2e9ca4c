/* streams.c - tells the stream to which torch's allocator gives a block: the current one of the calling thread.
 *
 * torch asks for that stream before it asks the allocator for a block. So when the allocator reports, the answer lies in
 * the thread's own state: torch's two functions then only read it. They take no lock and create nothing, which matters
 * because the report comes under the allocator's lock. For a block of a stream that the program named itself
 * (raw_alloc_with_stream), the answer is the current stream all the same.
 *
 * A c10::cuda::CUDAStream is a device, two bytes of type and number, and an id: it is returned in two registers.
 */
#include <dlfcn.h>

#include "base/tfi.h"
#include "torch/cxx.h"
#include "torch/torch.h"

struct stream {
    uint64_t device;
    int64_t id; /* 0: the default stream */
};

static struct {
    struct stream (*current)(int8_t device);
    uint64_t (*handle)(const struct stream *stream);
} torch;

void tfi_torch_streams_init(void)
{
    static const struct tfi_torch_function functions[] = {
        {"_ZN3c104cuda20getCurrentCUDAStreamEa", &torch.current, NULL},
        {"_ZNK3c104cuda10CUDAStream6streamEv", &torch.handle, NULL},
    };
    void *library = dlopen("libc10_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
    if (library) tfi_torch_find(library, functions, TFI_COUNT(functions));
}

uint64_t tfi_torch_stream(int32_t device)
{
    if (!torch.current || !torch.handle || device < 0 || device > INT8_MAX) return 0;
    struct stream stream = torch.current((int8_t)device);
    return stream.id ? torch.handle(&stream) : 0;
}
