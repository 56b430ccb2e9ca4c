/* cuda.c - loads the blocks that calls of CUDA's runtime and driver allocate and free.
 *
 * The record of an allocation has its device, for which the library asked the driver. If the driver did not tell it, a
 * call of the runtime allocates on the device that its thread chose with cudaSetDevice or made a context on, else on
 * the runtime's first one. A call of the driver then has an unknown device (DEVICE_OTHER). An allocation counts from
 * the call's end, and what is freed is gone at the call's start: a block at the address of a freed one comes after it,
 * whichever threads made the calls. Graphs' allocations and imported memory are left out: a call on a stream that is
 * being captured makes a node of a graph, which allocates at each launch.
 */
#include <string.h>

#include "model/load/load.h"

enum { OUT_OF_MEMORY = 2, MOST_BYTES = 62 /* a block has fewer than 2^62 bytes */ };
enum { LOCATION_DEVICE = 1 /* CU_MEM_LOCATION_TYPE_DEVICE; larger ones are the host's */ };

enum what { ALLOCATES, FREES, CHOOSES };

static const struct function {
    const char *name;
    enum what what;
    unsigned kind;
    const char *address; /* the argument that the block is known by */
} functions[] = {{"cudaMalloc", ALLOCATES, BLOCK_DEVICE, "address"},
                 {"cudaMallocAsync", ALLOCATES, BLOCK_POOL, "address"},
                 {"cudaMallocFromPoolAsync", ALLOCATES, BLOCK_POOL, "address"},
                 {"cudaMallocManaged", ALLOCATES, BLOCK_MANAGED, "address"},
                 {"cuMemAlloc_v2", ALLOCATES, BLOCK_DEVICE, "address"},
                 {"cuMemAllocAsync", ALLOCATES, BLOCK_POOL, "address"},
                 {"cuMemAllocFromPoolAsync", ALLOCATES, BLOCK_POOL, "address"},
                 {"cuMemAllocManaged", ALLOCATES, BLOCK_MANAGED, "address"},
                 {"cudaMallocPitch", ALLOCATES, BLOCK_DEVICE, "address"},
                 {"cudaMalloc3D", ALLOCATES, BLOCK_DEVICE, "address"},
                 {"cuMemAllocPitch_v2", ALLOCATES, BLOCK_DEVICE, "address"},
                 {"cudaMallocHost", ALLOCATES, BLOCK_PINNED, "address"},
                 {"cudaHostAlloc", ALLOCATES, BLOCK_PINNED, "address"},
                 {"cuMemAllocHost_v2", ALLOCATES, BLOCK_PINNED, "address"},
                 {"cuMemHostAlloc", ALLOCATES, BLOCK_PINNED, "address"},
                 {"cudaHostRegister", ALLOCATES, BLOCK_REGISTERED, "address"},
                 {"cuMemHostRegister_v2", ALLOCATES, BLOCK_REGISTERED, "address"},
                 {"cudaMallocArray", ALLOCATES, BLOCK_ARRAY, "array"},
                 {"cudaMalloc3DArray", ALLOCATES, BLOCK_ARRAY, "array"},
                 {"cudaMallocMipmappedArray", ALLOCATES, BLOCK_ARRAY, "mipmapped_array"},
                 {"cuArrayCreate_v2", ALLOCATES, BLOCK_ARRAY, "handle"},
                 {"cuArray3DCreate_v2", ALLOCATES, BLOCK_ARRAY, "handle"},
                 {"cuMipmappedArrayCreate", ALLOCATES, BLOCK_ARRAY, "handle"},
                 {"cuMemAddressReserve", ALLOCATES, BLOCK_RESERVED, "address"},
                 {"cuMemCreate", ALLOCATES, BLOCK_PHYSICAL, "handle"},
                 {"cuMemMap", ALLOCATES, BLOCK_MAPPED, "address"},
                 {"cuMemRetainAllocationHandle", FREES, BLOCK_RETAINED, "handle"},
                 {"cudaFree", FREES, BLOCK_DEVICE, "address"},
                 {"cudaFreeAsync", FREES, BLOCK_DEVICE, "address"},
                 {"cudaFreeHost", FREES, BLOCK_DEVICE, "address"},
                 {"cuMemFree_v2", FREES, BLOCK_DEVICE, "address"},
                 {"cuMemFreeAsync", FREES, BLOCK_DEVICE, "address"},
                 {"cuMemFreeHost", FREES, BLOCK_DEVICE, "address"},
                 {"cudaHostUnregister", FREES, BLOCK_REGISTERED, "address"},
                 {"cuMemHostUnregister", FREES, BLOCK_REGISTERED, "address"},
                 {"cudaFreeArray", FREES, BLOCK_ARRAY, "array"},
                 {"cudaFreeMipmappedArray", FREES, BLOCK_ARRAY, "mipmapped_array"},
                 {"cuArrayDestroy", FREES, BLOCK_ARRAY, "array"},
                 {"cuMipmappedArrayDestroy", FREES, BLOCK_ARRAY, "mipmapped_array"},
                 {"cuMemAddressFree", FREES, BLOCK_RESERVED, "address"},
                 {"cuMemRelease", FREES, BLOCK_PHYSICAL, "handle"},
                 {"cuMemUnmap", FREES, BLOCK_MAPPED, "address"},
                 {"cudaSetDevice", CHOOSES, BLOCK_NONE, NULL},
                 {"cuCtxCreate", CHOOSES, BLOCK_NONE, NULL},
                 {"cuCtxCreate_v2", CHOOSES, BLOCK_NONE, NULL},
                 {"cuCtxCreate_v3", CHOOSES, BLOCK_NONE, NULL},
                 {"cuCtxCreate_v4", CHOOSES, BLOCK_NONE, NULL}};

