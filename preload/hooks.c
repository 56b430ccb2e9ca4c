/* hooks.c - the rows of all tables: originals, descriptions, and the slow ways round a call.
 *
 * Originals of a library are looked up in the library itself, where it is mapped already (RTLD_NOLOAD): RTLD_NEXT does
 * not see libraries that were opened RTLD_LOCAL. A look-up that fails is tried again at the next call.
 */
#include "hooks.h"

#include <dlfcn.h>

#include "fmt.h"
#include "strings.h"

struct row {
    const char *class; /* NULL: a library */
    const char *symbol;
    const char *names; /* of the arguments; of a library: its soname */
};

#define LIBRARY(name, soname) [TFI_LIBRARY_##name] = {NULL, #name, soname},
#define HOOK(class, ret, symbol, params, args, names, values) [TFI_HOOK_##symbol] = {#class, #symbol, names},
#define HOOK_VOID(class, ret, symbol, params, args, names, values) [TFI_HOOK_##symbol] = {#class, #symbol, names},
#define HOOK_CUSTOM(class, ret, symbol, params, names) [TFI_HOOK_##symbol] = {#class, #symbol, names},
#define HOOK_CUSTOM_VOID(class, ret, symbol, params, names) [TFI_HOOK_##symbol] = {#class, #symbol, names},
static const struct row rows[TFI_NR_HOOKS] = {
#include "hooks.def"
};
#undef LIBRARY
#undef HOOK
#undef HOOK_VOID
#undef HOOK_CUSTOM
#undef HOOK_CUSTOM_VOID

struct tfi_hook_state tfi_hooks[TFI_NR_HOOKS];

static const struct row *library_of(enum tfi_hook hook)
{
    const struct row *row = &rows[hook];
    while (row->class) row--;
    return row;
}

TFI_COLD void *tfi_hook_find(enum tfi_hook hook)
{
    int error = errno;
    const char *soname = library_of(hook)->names;
    void *handle = *soname ? dlopen(soname, RTLD_NOLOAD | RTLD_LAZY) : RTLD_NEXT;
    void *real = handle || !*soname ? dlsym(handle, rows[hook].symbol) : NULL;
    if (real) __atomic_store_n(&tfi_hooks[hook].real, real, __ATOMIC_RELAXED);
    errno = error;
    return real;
}

TFI_COLD uint32_t tfi_hook_string(struct tfi_thread *t, enum tfi_hook hook)
{
    char text[512];
    size_t n = tfi_fmt(text, sizeof text, "%s\x1f%s\x1f%s\x1f%s", library_of(hook)->symbol, rows[hook].class,
                       rows[hook].symbol, rows[hook].names);
    t->guard = 1;
    uint32_t string = tfi_string(text, n);
    t->guard = 0;
    tfi_hooks[hook].string = string;
    __atomic_store_n(&tfi_hooks[hook].gen, t->gen, __ATOMIC_RELEASE);
    return string;
}

TFI_COLD struct tfi_thread *tfi_call_attach(void)
{
    struct tfi_thread *t = tfi_enter(TFI_WHY_CALL);
    if (t) tfi_leave(t);
    return t;
}
