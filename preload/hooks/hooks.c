/* hooks.c - keeps the rows of all hook tables: originals, descriptions, and the slow paths of a wrapped call.
 *
 * Originals of a library are looked up in the library itself, if it is already mapped (RTLD_NOLOAD), because RTLD_NEXT
 * does not see libraries that were opened RTLD_LOCAL. A failed look-up goes on outside the table (elsewhere.c), and is
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
#include "hooks/hooks.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "base/fmt.h"
#include "base/process.h"
#include "base/raw_dlsym.h"
#include "hooks/copies.h"
#include "hooks/elsewhere.h"
#include "record/enter.h"
#include "record/strings.h"
#include "record/thread.h"
#include "stage/watch.h"

#define CLASS(name, text) CLASS_##name,
enum class {
    CLASS_OF_A_LIBRARY,
#include "classes.def"
};
#undef CLASS

#define CLASS(name, text) [CLASS_##name] = #name,
static const char *const classes[] = {
#include "classes.def"
};
#undef CLASS

/* All texts of the tables lie in one piece of memory, and rows hold offsets into it. Pointers would have to be
 * relocated in every program that is started. */
#define LIBRARY(name, soname)                                                                                          \
    char symbol_##name[sizeof #name];                                                                                  \
    char names_##name[sizeof soname];
#define HOOK(class, ret, symbol, params, args, names, values)                                                          \
    char symbol_##symbol[sizeof #symbol];                                                                              \
    char names_##symbol[sizeof names];
#define HOOK_VOID(class, ret, symbol, params, args, names, values) HOOK(class, ret, symbol, params, args, names, values)
#define HOOK_CUSTOM(class, ret, symbol, params, names) HOOK(class, ret, symbol, params, args, names, values)
#define HOOK_CUSTOM_VOID(class, ret, symbol, params, names) HOOK(class, ret, symbol, params, args, names, values)
struct texts {
#include "hooks.def"
};
#undef LIBRARY
#undef HOOK

#define LIBRARY(name, soname) #name, soname,
#define HOOK(class, ret, symbol, params, args, names, values) #symbol, names,
static const struct texts texts = {
#include "hooks.def"
};
#undef LIBRARY
#undef HOOK

struct row {
    uint32_t class; /* enum class */
    uint32_t symbol;
    uint32_t names; /* of the arguments; for a library: its soname, or several */
};

