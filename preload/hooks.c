/* hooks.c - the rows of all tables: originals, descriptions, and the slow ways round a call.
 *
 * Originals of a library are looked up in the library itself, where it is mapped already (RTLD_NOLOAD): RTLD_NEXT does
 * not see libraries that were opened RTLD_LOCAL. A look-up that fails is tried again at the next call.
 *
 * A process may hold two major versions of a library, each with clients of its own, and wheels rename the copies they
 * bring. So what the caller's own list of needed libraries says goes first; and while there are two, no original is
 * kept: each call is looked up again, which takes microseconds and is right.
 */
#include "hooks.h"

#include <dlfcn.h>
#include <link.h>

#include "callstack.h"
#include "dl.h"
#include "fmt.h"
#include "strings.h"

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

/* All texts of the tables in one piece of memory, and rows that hold offsets into it: pointers would have to be relocated
 * in every program that is started. */
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
    uint32_t names; /* of the arguments; of a library: its soname, or several */
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

static const struct row *library_of(enum tfi_hook hook)
{
    const struct row *row = &rows[hook];
    while (row->class) row--;
    return row;
}

#define MAX_SONAME 64

/* Libraries that were found once. They stay referenced, and with them every original we know. */
static struct {
    char soname[MAX_SONAME];
    void *handle; /* stored last */
} found[8];
static unsigned nr_found;

static void *open_mapped(const char *soname)
{
    for (unsigned i = 0; i < TFI_COUNT(found); i++) {
        void *handle = __atomic_load_n(&found[i].handle, __ATOMIC_ACQUIRE);
        if (handle && strcmp(found[i].soname, soname) == 0) return handle;
    }
    void *handle = dlopen(soname, RTLD_NOLOAD | RTLD_LAZY);
    if (!handle || strlen(soname) >= MAX_SONAME) return handle;
    unsigned i = __atomic_fetch_add(&nr_found, 1, __ATOMIC_RELAXED);
    if (i >= TFI_COUNT(found)) return handle;
    strcpy(found[i].soname, soname);
    __atomic_store_n(&found[i].handle, handle, __ATOMIC_RELEASE);
    return handle;
}

/* The name under which the object that `caller` lies in needs a library, "libcudart.so.13" or "libcudart-1f2e.so.12" for
 * a soname of libcudart.so.13; NULL if it does not need it. */
static const char *needed_by(const void *caller, const char *soname)
{
    Dl_info info;
    struct link_map *map = NULL;
    const char *strings = NULL, *end = strstr(soname, ".so");
    size_t length = end ? (size_t)(end - soname) : strlen(soname);
    if (!caller || !dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) || !map || !map->l_ld) return NULL;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_STRTAB) strings = (const char *)d->d_un.d_ptr;
    if (!strings || (uintptr_t)strings < map->l_addr) return NULL;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        const char *name = strings + d->d_un.d_val;
        if (d->d_tag == DT_NEEDED && strncmp(name, soname, length) == 0 && (name[length] == '.' || name[length] == '-'))
            return name;
    }
    return NULL;
}

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

/* How many of a library's sonames are mapped. To look for one that is not means to search directories, so that is done
 * again only after something was loaded. */
static unsigned copies_of(const struct row *library)
{
    static unsigned long long known[TFI_NR_HOOKS]; /* by library: objects loaded so far << 8 | copies found then */
    const char *list = names_of(library);
    char soname[MAX_SONAME];
    unsigned long long *mine = &known[library - rows];
    unsigned long long adds = 0, before = __atomic_load_n(mine, __ATOMIC_RELAXED), copies = 0;
    if (!strchr(list, ',')) return 1;
    dl_iterate_phdr(first_object, &adds);
    if (before >> 8 == adds) return before & 255;
    while (next_soname(&list, soname)) copies += open_mapped(soname) != NULL;
    __atomic_store_n(mine, adds << 8 | copies, __ATOMIC_RELAXED);
    return (unsigned)copies;
}

static void *find(const struct row *library, const char *symbol, const void *caller)
{
    const char *list = names_of(library);
    char soname[MAX_SONAME];
    if (!*list) return tfi_dlsym(RTLD_NEXT, symbol);
    const char *needed = needed_by(caller, list);
    void *handle = needed ? open_mapped(needed) : NULL;
    void *real = handle ? tfi_dlsym(handle, symbol) : NULL;
    while (!real && next_soname(&list, soname)) {
        handle = open_mapped(soname);
        real = handle ? tfi_dlsym(handle, symbol) : NULL;
    }
    return real;
}

TFI_COLD void *tfi_hook_find(enum tfi_hook hook, const void *caller)
{
    int error = errno;
    const struct row *library = library_of(hook);
    void *real = find(library, symbol_of(&rows[hook]), caller);
    if (real && copies_of(library) < 2) __atomic_store_n(&tfi_hooks[hook].real, real, __ATOMIC_RELAXED);
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
    bool several = copies_of(&rows[library]) > 1;
    errno = error;
    return several;
}

TFI_COLD void tfi_hook_look_again(enum tfi_hook library)
{
    if (!tfi_hook_several(library)) return;
    for (unsigned i = library + 1; i < TFI_NR_HOOKS && rows[i].class; i++)
        __atomic_store_n(&tfi_hooks[i].real, NULL, __ATOMIC_RELAXED);
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
    if (class != CLASS_LAUNCH && class != CLASS_ALLOC) return 0;
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
