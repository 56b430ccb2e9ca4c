/* hidden_originals.c - finds originals that lie in no library of their table: renamed copies, and code linked into a plugin.
 *
 * An exported wrapper also catches calls that would not reach a library of its table: those of a plugin that contains
 * the functions itself, or needs a copy under another name. They have to reach that code. Nothing found here is
 * referenced, so the program can unload it. An answer is therefore kept for its caller's page of code only, and only
 * until the next call of dlsym, as for copies (hooks.c).
 */
#include "hooks/hidden_originals.h"

#include <dlfcn.h>
#include <stdbool.h>

#include "base/raw_dlsym.h"
#include "hooks/hooks.h"

enum { PLACES = 64, HOOK_BITS = 12, PAGE_BITS = 35 }; /* an address of a program has 47 bits */
_Static_assert(TFI_NR_HOOKS <= 1 << HOOK_BITS, "the number of a hook in a key");

static struct {
    uint64_t key; /* 0 while the place is free or being written */
    void *real;
} known[PLACES];
static uint32_t writing; /* one thread writes at a time; a fork meanwhile ends the writing for ever */

static uint64_t key_of(unsigned hook, const void *caller)
{
    uint64_t page = (uintptr_t)caller >> TFI_PAGE_BITS & ((1ull << PAGE_BITS) - 1);
    uint64_t loads = __atomic_load_n(&tfi_hook_loads, __ATOMIC_RELAXED);
    return loads << (HOOK_BITS + PAGE_BITS) | (uint64_t)hook << PAGE_BITS | page;
}

static unsigned place_of(unsigned hook, const void *caller)
{
    return (unsigned)(((uintptr_t)caller >> TFI_PAGE_BITS) + hook) % PLACES;
}

void *tfi_elsewhere_known(unsigned hook, const void *caller)
{
    unsigned i = place_of(hook, caller);
    uint64_t key = key_of(hook, caller);
    if (__atomic_load_n(&known[i].key, __ATOMIC_ACQUIRE) != key) return NULL;
    void *real = __atomic_load_n(&known[i].real, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&known[i].key, __ATOMIC_RELAXED) == key ? real : NULL;
}

static void keep_original(unsigned hook, const void *caller, void *real)
{
    unsigned i = place_of(hook, caller);
    if (__atomic_exchange_n(&writing, 1, __ATOMIC_ACQUIRE)) return;
    __atomic_store_n(&known[i].key, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&known[i].real, real, __ATOMIC_SEQ_CST);
    __atomic_store_n(&known[i].key, key_of(hook, caller), __ATOMIC_RELEASE);
    __atomic_store_n(&writing, 0, __ATOMIC_RELEASE);
}

static bool is_ours(const void *function)
{
    Dl_info here, there;
    return dladdr((const void *)is_ours, &here) && dladdr(function, &there) && here.dli_fbase == there.dli_fbase;
}

/* Looks in the scope of the caller's own object: itself and what it needs. */
static void *seen_by(const void *caller, const char *symbol)
{
    Dl_info from;
    if (!dladdr(caller, &from) || !from.dli_fname) return NULL;
    void *handle = dlopen(from.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle) return NULL;
    void *found = tfi_dlsym(handle, symbol);
    dlclose(handle);
    return found && !is_ours(found) ? found : NULL;
}

void *tfi_elsewhere(unsigned hook, const char *symbol, const void *caller)
{
    void *real = tfi_dlsym(RTLD_NEXT, symbol);
    if (!real) real = seen_by(caller, symbol);
    dlerror(); /* clears the error: the program would take it for one of its own */
    if (real) keep_original(hook, caller, real);
    return real;
}