#define LIBRARY(name, soname)                                                                                          \
    [TFI_LIBRARY_##                                                                                                    \
        name] = {CLASS_OF_A_LIBRARY, offsetof(struct texts, symbol_##name), offsetof(struct texts, names_##name)},
#define HOOK(class, ret, symbol, params, args, names, values)                                                          \
    [TFI_HOOK_##                                                                                                       \
        symbol] = {CLASS_##class, offsetof(struct texts, symbol_##symbol), offsetof(struct texts, names_##symbol)},
static const struct row rows[TFI_NR_HOOKS] = {
#include "hooks.def"
};
#undef LIBRARY
#undef HOOK
#undef HOOK_VOID
#undef HOOK_CUSTOM
#undef HOOK_CUSTOM_VOID

static const char *symbol_of(const struct row *row)
{
    return (const char *)&texts + row->symbol;
}

static const char *names_of(const struct row *row)
{
    return (const char *)&texts + row->names;
}

struct tfi_hook_state tfi_hooks[TFI_NR_HOOKS];

#define LIBRARY(name, soname) TFI_LIBRARY_##name,
#define HOOK(class, ret, symbol, params, args, names, values)
#define HOOK_VOID(class, ret, symbol, params, args, names, values)
#define HOOK_CUSTOM(class, ret, symbol, params, names)
#define HOOK_CUSTOM_VOID(class, ret, symbol, params, names)
static const uint16_t libraries[] = {
#include "hooks.def"
};
#undef LIBRARY
#undef HOOK
#undef HOOK_VOID
#undef HOOK_CUSTOM
#undef HOOK_CUSTOM_VOID

static const struct row *library_of(enum tfi_hook hook)
{
    size_t i = TFI_COUNT(libraries) - 1;
    while (libraries[i] > hook) i--;
    return &rows[libraries[i]];
}

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
static unsigned copies_of(const struct row *library)
{
    static unsigned long long known[TFI_NR_HOOKS]; /* by library: objects loaded up to the last search */
    const char *list = names_of(library);
    char soname[MAX_SONAME];
    unsigned long long *mine = &known[library - rows], adds = 0;
    dl_iterate_phdr(first_object, &adds);
    if (__atomic_load_n(mine, __ATOMIC_RELAXED) != adds) {
        while (next_soname(&list, soname)) tfi_copy_open(soname);
        __atomic_store_n(mine, adds, __ATOMIC_RELAXED);
    }
    return tfi_copies_known(names_of(library));
}

/* Looks a symbol up in the mapped libraries of the sonames, in their order. */
static void *find_listed(const struct row *library, const char *symbol)
{
    const char *list = names_of(library);
    char soname[MAX_SONAME];
    void *real = NULL, *handle;
    if (!*list) return tfi_dlsym(RTLD_NEXT, symbol);
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

static void use_several(const struct row *library)
{
    enum tfi_hook first = (enum tfi_hook)(library - rows);
    __atomic_store_n(&several[first], 1, __ATOMIC_SEQ_CST);
    for (unsigned i = first + 1; i < TFI_NR_HOOKS && rows[i].class; i++)
        __atomic_store_n(&tfi_hooks[i].real, NULL, __ATOMIC_SEQ_CST);
}

/* Keeps `real` as the original for all callers, if only one copy is used. */
static void keep(enum tfi_hook hook, const struct row *library, void *real)
{
    uint32_t *flag = &several[library - rows];
    if (__atomic_load_n(flag, __ATOMIC_SEQ_CST)) return;
    __atomic_store_n(&tfi_hooks[hook].real, real, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(flag, __ATOMIC_SEQ_CST)) __atomic_store_n(&tfi_hooks[hook].real, NULL, __ATOMIC_SEQ_CST);
}

static void *of_copy(int copy, enum tfi_hook hook)
{
    void **place = &originals[copy][hook - TFI_COPIED_BEGIN];
    void *real = __atomic_load_n(place, __ATOMIC_RELAXED);
    if (TFI_LIKELY(real != NULL)) return real;
    real = tfi_dlsym(tfi_copy_handle(copy), symbol_of(&rows[hook]));
    __atomic_store_n(place, real, __ATOMIC_RELAXED);
    return real;
}

/* Looks an original up in the copies used so far, in the order of the table. */
static void *of_known(const struct row *library, enum tfi_hook hook)
{
    const char *list = names_of(library);
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
static int look_at(const struct row *library, enum tfi_hook hook, const void *caller)
{
    uintptr_t key = tfi_hook_page_key(hook, caller);
    int copy = tfi_copy_needed(caller, names_of(library));
    if (!__atomic_load_n(&several[library - rows], __ATOMIC_RELAXED) && tfi_copies_known(names_of(library)) > 1)
        use_several(library);
    __atomic_store_n(tfi_hook_page(caller), key << TFI_PAGE_COPY_BITS | (uintptr_t)(copy + 1), __ATOMIC_RELEASE);
    return copy;
}

static void *find_copy(const struct row *library, enum tfi_hook hook, const void *caller)
{
    int copy;
    if (!is_known(hook, caller, &copy)) copy = look_at(library, hook, caller);
    void *real = copy != TFI_COPY_NONE ? of_copy(copy, hook) : NULL;
    if (!real) real = __atomic_load_n(&given[hook - TFI_COPIED_BEGIN], __ATOMIC_RELAXED);
    if (!real) real = of_known(library, hook);
    if (!real) real = find_listed(library, symbol_of(&rows[hook]));
    if (real) keep(hook, library, real);
    return real;
}

void tfi_hook_given(enum tfi_hook hook, void *real, const char *file)
{
    tfi_copy_note(file);
    __atomic_store_n(&given[hook - TFI_COPIED_BEGIN], real, __ATOMIC_RELAXED);
}

/* ---- the functions of hooks.h ---- */

static void *find(const struct row *library, const char *symbol, const void *caller)
{
    int copy = tfi_copy_needed(caller, names_of(library));
    void *real = copy != TFI_COPY_NONE ? tfi_dlsym(tfi_copy_handle(copy), symbol) : NULL;
    return real ? real : find_listed(library, symbol);
}

TFI_COLD void *tfi_hook_find(enum tfi_hook hook, const void *caller)
{
    int error = errno;
    const struct row *library = library_of(hook);
    void *real = tfi_elsewhere_known(hook, caller);
    if (real) return real;
    if (tfi_hook_is_copied(hook)) {
        real = find_copy(library, hook, caller);
    } else {
        real = find_listed(library, symbol_of(&rows[hook]));
        if (real) __atomic_store_n(&tfi_hooks[hook].real, real, __ATOMIC_RELAXED);
    }
    if (!real && *names_of(library)) real = tfi_elsewhere(hook, symbol_of(&rows[hook]), caller);
    errno = error;
    return real;
}

TFI_COLD void *tfi_hook_sibling(enum tfi_hook hook, const char *symbol, const void *caller)
{
    int error = errno;
    void *real = find(library_of(hook), symbol, caller);
    errno = error;
    return real;
}

bool tfi_hook_several(enum tfi_hook library)
{
    int error = errno;
    bool many = copies_of(&rows[library]) > 1;
    errno = error;
    return many;
}

TFI_COLD void tfi_hook_look_again(enum tfi_hook library)
{
    if (tfi_hook_several(library)) use_several(&rows[library]);
}

enum tfi_hook tfi_hook_named(enum tfi_hook library, const char *symbol)
{
    for (unsigned i = library + 1; i < TFI_NR_HOOKS && rows[i].class; i++)
        if (strcmp(symbol_of(&rows[i]), symbol) == 0) return (enum tfi_hook)i;
    return library;
}

const char *tfi_hook_symbol(enum tfi_hook hook)
{
    return symbol_of(&rows[hook]);
}

const char *tfi_hook_class(enum tfi_hook hook)
{
    return classes[rows[hook].class];
}

int tfi_hook_argument(enum tfi_hook hook, const char *name)
{
    size_t length = strlen(name);
    const char *at = names_of(&rows[hook]);
    for (int i = 0; at; i++, at = strchr(at, ','), at += at != NULL)
        if (strncmp(at, name, length) == 0 && at[length] == ':') return i;
    return -1;
}

TFI_COLD uint32_t tfi_hook_string(struct tfi_thread *t, enum tfi_hook hook)
{
    char text[512];
    size_t n = tfi_fmt(text, sizeof text, "%s\x1f%s\x1f%s\x1f%s", symbol_of(library_of(hook)),
                       classes[rows[hook].class], symbol_of(&rows[hook]), names_of(&rows[hook]));
    tfi_guard_set(t);
    uint32_t string = tfi_string(text, n);
    tfi_guard_clear(t);
    tfi_hooks[hook].string = string;
    __atomic_store_n(&tfi_hooks[hook].gen, t->gen, __ATOMIC_RELEASE);
    return string;
}

TFI_COLD uint32_t tfi_hook_stack(struct tfi_thread *t, enum tfi_hook hook)
{
    enum class class = rows[hook].class;
    uint32_t string = 0;
    if (class != CLASS_LAUNCH && class != CLASS_ALLOC && class != CLASS_COLLECTIVE && class != CLASS_PEER) return 0;
    tfi_guard_set(t);
    if (t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED)) string = tfi_callstack(t);
    tfi_guard_clear(t);
    return string;
}

TFI_COLD struct tfi_thread *tfi_call_attach(void)
{
    struct tfi_thread *t = tfi_enter(TFI_WHY_CALL);
    if (t) tfi_leave(t);
    return t;
}
