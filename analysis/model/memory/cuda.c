/* cuda.c - loads the blocks that calls of CUDA's runtime and driver allocate and free.
 *
 * A call tells its device only through the calls before it: the device that its thread chose with cudaSetDevice or made
 * a context on, or the runtime's first one. The driver's current context is not recorded, so that the device of a call
 * of the driver stays unknown here (DEVICE_OTHER). An allocation counts from the call's end, and what is freed is gone
 * at the call's start: a block at the address of a freed one comes after it, whichever threads made the calls. Graphs'
 * allocations, arrays and imported memory are left out.
 */
#include <string.h>

#include "model/load/load.h"

enum what { OTHER, BLOCK, PITCHED, PINNED, PHYSICAL, FREES, RELEASES, CHOOSES };
enum { OUT_OF_MEMORY = 2, MOST_BYTES = 62 /* a block has fewer than 2^62 bytes */ };

static const struct {
    const char *name;
    enum what what;
} functions[] = {{"cudaMalloc", BLOCK},
                 {"cudaMallocAsync", BLOCK},
                 {"cudaMallocFromPoolAsync", BLOCK},
                 {"cudaMallocManaged", BLOCK},
                 {"cuMemAlloc_v2", BLOCK},
                 {"cuMemAllocAsync", BLOCK},
                 {"cuMemAllocFromPoolAsync", BLOCK},
                 {"cuMemAllocManaged", BLOCK},
                 {"cudaMallocPitch", PITCHED},
                 {"cudaMalloc3D", PITCHED},
                 {"cuMemAllocPitch_v2", PITCHED},
                 {"cudaMallocHost", PINNED},
                 {"cudaHostAlloc", PINNED},
                 {"cuMemAllocHost_v2", PINNED},
                 {"cuMemHostAlloc", PINNED},
                 {"cuMemCreate", PHYSICAL},
                 {"cudaFree", FREES},
                 {"cudaFreeAsync", FREES},
                 {"cudaFreeHost", FREES},
                 {"cuMemFree_v2", FREES},
                 {"cuMemFreeAsync", FREES},
                 {"cuMemFreeHost", FREES},
                 {"cuMemRelease", RELEASES},
                 {"cudaSetDevice", CHOOSES},
                 {"cuCtxCreate", CHOOSES},
                 {"cuCtxCreate_v2", CHOOSES},
                 {"cuCtxCreate_v3", CHOOSES},
                 {"cuCtxCreate_v4", CHOOSES}};

/* Functions on per-thread streams have the suffix _ptsz. */
static enum what what_of(const struct func *func)
{
    size_t length = strlen(func->name);
    if (strcmp(func->library, "cuda") != 0 && strcmp(func->library, "cudart") != 0) return OTHER;
    if (!memchr("AFC", func->call_class[0], 3)) return OTHER; /* ALLOC, FREE, CONTEXT */
    if (length > 5 && strcmp(func->name + length - 5, "_ptsz") == 0) length -= 5;
    for (size_t i = 0; i < ARRAY_SIZE(functions); i++)
        if (strlen(functions[i].name) == length && memcmp(functions[i].name, func->name, length) == 0)
            return functions[i].what;
    return OTHER;
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
static uint64_t bytes_of(const struct call *call, enum what what)
{
    uint64_t bytes = argument(call, "bytes", 0), rows;
    if (what == PITCHED) {
        bool is_odd = __builtin_mul_overflow(argument(call, "height", 0), argument(call, "depth", 1), &rows);
        if (is_odd || __builtin_mul_overflow(argument(call, "pitch", 0), rows, &bytes)) return 0;
    }
    return bytes >> MOST_BYTES ? 0 : bytes;
}

static int64_t device_of(const struct load *load, const struct call *call, enum what what)
{
    uint32_t chosen = map_get(&load->device_of_thread, load->piece->thread);
    if (what == PINNED) return DEVICE_HOST;
    if (strcmp(call->func->library, "cudart") != 0) return DEVICE_OTHER;
    return chosen == MAP_NONE ? 0 : (int64_t)chosen;
}

static void add(struct load *load, struct blocks *to, const struct call *call, enum what what)
{
    bool is_allocation = what < FREES, is_physical = what == PHYSICAL || what == RELEASES;
    const char *allocator = is_physical ? ALLOCATOR_PHYSICAL : ALLOCATOR_CUDA;
    blocks_reserve(to, 1);
    size_t at = to->table.count++;
    to->time[at] = (int64_t)(is_allocation ? call->end : call->time);
    to->address[at] = argument(call, is_physical ? "handle" : "address", 0);
    to->bytes[at] = is_allocation ? (int64_t)bytes_of(call, what) : 0;
    to->allocated[at] = to->reserved[at] = TOTAL_UNKNOWN;
    to->device[at] = is_allocation ? device_of(load, call, what) : DEVICE_OTHER;
    to->thread[at] = load->piece->thread;
    to->allocator[at] = names_add(load->names, allocator, strlen(allocator));
    to->stack[at] = load_stack(load, call->stack);
}

static void take(struct load *load, const struct call *call)
{
    struct process *p = load->process;
    enum what what = what_of(call->func);
    uint64_t device = argument(call, "device", UINT64_MAX);
    if (what == OTHER) return;
    if (what == CHOOSES) {
        if (!call->result && device < MAP_NONE) map_put(&load->device_of_thread, load->piece->thread, (uint32_t)device);
    } else if (!call->result) {
        bool is_some = what >= FREES ? argument(call, "address", 0) || what == RELEASES : bytes_of(call, what) != 0;
        if (is_some) add(load, &p->blocks, call, what);
    } else if (call->result == OUT_OF_MEMORY && what < FREES) {
        add(load, &p->ooms, call, what);
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
        take(load, &call);
    }
}
