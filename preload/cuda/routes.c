/* routes.c - makes dlsym and cuGetProcAddress return our wrappers.
 *
 * A program that opens libcuda.so.1 and looks up a function by name bypasses the symbols that we interpose. Every
 * copy of the runtime does so, also those linked statically into cuBLAS or NCCL, and so do Triton and cuFFT. They get
 * the wrapper of that ABI variant. It calls the function that they would have got: its address is stored as the row's
 * original. While there are two copies of the runtime, a look-up in one of them returns the function unwrapped. The
 * same holds for CUPTI, which Triton's profiler opens that way: a client that reaches CUPTI without our wrappers would
 * replace our records. vLLM opens NCCL by a path and looks its functions up.
 *
 * A wrong wrapper would be worse than none. A version later than those of our table therefore counts only if the
 * address equals that of the row's symbol. cuGetExportTable is not wrapped.
 */
#include "cuda/routes.h"

#include <dlfcn.h>

#include "base/raw_dlsym.h"
#include "cupti/client.h"
#include "hooks/copies.h"
#include "nccl/nccl.h"

_Static_assert(TFI_LIBRARY_cuda < TFI_LIBRARY_cudart && TFI_LIBRARY_cudart < TFI_LIBRARY_cupti &&
                   TFI_LIBRARY_cupti < TFI_LIBRARY_nccl,
               "the driver's rows come first, then the runtime's, CUPTI's and NCCL's");

/* CUDA_VERSION of the cudaTypedefs.h that routes.def was made from. */
#define NEWEST_KNOWN 13050u

/* The name is stored inside, because a pointer would have to be relocated in every program that is started. */
struct route {
    char name[52];
    unsigned version;
    enum tfi_hook hook;
    bool per_thread;
};

#define ROUTE(name, version, symbol) {#name, version, TFI_HOOK_##symbol, false},
#define ROUTE_PER_THREAD(name, version, symbol) {#name, version, TFI_HOOK_##symbol, true},
static const struct route routes[] = {
#include "cuda/routes.def"
};

static const struct route *choose(const char *name, unsigned version, bool per_thread)
{
    const struct route *best = NULL;
    for (size_t i = 0; i < TFI_COUNT(routes); i++)
        if (routes[i].per_thread == per_thread && routes[i].version <= version && strcmp(routes[i].name, name) == 0)
            best = &routes[i];
    return best;
}

static bool has_variant_per_thread(const char *name)
{
    for (size_t i = 0; i < TFI_COUNT(routes); i++)
        if (routes[i].per_thread && strcmp(routes[i].name, name) == 0) return true;
    return false;
}

static bool is_ours(const void *function)
{
    for (size_t i = 0; i < TFI_COUNT(routes); i++)
        if (tfi_cuda_wrapper(routes[i].hook) == function) return true;
    return false;
}

