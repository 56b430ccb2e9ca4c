/* cuda_routes.c - dlsym and cuGetProcAddress lead to our wrappers.
 *
 * Whoever opens libcuda.so.1 and asks for a function by name has passed by the symbols that we stand before: every copy
 * of the runtime does, also those linked statically into cuBLAS or NCCL, and so do Triton and cuFFT. They get the wrapper
 * of that ABI variant, which calls what they would have got: the address is kept as the row's original. While there
 * are two copies of the runtime, whoever asks one of them for a function gets it unwrapped. The same goes for CUPTI, which
 * Triton's profiler opens that way: it has to pass the broker, or it would take our records' place.
 * A wrong wrapper would be worse than none. So a version later than those of our table counts only if the address is
 * the one that the symbol of the row has; and cuGetExportTable is passed by.
 */
#include "cuda_routes.h"

#include <dlfcn.h>

#include "cupti_client.h"
#include "dl.h"

_Static_assert(TFI_LIBRARY_cuda < TFI_LIBRARY_cudart && TFI_LIBRARY_cudart < TFI_LIBRARY_cupti,
               "the driver's rows come first, CUPTI's last");

/* CUDA_VERSION of the cudaTypedefs.h that cuda_routes.def was made from. */
#define NEWEST_KNOWN 13050u

/* The name is in it, as a pointer would have to be relocated in every program that is started. */
struct route {
    char name[52];
    unsigned version;
    enum tfi_hook hook;
    bool per_thread;
};

#define ROUTE(name, version, symbol) {#name, version, TFI_HOOK_##symbol, false},
#define ROUTE_PER_THREAD(name, version, symbol) {#name, version, TFI_HOOK_##symbol, true},
static const struct route routes[] = {
#include "cuda_routes.def"
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

/* The function a row's wrapper calls: this one, unless another was found before. */
static void *original(enum tfi_hook hook, void *function)
{
    void *known = NULL;
    __atomic_compare_exchange_n(&tfi_hooks[hook].real, &known, function, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return known ? known : function;
}

/* True if the function is the one that the symbol of the row has. */
static bool is_symbol_of(const struct route *route, const void *found)
{
    return route && found == tfi_hook_sibling(route->hook, tfi_hook_symbol(route->hook), NULL);
}

/* The driver had variants by thread from CUDA 7 on: what it gives to those that ask for one of an earlier version, its
 * address says. */
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

/* The file that an address lies in, if its name begins so; NULL if not. */
static const char *file_of(const void *address, const char *library)
{
    Dl_info info;
    bool found = dladdr(address, &info) && info.dli_fname && tfi_dl_is(info.dli_fname, library);
    return found ? info.dli_fname : NULL;
}

/* There is one driver in a process, so whichever address of a function came first will do. */
static void *driver_symbol(enum tfi_hook hook, void *found)
{
    if (!file_of(found, "libcuda")) return NULL;
    original(hook, found);
    return tfi_cuda_wrapper(hook);
}

/* True if the wrapper stands for that function of a library that a process may hold in several copies. */
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
    return wrapped(TFI_LIBRARY_cupti, hook, found, "libcupti") ? tfi_broker_wrapper(hook) : NULL;
}

/* The row of that name; that of CUPTI's library if there is none. */
static enum tfi_hook row_named(const char *name)
{
    enum tfi_hook hook;
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
    if (hook > TFI_LIBRARY_cupti) return found == tfi_broker_wrapper(hook);
    return found == (hook < TFI_LIBRARY_cudart ? tfi_cuda_wrapper(hook) : tfi_cudart_wrapper(hook));
}
