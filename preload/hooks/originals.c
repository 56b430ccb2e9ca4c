/* originals.c - finds the originals of all libraries but libc, whose functions hooks.c finds.
 *
 * Only hooks of functions that take the loader's lock themselves come here: it is taken here too.
 * Originals of a library are looked up in the library itself, if it is already mapped (RTLD_NOLOAD), because RTLD_NEXT
 * does not see libraries that were opened RTLD_LOCAL. A failed look-up goes on outside the table (hidden_originals.c), and is
 * tried again at the next call.
 *
 * A process may hold two major versions of a library, each with clients of its own, and wheels rename the copies they
 * bring. An original therefore comes from the first of these that has it: the copy that the caller's own object needs,
 * the latest look-up that dlsym answered with the wrapper, the copies in the order of the table. The first call from a
 * page of code looks at the caller's object (copies.c). While only one copy is used, all callers share one original.
 * From the second copy on, each page of code has the originals of its copy.
 * One case is wrong: an object that takes the place of an unloaded one, needs another copy, and calls before any dlsym
 * call is taken for the unloaded object.
 */
#include <dlfcn.h>
#include <link.h>

#include "base/raw_dlsym.h"
#include "control/config.h"
#include "hooks/copies.h"
#include "hooks/hidden_originals.h"
#include "hooks/hooks.h"

#define MAX_SONAME 64

/* The next soname of a list. */
static bool next_soname(const char **list, char soname[MAX_SONAME])
{
    return tfi_next_name(list, soname, MAX_SONAME);
}

static int first_object(struct dl_phdr_info *info, size_t size, void *adds)
{
    (void)size;
    *(unsigned long long *)adds = info->dlpi_adds;
    return 1;
}

/* Returns how many copies of a library are known. First it looks for mapped copies under each of the library's sonames.
 * The loader searches directories for a name that is not mapped, so the sonames are looked up only at the first call
 * and after another object was loaded. */
static unsigned copies_of(enum tfi_hook library)
{
    static unsigned long long known[TFI_NR_HOOKS]; /* by library: objects loaded up to the last search */
    const char *list = tfi_hook_names(library);
    char soname[MAX_SONAME];
    unsigned long long *mine = &known[library], adds = 0;
    dl_iterate_phdr(first_object, &adds);
    if (__atomic_load_n(mine, __ATOMIC_RELAXED) != adds) {
        while (next_soname(&list, soname)) tfi_copy_open(soname);
        __atomic_store_n(mine, adds, __ATOMIC_RELAXED);
    }
    return tfi_copies_known(tfi_hook_names(library));
}

/* Looks a symbol up in the mapped libraries of the sonames, in their order. */
static void *find_listed(enum tfi_hook library, const char *symbol)
{
    const char *list = tfi_hook_names(library);
    char soname[MAX_SONAME];
    void *real = NULL, *handle;
    while (!real && next_soname(&list, soname)) {
        handle = tfi_copy_open(soname);
        real = handle ? tfi_dlsym(handle, symbol) : NULL;
    }
    return real;
}

/* ---- libraries of which there may be several copies ---- */

#define NR_COPIED (TFI_COPIED_END - TFI_COPIED_BEGIN)

uintptr_t tfi_pages[TFI_PAGES];
uint64_t tfi_hook_loads;

_Static_assert(TFI_COPIES < 1 << TFI_PAGE_COPY_BITS && TFI_COPY_NONE == -1, "a page's copy");
static void *originals[TFI_COPIES][NR_COPIED]; /* by copy */
static void *given[NR_COPIED];                 /* the original behind the latest wrapper that dlsym returned */
static uint32_t several[TFI_NR_HOOKS];         /* by library: originals are by copy, no longer in tfi_hooks */

static void use_several(enum tfi_hook library)
{
    __atomic_store_n(&several[library], 1, __ATOMIC_SEQ_CST);
    for (unsigned i = library + 1; i < TFI_NR_HOOKS && tfi_hook_library((enum tfi_hook)i) == library; i++)
        __atomic_store_n(&tfi_hooks[i].real, NULL, __ATOMIC_SEQ_CST);
}

/* Keeps `real` as the original for all callers, if only one copy is used. */
static void keep_original(enum tfi_hook hook, enum tfi_hook library, void *real)
{
    uint32_t *flag = &several[library];
    if (__atomic_load_n(flag, __ATOMIC_SEQ_CST)) return;
    __atomic_store_n(&tfi_hooks[hook].real, real, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(flag, __ATOMIC_SEQ_CST)) __atomic_store_n(&tfi_hooks[hook].real, NULL, __ATOMIC_SEQ_CST);
}

