/* interface.c - makes stages of the regions that C and C++ programs mark with dftracer's macros.
 *
 * The macros call exported functions (interface.def). Ours calls dftracer's and records beside it: a stage begins after
 * dftracer's region and ends before it. What dftracer calls meanwhile is its own affair. A region's arguments are
 * collected in a slot of fixed size and written at its end. The program gets a pointer to that slot in place of
 * dftracer's; an object of class DFTracer is dftracer's, and is known by its address.
 *
 * Some of these names are not dftracer's alone, such as finalize. An exported name therefore begins in a few
 * instructions that keep the argument registers and the stack. `tfi_dftracer_choose` then finds the function that would
 * have been called without us: the next definition in the ordinary search order, or else one that only the caller's
 * object sees. That function gets the call unless it lies in a library with "dftracer" in its name. Each call decides
 * anew, because libraries come and go; only calls that were found to be ours need no further look. The upper halves of
 * vector registers are not kept.
 *
 * A region may end on another thread. The slots of a forked child's parent stay taken.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/fmt.h"
#include "base/process.h"
#include "base/raw_dlsym.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "base/x86_64.h"
#include "control/config.h"
#include "record/clock.h"
#include "record/enter.h"
#include "record/facts.h"
#include "record/log.h"
#include "record/strings.h"
#include "record/thread.h"
#include "stage/stage.h"

enum { REGIONS = 512, ARGS_SIZE = 960, METADATA = 1, DETAILS = 3 };

struct region {
    uint32_t taken;
    uint32_t name; /* string */
    uint64_t id;   /* of the range, 0 if it is not recorded */
    void *theirs;  /* dftracer's region */
    unsigned left_out;
    size_t used;
    char args[ARGS_SIZE]; /* JSON up to the last argument, without the closing brackets */
};

/* NULL until the first region. The macros pass a pointer into it on and never look there. */
static struct region *regions;
static uint32_t next_region;
static const void *owners[REGIONS]; /* objects, by region */

static bool is_region(const struct region *region)
{
    const struct region *all = __atomic_load_n(&regions, __ATOMIC_ACQUIRE);
    return all && region >= all && region < all + REGIONS;
}

static struct region *take_region(void)
{
    struct region *all = tfi_map_once(&regions, REGIONS * sizeof *all);
    for (unsigned i = 0; i < REGIONS && all; i++) {
        struct region *r = &all[__atomic_fetch_add(&next_region, 1, __ATOMIC_RELAXED) % REGIONS];
        if (!__atomic_exchange_n(&r->taken, 1, __ATOMIC_ACQUIRE)) return r;
    }
    return NULL;
}

/* ---- dftracer's own functions ---- */

#define EXPORT(symbol, why, ours) NUMBER_##symbol,
enum {
#include "dftracer/interface.def"
    NAMES
};
#undef EXPORT

static const void *originals[NAMES]; /* NULL: the program has none */
static __thread bool in_dftracer __attribute__((tls_model("initial-exec")));

/* A function with any of the types below: it ignores the argument registers that are not meant for it. */
typedef void *original_t(const void *, const void *, const void *, intptr_t, intptr_t);

/* Calls dftracer's function, if there is one. */
static void *call(unsigned number, const void *a, const void *b, const void *c, intptr_t d, intptr_t e)
{
    original_t *original = (original_t *)(uintptr_t)originals[number];
    bool nested = in_dftracer;
    if (!original) return NULL;
    in_dftracer = true;
    void *result = original(a, b, c, d, e);
    in_dftracer = nested;
    return result;
}

/* A number in the place of a pointer. */
static const void *as_number(intptr_t number)
{
    return (const void *)number;
}

/* dftracer's region for a pointer that the program got from us. */
static void *theirs(const struct region *r)
{
    return is_region(r) ? r->theirs : (void *)r;
}

/* ---- facts ---- */

static void keep_fact(const char *key, const char *value)
{
    if (in_dftracer) return;
    char name[256];
    tfi_fmt(name, sizeof name, "dftracer.%s", key ? key : "");
    struct tfi_fact fact = {name, value, "dftracer"};
    tfi_fact_keep(&fact);
    struct tfi_thread *t = tfi_enter(TFI_WHY_NONE);
    if (!t) return;
    tfi_fact_write(t, &fact);
    tfi_leave(t);
}

