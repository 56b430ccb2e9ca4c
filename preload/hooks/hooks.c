/* hooks.c - keeps the rows of all hook tables: originals of libc, descriptions, the slow paths of a wrapped call.
 *
 * originals.c finds the originals of all other libraries.
 */
#include "hooks/hooks.h"

#include <string.h>

#include "base/fmt.h"
#include "base/objects.h"
#include "base/process.h"
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

/* The functions of libc are found without a lock, because they may be called in a signal handler or in the child of a
 * fork. */
TFI_COLD void *tfi_hook_find(enum tfi_hook hook, const void *caller)
{
    if (*names_of(library_of(hook))) return tfi_original_find(hook, caller);
    void *real = tfi_next_function(symbol_of(&rows[hook]));
    if (real) __atomic_store_n(&tfi_hooks[hook].real, real, __ATOMIC_RELAXED);
    return real;
}

enum tfi_hook tfi_hook_library(enum tfi_hook hook)
{
    return (enum tfi_hook)(library_of(hook) - rows);
}

enum tfi_hook tfi_hook_named(enum tfi_hook library, const char *symbol)
{
    for (unsigned i = library + 1; i < TFI_NR_HOOKS && rows[i].class; i++)
        if (strcmp(symbol_of(&rows[i]), symbol) == 0) return (enum tfi_hook)i;
    return library;
}

const char *tfi_hook_names(enum tfi_hook hook)
{
    return names_of(&rows[hook]);
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