static void *of_copy(int copy, enum tfi_hook hook)
{
    void **place = &originals[copy][hook - TFI_COPIED_BEGIN];
    void *real = __atomic_load_n(place, __ATOMIC_RELAXED);
    if (TFI_LIKELY(real != NULL)) return real;
    real = tfi_dlsym(tfi_copy_handle(copy), tfi_hook_symbol(hook));
    __atomic_store_n(place, real, __ATOMIC_RELAXED);
    return real;
}

/* Looks an original up in the copies used so far, in the order of the table. */
static void *of_known(enum tfi_hook library, enum tfi_hook hook)
{
    const char *list = tfi_hook_names(library);
    char soname[MAX_SONAME];
    void *real = NULL;
    while (!real && next_soname(&list, soname)) {
        int copy = tfi_copy_known(soname);
        if (copy != TFI_COPY_NONE) real = of_copy(copy, hook);
    }
    return real;
}

/* True if the caller's page is known; sets `copy` to the copy that its object needs. */
static bool is_known(enum tfi_hook hook, const void *caller, int *copy)
{
    uintptr_t page = __atomic_load_n(tfi_hook_page(caller), __ATOMIC_RELAXED);
    *copy = (int)(page % (1u << TFI_PAGE_COPY_BITS)) - 1;
    return page >> TFI_PAGE_COPY_BITS == tfi_hook_page_key(hook, caller);
}

/* Finds the copy that a caller's object needs and notes the caller's page. The page is noted last: from then on calls
 * of other threads from that page use it. */
static int look_at(enum tfi_hook library, enum tfi_hook hook, const void *caller)
{
    uintptr_t key = tfi_hook_page_key(hook, caller);
    int copy = tfi_copy_needed(caller, tfi_hook_names(library));
    if (!__atomic_load_n(&several[library], __ATOMIC_RELAXED) && tfi_copies_known(tfi_hook_names(library)) > 1)
        use_several(library);
    __atomic_store_n(tfi_hook_page(caller), key << TFI_PAGE_COPY_BITS | (uintptr_t)(copy + 1), __ATOMIC_RELEASE);
    return copy;
}

static void *find_copy(enum tfi_hook library, enum tfi_hook hook, const void *caller)
{
    int copy;
    if (!is_known(hook, caller, &copy)) copy = look_at(library, hook, caller);
    void *real = copy != TFI_COPY_NONE ? of_copy(copy, hook) : NULL;
    if (!real) real = __atomic_load_n(&given[hook - TFI_COPIED_BEGIN], __ATOMIC_RELAXED);
    if (!real) real = of_known(library, hook);
    if (!real) real = find_listed(library, tfi_hook_symbol(hook));
    if (real) keep_original(hook, library, real);
    return real;
}

void tfi_hook_given(enum tfi_hook hook, void *real, const char *file)
{
    tfi_copy_note(file);
    __atomic_store_n(&given[hook - TFI_COPIED_BEGIN], real, __ATOMIC_RELAXED);
}

static void *find_original(enum tfi_hook library, const char *symbol, const void *caller)
{
    int copy = tfi_copy_needed(caller, tfi_hook_names(library));
    void *real = copy != TFI_COPY_NONE ? tfi_dlsym(tfi_copy_handle(copy), symbol) : NULL;
    return real ? real : find_listed(library, symbol);
}

TFI_COLD void *tfi_original_find(enum tfi_hook hook, const void *caller)
{
    int error = errno;
    enum tfi_hook library = tfi_hook_library(hook);
    void *real = tfi_elsewhere_known(hook, caller);
    if (real) return real;
    if (tfi_hook_is_copied(hook)) {
        real = find_copy(library, hook, caller);
    } else {
        real = find_listed(library, tfi_hook_symbol(hook));
        if (real) __atomic_store_n(&tfi_hooks[hook].real, real, __ATOMIC_RELAXED);
    }
    if (!real) real = tfi_elsewhere(hook, tfi_hook_symbol(hook), caller);
    errno = error;
    return real;
}

TFI_COLD void *tfi_hook_sibling(enum tfi_hook hook, const char *symbol, const void *caller)
{
    int error = errno;
    void *real = find_original(tfi_hook_library(hook), symbol, caller);
    errno = error;
    return real;
}

bool tfi_hook_several(enum tfi_hook library)
{
    int error = errno;
    bool many = copies_of(library) > 1;
    errno = error;
    return many;
}

TFI_COLD void tfi_hook_look_again(enum tfi_hook library)
{
    if (tfi_hook_several(library)) use_several(library);
}