static void keep_text(const char *key, const char *value)
{
    if (value) keep_fact(key, tfi_config.record_values ? value : "str");
}

static void keep_number(const char *key, int value)
{
    char digits[16];
    tfi_fmt(digits, sizeof digits, "%d", value);
    keep_fact(key, tfi_config.record_values ? digits : "int");
}

static void set_text(const char *key, const char *value)
{
    call(NUMBER_set_app_metadata_string, key, value, NULL, 0, 0);
    keep_text(key, value);
}

static void set_number(const char *key, int value)
{
    call(NUMBER_set_app_metadata_int, key, as_number(value), NULL, 0, 0);
    keep_number(key, value);
}

static void keep_run(const char *log_file, const char *data_dirs, const int *process_id)
{
    keep_text("logfile", log_file);
    keep_text("data_dir", data_dirs);
    if (process_id) keep_number("process_id", *process_id);
}

static void begin_run(const char *log_file, const char *data_dirs, const int *process_id)
{
    call(NUMBER_initialize_main, log_file, data_dirs, process_id, 0, 0);
    keep_run(log_file, data_dirs, process_id);
}

static void begin_run_unbound(const char *log_file, const char *data_dirs, const int *process_id)
{
    call(NUMBER_initialize_no_bind, log_file, data_dirs, process_id, 0, 0);
    keep_run(log_file, data_dirs, process_id);
}

static void end_run(void)
{
    call(NUMBER_finalize, NULL, NULL, NULL, 0, 0);
}

static void use(const char *name)
{
    call(NUMBER_mark_used, name, NULL, NULL, 0, 0);
}

/* ---- regions ---- */

static size_t length_of(const char *text)
{
    return text ? strnlen(text, TFI_STRING_MAX) : 0;
}

static struct region *open_region(const char *name, const char *cat, int event_type)
{
    if (event_type == METADATA) {
        keep_text(name, cat);
        return NULL;
    }
    struct tfi_thread *t = in_dftracer ? NULL : tfi_enter(TFI_WHY_STAGE);
    if (!t) return NULL;
    struct region *r = take_region();
    if (r) {
        struct tfi_text text = {r->args, sizeof r->args - 64, 0, 0};
        r->left_out = 0;
        r->theirs = NULL;
        r->name = tfi_string(name, length_of(name));
        tfi_text_add(&text, "{\"cat\": ");
        tfi_text_json(&text, cat, length_of(cat));
        tfi_text_add(&text, ", \"args\": {");
        r->used = text.full ? 0 : text.used;
        struct tfi_range range = {.name = r->name, .flags = TFI_RANGE_STAGE | TFI_RANGE_DFTRACER};
        r->id = tfi_stage_start(t, &range);
    } else {
        tfi_count_drop(TFI_DROP_RANGES, 1);
    }
    tfi_leave(t);
    return r;
}

/* Adds an argument; `text` is NULL for a number. */
static void add_argument(struct region *r, const char *key, const char *text, int number)
{
    if (!is_region(r) || !r->id || !key) return;
    struct tfi_text to = {r->args + r->used, sizeof r->args - 64 - r->used, 0, 0};
    bool first = r->used && r->args[r->used - 1] == '{';
    if (!first) tfi_text_add(&to, ", ");
    tfi_text_json(&to, key, length_of(key));
    tfi_text_add(&to, ": ");
    if (!tfi_config.record_values) tfi_text_add(&to, text ? "\"str\"" : "\"int\"");
    else if (text) tfi_text_json(&to, text, length_of(text));
    else tfi_text_add(&to, "%d", number);
    if (to.full || !r->used) r->left_out++;
    else r->used += to.used;
}