static const char *const allocators[] = {
    [BLOCK_NONE] = ALLOCATOR_CUDA,         [BLOCK_DEVICE] = ALLOCATOR_CUDA,
    [BLOCK_MANAGED] = ALLOCATOR_CUDA,      [BLOCK_POOL] = ALLOCATOR_CUDA,
    [BLOCK_ARRAY] = ALLOCATOR_CUDA,        [BLOCK_PINNED] = ALLOCATOR_CUDA,
    [BLOCK_PHYSICAL] = ALLOCATOR_PHYSICAL, [BLOCK_MAPPED] = ALLOCATOR_MAPPED,
    [BLOCK_RESERVED] = ALLOCATOR_RESERVED, [BLOCK_REGISTERED] = ALLOCATOR_REGISTERED,
    [BLOCK_RETAINED] = ALLOCATOR_PHYSICAL};

/* Functions on per-thread streams have the suffix _ptsz. Returns NULL for a function of no interest. */
static const struct function *function_of(const struct func *func)
{
    size_t length = strlen(func->name);
    if (strcmp(func->library, "cuda") != 0 && strcmp(func->library, "cudart") != 0) return NULL;
    if (!memchr("AFC", func->call_class[0], 3)) return NULL; /* ALLOC, FREE, CONTEXT */
    if (length > 5 && strcmp(func->name + length - 5, "_ptsz") == 0) length -= 5;
    for (size_t i = 0; i < ARRAY_SIZE(functions); i++)
        if (strlen(functions[i].name) == length && memcmp(functions[i].name, func->name, length) == 0)
            return &functions[i];
    return NULL;
}

struct call {
    const struct func *func;
    const uint64_t *arg;
    uint32_t args;
    uint64_t time, end;
    int64_t result;
    uint64_t stack;
};

/* Returns an argument, or `absent`. */
static uint64_t argument(const struct call *call, const char *name, uint64_t absent)
{
    int at = load_argument(call->func, name);
    return at < 0 || (uint32_t)at >= call->args ? absent : call->arg[at];
}

/* Returns the product of the rows of pitched memory, or the bytes of other memory; 0 if it is none or too large. */
static uint64_t bytes_of(const struct call *call)
{
    uint64_t bytes = argument(call, "bytes", 0), pitch = argument(call, "pitch", 0), rows;
    if (pitch) {
        bool is_odd = __builtin_mul_overflow(argument(call, "height", 0), argument(call, "depth", 1), &rows);
        if (is_odd || __builtin_mul_overflow(pitch, rows, &bytes)) return 0;
    }
    return bytes >> MOST_BYTES ? 0 : bytes;
}

