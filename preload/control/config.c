/* config.c - reads the variables of include/env.def and finds unknown names.
 *
 * The constructor copies the values, so later changes of the program's environment have no effect. It also finds the
 * errors. They are reported only when the process wakes, so that a job's shells and compilers stay silent.
 */
#include "control/config.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/fmt.h"
#include "base/objects.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "control/schedule.h"
#include "record/log.h"

struct tfi_config tfi_config;

#define ENV(type, name, field, option, standard, aliases, meaning)                                                     \
    {#name, #field, standard, aliases, TYPE_##type, offsetof(struct tfi_config, field)},
static const struct variable {
    const char *name;
    const char *label;
    const char *standard; /* the default; in parentheses: a description, not a value */
    const char *aliases;
    enum tfi_value_type type;
    size_t field;
} variables[] = {
#include "env.def"
};

/* The library passes this variable on to children; users do not set it. */
#define RUN_DIR "TFI_RUN_DIR"

#define NAME_BYTES 64

/* The kinds of names that the environment has, one bit each: most variables are not there, and to look for each of them in a
 * long environment takes longer than all the rest of this file. */
static uint64_t kinds[4];

static unsigned kind_of(const char *name)
{
    const unsigned char *bytes = (const unsigned char *)name;
    size_t length = strcspn(name, "=");
    return length ? (bytes[length - 1] * 31u + bytes[length / 2] * 7u + (unsigned)length) % 256 : 0;
}

static const char *variable_there(const char *name)
{
    unsigned kind = kind_of(name);
    return kinds[kind / 64] >> kind % 64 & 1 ? getenv(name) : NULL;
}

/* The value of the variable, else of its first alias that is set; `used` becomes the name that was set. */
static const char *value_of(const struct variable *v, char used[NAME_BYTES])
{
    const char *value = variable_there(v->name), *aliases = v->aliases;
    tfi_fmt(used, NAME_BYTES, "%s", v->name);
    while (!value && tfi_next_name(&aliases, used, NAME_BYTES)) value = variable_there(used);
    return value;
}

/* The header's pairs about the environment at start, which is the one that the settings come from. */
static char environment_room[16384];
static struct tfi_text environment = {environment_room, sizeof environment_room, 0, 0};

static void keep_variable(const char *name)
{
    const char *value = variable_there(name);
    if (!value) return;
    tfi_text_add(&environment, "env.%s%c", name, 0);
    tfi_text_bytes(&environment, value, strlen(value) + 1);
}

static void keep_environment(void)
{
    static const char *const launchers[] = {
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "MASTER_ADDR",
        "SLURM_PROCID",
        "SLURM_JOB_ID",
        "OMPI_COMM_WORLD_RANK",
        "TORCHELASTIC_RUN_ID",
        "PMI_RANK",
        "PMIX_RANK",
        "LD_PRELOAD",
        "CUDA_VISIBLE_DEVICES",
        "NVTX_INJECTION64_PATH",
        "CUDA_INJECTION64_PATH",
    };
    char alias[NAME_BYTES];
    for (size_t i = 0; i < TFI_COUNT(variables); i++) {
        keep_variable(variables[i].name);
        for (const char *list = variables[i].aliases; tfi_next_name(&list, alias, sizeof alias);) keep_variable(alias);
    }
    for (size_t i = 0; i < TFI_COUNT(launchers) && tfi_config.record_values; i++) keep_variable(launchers[i]);
}

static const struct variable *find_variable(const char *name)
{
    for (size_t i = 0; i < TFI_COUNT(variables); i++)
        if (strcmp(variables[i].name, name) == 0) return &variables[i];
    return NULL;
}

/* Variables of older versions. */
#define GONE(name, instead) {#name, instead},
static const struct {
    const char *name, *instead;
} gone[] = {
#include "env.def"
};

/* All names of the table, each after ", ". */
#define ENV(type, name, field, option, standard, aliases, meaning) ", " #name
static const char known[] =
#include "env.def"
    ;

/* Warnings about the environment, kept until the process wakes. The longest one has two names and the list. */
static struct {
    char line[8][900];
    unsigned count;
} complaints;
_Static_assert(sizeof known + (size_t)2 * NAME_BYTES + 100 < sizeof complaints.line[0], "the list fits a line");

static void complain(const char *format, ...)
{
    va_list args;
    if (complaints.count == TFI_COUNT(complaints.line)) return;
    va_start(args, format);
    tfi_vfmt(complaints.line[complaints.count++], sizeof complaints.line[0], format, args);
    va_end(args);
}

/* False if the variable is not one of an older version. */
static bool complain_gone(const char *name)
{
    for (size_t i = 0; i < TFI_COUNT(gone); i++) {
        if (strcmp(gone[i].name, name) != 0) continue;
        complain("%s is gone and is ignored: %s", name, gone[i].instead);
        return true;
    }
    return false;
}

static void complain_unknown(const char *name)
{
    const char *nearest = NULL;
    unsigned best = 1000;
    for (size_t i = 0; i < TFI_COUNT(variables); i++) {
        unsigned d = tfi_distance(name, strlen(name), variables[i].name, strlen(variables[i].name));
        if (d < best) nearest = variables[i].name;
        if (d < best) best = d;
    }
    const char *list = known + strlen(", ");
    if (best <= 4)
        complain("%s is not a known variable and is ignored; did you mean %s? Known variables: %s", name, nearest,
                 list);
    else complain("%s is not a known variable and is ignored. Known variables: %s", name, list);
}

static void complain_value(const struct variable *v, const char *name, const char *value)
{
    char shown[200]; /* a long value must not push the rest of the message out of the line */
    tfi_fmt(shown, sizeof shown, "%s", value);
    complain("%s=%s is not valid, and the default is used. Valid: %s", name, shown, tfi_value_takes(v->type));
}

static void find_unknown(void)
{
    char name[NAME_BYTES];
    for (char **e = environ; e && *e; e++) {
        if (strncmp(*e, "TFI_", 4) != 0) continue;
        size_t length = strcspn(*e, "=");
        if (length >= sizeof name) length = sizeof name - 1;
        memcpy(name, *e, length);
        name[length] = 0;
        if (strcmp(name, RUN_DIR) != 0 && !find_variable(name) && !complain_gone(name)) complain_unknown(name);
    }
}

#define ALLOC_LIBRARY "libtfinject-alloc.so"

static int is_alloc_library(struct dl_phdr_info *object, size_t size, void *data)
{
    const char *slash = object->dlpi_name ? strrchr(object->dlpi_name, '/') : NULL;
    (void)size;
    (void)data;
    return object->dlpi_name && strcmp(slash ? slash + 1 : object->dlpi_name, ALLOC_LIBRARY) == 0;
}

/* The blocks come from another library, which the user preloads. */
static void find_host_memory(void)
{
    if (!getenv("TFI_HOST_ALLOC_KB") || !tfi_config.host_alloc_kb || !tfi_config_may_have(TFI_ACTIVITY_MEM)) return;
    if (tfi_objects_each(is_alloc_library, NULL)) return;
    complain("TFI_HOST_ALLOC_KB has no effect without %s before this library in LD_PRELOAD (tfrun --host-memory)",
             ALLOC_LIBRARY);
}

/* Applies an activity's own variable, which overrides the list. */
static void switch_activity(uint32_t bit, uint32_t flag)
{
    if (flag == 1) tfi_config.activities |= bit;
    else if (flag == 0) tfi_config.activities &= ~bit;
    if (flag != TFI_UNSET) tfi_config.fixed |= bit;
}

/* Marks settings the user fixed; embedded profilers cannot override them. */
static void fix(const struct variable *v)
{
    if (v->type == TYPE_WORDS) tfi_config.fixed |= (1u << TFI_ACTIVITIES) - 1;
    if (v->field == offsetof(struct tfi_config, record_shapes)) tfi_config.fixed |= TFI_RECORDING_SHAPES;
}

static enum tfi_select selection_of(const char *list)
{
    char entry[8];
    if (!list) return TFI_SELECT_ALL;
    return tfi_next_name(&list, entry, sizeof entry) ? TFI_SELECT_NAMES : TFI_SELECT_NOTHING;
}

/* Copies what the environment of this process asks for. The user of a setuid program must not choose which directory it
 * writes to and which CUPTI it loads, so such a program gets the defaults. */
static void read_environment(void)
{
    char used[NAME_BYTES];
    for (char **e = environ; e && *e; e++) {
        unsigned kind = kind_of(*e);
        kinds[kind / 64] |= UINT64_C(1) << kind % 64;
    }
    for (size_t i = 0; i < TFI_COUNT(variables); i++) {
        const struct variable *v = &variables[i];
        const char *value = value_of(v, used);
        if (!value) continue;
        if (tfi_value_parse(v->type, value, (char *)&tfi_config + v->field)) fix(v);
        else complain_value(v, used, value);
    }
    find_unknown();
    switch_activity(TFI_ACTIVITY_STACK, tfi_config.with_stack);
    switch_activity(TFI_ACTIVITY_MEM, tfi_config.profile_memory);
    find_host_memory();
    const char *run_dir = getenv(RUN_DIR);
    bool is_directory = run_dir && run_dir[0] == '/' && run_dir[1] != '/'; /* two slashes begin a token, see rank.c */
    tfi_config.inherited_dir = is_directory ? tfi_value_keep(run_dir) : NULL;
    keep_environment();
}

void tfi_config_read(void)
{
    tfi_values_forget();
    tfi_config = (struct tfi_config){.secure = getauxval(AT_SECURE) != 0};
    for (size_t i = 0; i < TFI_COUNT(variables); i++) {
        const struct variable *v = &variables[i];
        if (v->standard[0] && v->standard[0] != '(')
            tfi_value_parse(v->type, v->standard, (char *)&tfi_config + v->field);
    }
    if (!tfi_config.secure) read_environment();
    tfi_log_set_level(tfi_config.log);
    tfi_config.select = selection_of(tfi_config.names);
}

bool tfi_config_setting(unsigned index, struct tfi_setting *setting)
{
    if (index >= TFI_COUNT(variables)) return false;
    const struct variable *v = &variables[index];
    *setting = (struct tfi_setting){.field = v->label};
    tfi_value_describe(v->type, (const char *)&tfi_config + v->field, setting);
    return true;
}

bool tfi_config_may_have(enum tfi_activity activity)
{
    bool refused = (activity == TFI_ACTIVITY_MEM && tfi_config.profile_memory == 0) ||
                   (activity == TFI_ACTIVITY_STACK && tfi_config.with_stack == 0);
    bool trigger = tfi_config.trigger.signal || tfi_config.trigger.path;
    return tfi_config.activities & activity || (trigger && !refused);
}

bool tfi_config_has_warnings(void)
{
    return complaints.count > 0;
}

void tfi_config_warn(void)
{
    for (unsigned i = 0; i < complaints.count; i++) tfi_log(TFI_LOG_WARN, "%s", complaints.line[i]);
}

void tfi_config_header(struct tfi_text *text)
{
    static char entry[4096]; /* only the waking thread is here, and it may have a small stack */
    static const char *const words[] = {
#define ACTIVITY(name, word, meaning) word,
#include "env.def"
    };
    const char *list = tfi_config.metadata ? tfi_config.metadata : "";
    tfi_text_add(text, "activities%c", 0);
    for (size_t i = 0; i < TFI_COUNT(words); i++)
        if (tfi_config.activities >> i & 1) tfi_text_add(text, "%s,", words[i]);
    tfi_text_bytes(text, "", 1);
    while (tfi_next_name(&list, entry, sizeof entry)) {
        size_t key = strcspn(entry, "=");
        const char *value = entry[key] ? entry + key + 1 : "";
        tfi_text_bytes(text, "meta.", 5);
        tfi_text_bytes(text, entry, key);
        tfi_text_bytes(text, "", 1);
        tfi_text_bytes(text, value, strlen(value) + 1);
    }
    tfi_text_bytes(text, environment.data, environment.used);
}

void tfi_config_select(const char *names)
{
    enum { COPIES = 4, BYTES = 2048 };
    static char copy[COPIES][BYTES]; /* several, because another thread may be reading an earlier one */
    static unsigned count;
    char *to = copy[count++ % COPIES];
    tfi_fmt(to, BYTES, "%s", names);
    tfi_config.names = to;
    __atomic_store_n(&tfi_config.select, selection_of(to), __ATOMIC_RELEASE);
}

void tfi_config_io_paths(const char *paths)
{
    static char copy[2048];
    if (tfi_config.io_paths || strlen(paths) >= sizeof copy) return;
    tfi_fmt(copy, sizeof copy, "%s", paths);
    __atomic_store_n(&tfi_config.io_paths, copy, __ATOMIC_RELEASE);
}

void tfi_config_select_undecided(void)
{
    if (tfi_config.select == TFI_SELECT_NAMES) __atomic_store_n(&tfi_config.select, TFI_SELECT_ALL, __ATOMIC_RELEASE);
}

bool tfi_config_selects(const char *text, size_t length)
{
    char entry[256];
    const char *list = tfi_config.names ? tfi_config.names : "";
    while (tfi_next_name(&list, entry, sizeof entry))
        if (tfi_glob(entry, text, length, false)) return true;
    return false;
}