static void write_details(struct tfi_thread *t, struct region *r)
{
    struct tfi_text text = {r->args + r->used, sizeof r->args - r->used, 0, 0};
    if (!r->used) return;
    tfi_text_add(&text, "}");
    if (r->left_out) tfi_text_add(&text, ", \"left_out\": %u", r->left_out);
    tfi_text_add(&text, "}");
    uint32_t details = tfi_string(r->args, r->used + text.used);
    TFI_WRITE(t, signature, .text = details, .time = tfi_ticks(), .id = r->id, .name = r->name, .direction = DETAILS);
}

static void end(struct region *r)
{
    if (!is_region(r) || !__atomic_load_n(&r->taken, __ATOMIC_ACQUIRE)) return;
    struct tfi_thread *t = r->id ? tfi_enter(TFI_WHY_NONE) : NULL;
    if (t) {
        if (tfi_stage_name(r->id)) write_details(t, r);
        tfi_stage_end(t, r->id);
        tfi_leave(t);
    }
    r->id = 0;
    __atomic_store_n(&r->taken, 0, __ATOMIC_RELEASE);
}

static struct region *begin_region(const char *name, const char *cat, intptr_t event_type)
{
    void *data = call(NUMBER_initialize_region, name, cat, as_number(event_type), 0, 0);
    struct region *r = open_region(name, cat, (int)event_type);
    if (!r) return data;
    r->theirs = data;
    return r;
}

static void end_region(struct region *r)
{
    void *data = theirs(r);
    end(r);
    call(NUMBER_finalize_region, data, NULL, NULL, 0, 0);
}

static void end_scope(struct region **place)
{
    void *data = place ? theirs(*place) : NULL;
    if (place) end(*place);
    call(NUMBER_finalize_region_cleanup, place ? &data : NULL, NULL, NULL, 0, 0);
    if (place) *place = NULL;
}

static void add_number(struct region *r, const char *key, int value)
{
    call(NUMBER_update_metadata_int, theirs(r), key, as_number(value), 0, 0);
    add_argument(r, key, NULL, value);
}

static void add_typed_number(struct region *r, const char *key, int value, int type)
{
    call(NUMBER_update_metadata_int_type, theirs(r), key, as_number(value), type, 0);
    add_argument(r, key, NULL, value);
}

static void add_text(struct region *r, const char *key, const char *value)
{
    call(NUMBER_update_metadata_string, theirs(r), key, value, 0, 0);
    if (value) add_argument(r, key, value, 0);
}

static void add_typed_text(struct region *r, const char *key, const char *value, int type)
{
    call(NUMBER_update_metadata_string_type, theirs(r), key, value, type, 0);
    if (value) add_argument(r, key, value, 0);
}

/* ---- objects of class DFTracer ---- */

/* Returns the region of an object; NULL if it has none. */
static struct region *region_of(const void *object)
{
    for (unsigned i = 0; i < REGIONS; i++)
        if (__atomic_load_n(&owners[i], __ATOMIC_RELAXED) == object) return &regions[i];
    return NULL;
}

static void disown(const struct region *r)
{
    if (r) __atomic_store_n(&owners[r - regions], NULL, __ATOMIC_RELAXED);
}

static void begin_object(const void *object, const char *name, const char *cat, int event_type)
{
    if (in_dftracer) return;
    disown(region_of(object)); /* of an object at this address that was not destroyed */
    struct region *r = open_region(name, cat, event_type);
    if (r) __atomic_store_n(&owners[r - regions], object, __ATOMIC_RELAXED);
}

static void end_object(const void *object)
{
    struct region *r = in_dftracer ? NULL : region_of(object);
    disown(r);
    end(r);
}

static void construct_old(void *object, const char *name, const char *cat)
{
    call(NUMBER__ZN8DFTracerC1EPKcS1_, object, name, cat, 0, 0);
    begin_object(object, name, cat, 0);
}

static void construct(void *object, const char *name, const char *cat, int event_type)
{
    call(NUMBER__ZN8DFTracerC1EPKcS1_i, object, name, cat, event_type, 0);
    begin_object(object, name, cat, event_type);
}

static void construct_typed(void *object, const char *name, const char *cat, int event_type, int type)
{
    call(NUMBER__ZN8DFTracerC1EPKcS1_i14TraceEventType, object, name, cat, event_type, type);
    begin_object(object, name, cat, event_type);
}