static int64_t device_of(const struct load *load, const struct call *call, unsigned kind)
{
    uint32_t chosen = map_get(&load->device_of_thread, load->piece->thread);
    int64_t device = (int64_t)argument(call, "device", (uint64_t)DEVICE_OTHER);
    if (kind == BLOCK_PINNED || kind == BLOCK_REGISTERED) return DEVICE_HOST;
    if (kind == BLOCK_PHYSICAL && argument(call, "location", LOCATION_DEVICE) != LOCATION_DEVICE) return DEVICE_HOST;
    if (device >= 0 && device < MAP_NONE) return device;
    if (strcmp(call->func->library, "cudart") != 0) return DEVICE_OTHER;
    return chosen == MAP_NONE ? 0 : (int64_t)chosen;
}

static void append_block(struct load *load, struct blocks *to, const struct call *call, const struct function *function)
{
    bool allocates = function->what == ALLOCATES;
    const char *allocator = allocators[function->kind];
    blocks_reserve(to, 1);
    size_t at = to->table.count++;
    to->time[at] = (int64_t)(allocates || function->kind == BLOCK_RETAINED ? call->end : call->time);
    to->address[at] = argument(call, function->address, 0);
    to->bytes[at] = allocates ? (int64_t)bytes_of(call) : 0;
    to->allocated[at] = to->reserved[at] = TOTAL_UNKNOWN;
    to->device[at] = allocates ? device_of(load, call, function->kind) : DEVICE_OTHER;
    to->thread[at] = load->piece->thread;
    to->allocator[at] = names_add(load->names, allocator, strlen(allocator));
    to->stack[at] = load_stack(load, call->stack);
    to->other[at] = function->kind == BLOCK_MAPPED ? argument(call, allocates ? "handle" : "bytes", 0) : 0;
    to->kind[at] = (uint8_t)function->kind;
}

/* Adds a block that a call gave or took, to the lists that are wanted. */
static void add_block(struct load *load, const struct call *call, const struct function *function)
{
    struct process *p = load->process;
    bool is_grant =
        function->kind == BLOCK_DEVICE || function->kind == BLOCK_MAPPED || function->kind == BLOCK_RESERVED;
    if (load->needs.all_blocks) append_block(load, &p->blocks, call, function);
    if (load->needs.grants && is_grant) append_block(load, &p->grants, call, function);
}

static void take_memory_call(struct load *load, const struct call *call)
{
    struct process *p = load->process;
    const struct function *function = function_of(call->func);
    uint64_t device = argument(call, "device", UINT64_MAX);
    if (!function || argument(call, "captured", 0)) return;
    if (function->what == CHOOSES) {
        if (!call->result && device < MAP_NONE) map_put(&load->device_of_thread, load->piece->thread, (uint32_t)device);
    } else if (!call->result) {
        bool frees = function->what == FREES;
        if (frees ? argument(call, function->address, 0) : bytes_of(call)) add_block(load, call, function);
    } else if (call->result == OUT_OF_MEMORY && function->what == ALLOCATES && load->needs.all_blocks) {
        append_block(load, &p->ooms, call, function);
    }
}

void load_cuda_blocks(struct load *load)
{
    const uint32_t *first = NULL;
    const uint64_t *func = load_column(load, COL_call_func), *time = load_column(load, COL_call_time);
    const uint64_t *duration = load_column(load, COL_call_duration), *result = load_column(load, COL_call_result);
    const uint64_t *stack = load_column(load, COL_call_stack);
    int args = load->group->kind->own[COL_call_args];
    const uint64_t *values = group_list(&load->reader.decoder, load->group, args, &first);
    if (load->group->damaged || !values) return;
    for (uint32_t i = 0; i < load->group->count; i++) {
        uint32_t place = load_func(load, func[i]);
        struct call call = {.func = &load->process->func[place],
                            .arg = values + first[i],
                            .args = first[i + 1] - first[i],
                            .time = time[i],
                            .result = (int64_t)result[i],
                            .stack = stack[i]};
        if (__builtin_add_overflow(time[i], duration[i], &call.end)) call.end = time[i];
        take_memory_call(load, &call);
    }
}