/* Sets the function that a row's wrapper calls, unless another was found before, and returns the one in use. */
static void *original(enum tfi_hook hook, void *function)
{
    void *known = NULL;
    __atomic_compare_exchange_n(&tfi_hooks[hook].real, &known, function, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return known ? known : function;
}

/* True if the function is that of the row's symbol. */
static bool is_symbol_of(const struct route *route, const void *found)
{
    return route && found == tfi_hook_sibling(route->hook, tfi_hook_symbol(route->hook), NULL);
}

/* Per-thread variants exist in the driver from CUDA 7 on. If an earlier version is asked for, the address tells
 * which function the driver returned. */
void *tfi_route_driver(const char *name, unsigned version, uint64_t flags, void *found)
{
    bool per_thread = (flags & TFI_ROUTE_PER_THREAD) && has_variant_per_thread(name);
    const struct route *route = choose(name, version, per_thread);
    bool sure = route && version <= NEWEST_KNOWN;
    if (is_ours(found)) return found;
    if (!route && per_thread) route = choose(name, version, false);
    if (!route || (!sure && !is_symbol_of(route, found))) return found;
    original(route->hook, found);
    return tfi_cuda_wrapper(route->hook);
}

/* Name of the file that an address lies in, if it begins with `library`; NULL otherwise. */
static const char *file_of(const void *address, const char *library)
{
    Dl_info info;
    bool found = dladdr(address, &info) && info.dli_fname && tfi_copy_is(info.dli_fname, library);
    return found ? info.dli_fname : NULL;
}

/* Keeps a driver function's address for our wrapper, and returns the wrapper. Returns NULL if the address is not in
 * libcuda. A process has only one driver, so the first address found is kept. */
static void *driver_symbol(enum tfi_hook hook, void *found)
{
    if (!file_of(found, "libcuda")) return NULL;
    original(hook, found);
    return tfi_cuda_wrapper(hook);
}

/* True if our wrapper replaces a function of a library that may be in the process in several copies. */
static bool wrapped(enum tfi_hook library, enum tfi_hook hook, void *found, const char *name)
{
    const char *file = file_of(found, name);
    if (!file || tfi_hook_several(library) || original(hook, found) != found) return false;
    tfi_hook_given(hook, found, file);
    return true;
}

static void *runtime_symbol(enum tfi_hook hook, void *found)
{
    return wrapped(TFI_LIBRARY_cudart, hook, found, "libcudart") ? tfi_cudart_wrapper(hook) : NULL;
}

static void *cupti_symbol(enum tfi_hook hook, void *found)
{
    return wrapped(TFI_LIBRARY_cupti, hook, found, "libcupti") ? tfi_other_wrapper(hook) : NULL;
}

/* A second copy of NCCL is called unwrapped: its communicators mean nothing to the first. */
static void *nccl_symbol(enum tfi_hook hook, void *found)
{
    const char *file = file_of(found, "libnccl");
    if (!file) file = file_of(found, "librccl");
    if (!file || original(hook, found) != found) return NULL;
    tfi_copy_note(file);
    return tfi_nccl_wrapper(hook);
}

/* Row of that name; TFI_LIBRARY_cupti if there is none. */
static enum tfi_hook row_named(const char *name)
{
    enum tfi_hook hook;
    if (name[0] == 'n' || name[0] == 'm')
        return (hook = tfi_hook_named(TFI_LIBRARY_nccl, name)) != TFI_LIBRARY_nccl ? hook : TFI_LIBRARY_cupti;
    if (strncmp(name, "cupti", 5) == 0) return tfi_hook_named(TFI_LIBRARY_cupti, name);
    if ((hook = tfi_hook_named(TFI_LIBRARY_cuda, name)) != TFI_LIBRARY_cuda) return hook;
    return (hook = tfi_hook_named(TFI_LIBRARY_cudart, name)) != TFI_LIBRARY_cudart ? hook : TFI_LIBRARY_cupti;
}

void *tfi_route_symbol(void *handle, const char *name)
{
    enum tfi_hook hook = row_named(name);
    if (hook == TFI_LIBRARY_cupti) return NULL;
    void *found = tfi_dlsym(handle, name);
    if (!found) return NULL;
    if (hook > TFI_LIBRARY_nccl) return nccl_symbol(hook, found);
    if (hook > TFI_LIBRARY_cupti) return cupti_symbol(hook, found);
    return hook < TFI_LIBRARY_cudart ? driver_symbol(hook, found) : runtime_symbol(hook, found);
}

bool tfi_route_is_row(const char *name)
{
    return row_named(name) != TFI_LIBRARY_cupti;
}

bool tfi_route_is_missing(const char *name, const void *caller)
{
    return !tfi_hook_sibling(row_named(name), name, caller);
}

bool tfi_route_is_ours(void *handle, const char *name)
{
    enum tfi_hook hook = row_named(name);
    void *found = hook == TFI_LIBRARY_cupti ? NULL : tfi_dlsym(handle, name);
    if (!found) return false;
    if (hook > TFI_LIBRARY_nccl) return found == tfi_nccl_wrapper(hook);
    if (hook > TFI_LIBRARY_cupti) return found == tfi_other_wrapper(hook);
    return found == (hook < TFI_LIBRARY_cudart ? tfi_cuda_wrapper(hook) : tfi_cudart_wrapper(hook));
}