static void destroy(void *object)
{
    end_object(object);
    call(NUMBER__ZN8DFTracerD1Ev, object, NULL, NULL, 0, 0);
}

static void finish(void *object)
{
    end_object(object);
    call(NUMBER__ZN8DFTracer8finalizeEv, object, NULL, NULL, 0, 0);
}

static void object_number(void *object, const char *key, int value)
{
    call(NUMBER__ZN8DFTracer6updateEPKci, object, key, as_number(value), 0, 0);
    add_argument(region_of(object), key, NULL, value);
}

static void object_typed_number(void *object, const char *key, int value, int type)
{
    call(NUMBER__ZN8DFTracer6updateEPKci12MetadataType, object, key, as_number(value), type, 0);
    add_argument(region_of(object), key, NULL, value);
}

static void object_text(void *object, const char *key, const char *value)
{
    call(NUMBER__ZN8DFTracer6updateEPKcS1_, object, key, value, 0, 0);
    if (value) add_argument(region_of(object), key, value, 0);
}

static void object_typed_text(void *object, const char *key, const char *value, int type)
{
    call(NUMBER__ZN8DFTracer6updateEPKcS1_12MetadataType, object, key, value, type, 0);
    if (value) add_argument(region_of(object), key, value, 0);
}

/* ---- the exported names ---- */

#define EXPORT(symbol, why, ours) {#symbol, (const void *)ours},
static const struct {
    const char *symbol;
    const void *ours;
} names[NAMES] = {
#include "dftracer/interface.def"
};
#undef EXPORT

/* Our function, once a name is known to be dftracer's; else NULL. */
__attribute__((visibility("hidden"), used)) const void *tfi_dftracer_target[NAMES];

static bool is_ours(const void *function)
{
    Dl_info here, there;
    return dladdr((const void *)is_ours, &here) && dladdr(function, &there) && here.dli_fbase == there.dli_fbase;
}

/* Finds the program's own definition: the next one in the search order, else one that only the caller's object sees. */
static const void *find_original(const char *symbol, const void *caller)
{
    Dl_info from;
    const void *found = tfi_dlsym(RTLD_NEXT, symbol);
    if (found || !dladdr(caller, &from)) return found;
    void *handle = dlopen(from.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle) return NULL;
    found = tfi_dlsym(handle, symbol);
    dlclose(handle);
    return found && !is_ours(found) ? found : NULL;
}

static bool is_dftracers(const void *function)
{
    Dl_info there;
    if (!dladdr(function, &there) || !there.dli_fname) return false;
    const char *slash = strrchr(there.dli_fname, '/');
    return strstr(slash ? slash : there.dli_fname, "dftracer") != NULL;
}

/* Finds all functions of the library that `original` is in, which stays loaded from now on. */
static void adopt(const void *original)
{
    Dl_info there;
    void *library = dladdr(original, &there) ? dlopen(there.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) : NULL;
    for (unsigned i = 0; i < NAMES && library; i++) {
        const void *function = tfi_dlsym(library, names[i].symbol);
        if (function && !is_ours(function)) __atomic_store_n(&originals[i], function, __ATOMIC_RELAXED);
    }
    if (library) dlclose(library);
}

__attribute__((visibility("hidden"), used)) const void *tfi_dftracer_choose(uint64_t number, const void *caller)
{
    int error = errno;
    tfi_prepare();
    const void *original = find_original(names[number].symbol, caller), *chosen = names[number].ours;
    if (original && !is_dftracers(original)) {
        chosen = original;
    } else if (original) {
        adopt(original);
        __atomic_store_n(&tfi_dftracer_target[number], chosen, __ATOMIC_RELEASE);
    }
    errno = error;
    return chosen;
}

#define EXPORT(symbol, why, ours) TFI_ASM_CHOSEN(symbol, tfi_dftracer_number, tfi_dftracer_target, tfi_dftracer_first)
TFI_ASM_COUNT(tfi_dftracer_number);
#include "dftracer/interface.def"
#undef EXPORT

TFI_ASM_CHOOSE(tfi_dftracer_first, tfi_dftracer_choose);
