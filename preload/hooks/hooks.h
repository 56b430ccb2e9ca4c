/* hooks.h - expands the tables of intercepted functions to numbers, originals and names. */
#ifndef TFI_HOOKS_H
#define TFI_HOOKS_H

#include <errno.h>

#include "base/tfi.h"

struct tfi_thread;

#define LIBRARY(name, soname) TFI_LIBRARY_##name,
#define HOOK(class, ret, symbol, params, args, names, values) TFI_HOOK_##symbol,
#define HOOK_VOID(class, ret, symbol, params, args, names, values) TFI_HOOK_##symbol,
#define HOOK_CUSTOM(class, ret, symbol, params, names) TFI_HOOK_##symbol,
#define HOOK_CUSTOM_VOID(class, ret, symbol, params, names) TFI_HOOK_##symbol,
enum tfi_hook {
#include "hooks.def"
    TFI_NR_HOOKS
};
#undef LIBRARY
#undef HOOK
#undef HOOK_VOID
#undef HOOK_CUSTOM
#undef HOOK_CUSTOM_VOID

struct tfi_hook_state {
    void *real;      /* the original function; NULL until looked up */
    uint32_t string; /* its description in the trace, valid while gen equals the process's */
    uint32_t gen;
};

extern struct tfi_hook_state tfi_hooks[];

/* Looks the original up; NULL if there is none. `caller` is an address in the code that called the wrapper. Keeps
 * errno. For libc: any thread, any time. */
void *tfi_hook_find(enum tfi_hook hook, const void *caller);

/* The same for all libraries but libc: originals.c. Takes the loader's lock. */
void *tfi_original_find(enum tfi_hook hook, const void *caller);

/* Looks up any function of the library to which a row belongs. */
void *tfi_hook_sibling(enum tfi_hook hook, const char *symbol, const void *caller);

/* True if several copies of a library are mapped. */
bool tfi_hook_several(enum tfi_hook library);

/* Called when another copy of a library may have been loaded: if there are several now, each call uses its caller's
 * copy from now on. */
void tfi_hook_look_again(enum tfi_hook library);

/* Called when dlsym returns a wrapper. `real` is the original for callers whose object needs no copy; `file` is the
 * path of its library. */
void tfi_hook_given(enum tfi_hook hook, void *real, const char *file);

/* The row of `symbol` in a library's table; the library itself if there is none. */
enum tfi_hook tfi_hook_named(enum tfi_hook library, const char *symbol);

/* The library to which a row belongs. */
enum tfi_hook tfi_hook_library(enum tfi_hook hook);

/* The names of the row's arguments; the sonames of a library, "" for libc. */
const char *tfi_hook_names(enum tfi_hook hook);

/* The row's symbol, and its class. */
const char *tfi_hook_symbol(enum tfi_hook hook);
const char *tfi_hook_class(enum tfi_hook hook);

/* The index of an argument among the row's values, -1 if there is none of that name. */
int tfi_hook_argument(enum tfi_hook hook, const char *name);

/* Libraries of which a process may hold several copies: the CUDA runtime and CUPTI. */
#define TFI_COPIED_BEGIN TFI_LIBRARY_cudart
#define TFI_COPIED_END TFI_LIBRARY_c10

static inline bool tfi_hook_is_copied(enum tfi_hook hook)
{
    return hook > TFI_COPIED_BEGIN && hook < TFI_COPIED_END;
}

/* Pages of code whose object was looked at. The low bits of an entry hold the copy that the object needs, counted
 * from 1, or 0. The key contains the library, because a call of one library says nothing about another. It also
 * contains the count of dlsym calls: another object may lie at the same place now, and code that loads an object
 * usually calls dlsym next. */
enum { TFI_PAGES = 1024, TFI_PAGE_BITS = 12, TFI_PAGE_COPY_BITS = 4, TFI_PAGE_KEY_BITS = 36 };
extern uintptr_t tfi_pages[TFI_PAGES];
extern uint64_t tfi_hook_loads;

static inline uintptr_t tfi_hook_page_key(enum tfi_hook hook, const void *caller)
{
    uintptr_t loads = __atomic_load_n(&tfi_hook_loads, __ATOMIC_RELAXED) << TFI_PAGE_COPY_BITS;
    uintptr_t page = (uintptr_t)caller >> TFI_PAGE_BITS << 1 | (hook > TFI_LIBRARY_cupti);
    return (loads << TFI_PAGE_KEY_BITS) >> TFI_PAGE_COPY_BITS | page;
}

static inline uintptr_t *tfi_hook_page(const void *caller)
{
    return &tfi_pages[((uintptr_t)caller >> TFI_PAGE_BITS) % TFI_PAGES];
}

static inline bool tfi_hook_page_known(enum tfi_hook hook, const void *caller)
{
    uintptr_t page = __atomic_load_n(tfi_hook_page(caller), __ATOMIC_RELAXED);
    return page >> TFI_PAGE_COPY_BITS == tfi_hook_page_key(hook, caller);
}

/* Returns the original for the wrapper's caller. Inlined, so that the return address is the wrapper's. */
static inline __attribute__((always_inline)) void *tfi_real(enum tfi_hook hook)
{
    const void *caller = __builtin_return_address(0);
    void *real = __atomic_load_n(&tfi_hooks[hook].real, __ATOMIC_RELAXED);
    bool known = !tfi_hook_is_copied(hook) || tfi_hook_page_known(hook, caller);
    return TFI_LIKELY(real != NULL && known) ? real : tfi_hook_find(hook, caller);
}

/* Interns the description of a row; sets the thread's guard meanwhile. */
uint32_t tfi_hook_string(struct tfi_thread *thread, enum tfi_hook hook);

/* Takes the call stack if the row's class needs one (launches, allocations, collectives), else returns 0. Sets the
 * thread's guard meanwhile. */
uint32_t tfi_hook_stack(struct tfi_thread *thread, enum tfi_hook hook);

/* Gives a call's thread a state if it has none, and wakes the process if it may. NULL: the call is not recorded. */
struct tfi_thread *tfi_call_attach(void);

#endif
