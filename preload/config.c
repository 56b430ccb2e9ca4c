/* config.c - reads the variables of include/env.def and finds those that nobody knows.
 *
 * Values are copied when the constructor runs: what the program does to its environment later changes nothing here.
 * What is wrong with them is found then too, and said when the process wakes: the bash and the compilers of a job stay
 * silent.
 */
#include "config.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fmt.h"
#include "log.h"
#include "sys.h"
#include "tfi.h"

struct tfi_config tfi_config;

enum type {
    TYPE_TEXT,
    TYPE_PATH,
    TYPE_NUMBER,
    TYPE_COUNT,
    TYPE_NAMES,
    TYPE_LIST,
    TYPE_LEVEL,
    TYPE_WORDS,
    TYPE_GRAPHS,
    TYPE_SWITCH,
    TYPE_FLAG,
    TYPE_SCHEDULE,
    TYPE_CAPTURE,
    TYPE_TRIGGER
};

#define ENV(type, name, field, standard, aliases, help)                                                                \
    {#name, #field, aliases, TYPE_##type, offsetof(struct tfi_config, field)},
static const struct variable {
    const char *name;
    const char *label;
    const char *aliases;
    enum type type;
    size_t field;
} variables[] = {
#include "env.def"
};
#undef ENV

/* Passed on to children, not set by users. */
#define RUN_DIR "TFI_RUN_DIR"

static char copies[16384];
static size_t copies_used;

static const char *keep(const char *value)
{
    size_t bytes = strlen(value) + 1;
    if (bytes > sizeof copies - copies_used) return NULL;
    char *copy = copies + copies_used;
    memcpy(copy, value, bytes);
    copies_used += bytes;
    return copy;
}

#define NAME_BYTES 64

/* The variable's value or its first alias's that is set; `used` becomes the name that was. */
static const char *value_of(const struct variable *v, char used[NAME_BYTES])
{
    const char *value = getenv(v->name), *aliases = v->aliases;
    tfi_fmt(used, NAME_BYTES, "%s", v->name);
    while (!value && tfi_next_name(&aliases, used, NAME_BYTES)) value = getenv(used);
    return value;
}

static const char *const levels[] = {"error", "warn", "info", "debug"};
static const char *const graphs[] = {"node", "graph"};
static const char *const activities[] = {"cpu", "gpu", "mem",  "nccl",
                                         "ops", "io",  "stack"}; /* in the order of their bits */

static int index_of(const char *word, const char *const words[], unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (strcmp(word, words[i]) == 0) return (int)i;
    return -1;
}

/* An empty list is none of them. */
bool tfi_config_activities(const char *list, uint32_t *bits)
{
    char word[16];
    uint32_t found = 0;
    while (tfi_next_name(&list, word, sizeof word)) {
        int i = index_of(word, activities, TFI_COUNT(activities));
        if (i < 0) return false;
        found |= 1u << i;
    }
    *bits = found;
    return true;
}

/* 1, 0, or -1 for neither. */
static int parse_flag(const char *text)
{
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
    int found = -1;
    for (size_t i = 0; i < TFI_COUNT(words) && found < 0; i++)
        if (tfi_glob(words[i], text, strlen(text), true)) found = (int)i;
    return found < 0 ? -1 : found & 1;
}

/* Stores a value in its field; false leaves the default. */
static bool store(const struct variable *v, const char *value)
{
    void *field = (char *)&tfi_config + v->field;
    int found;
    switch (v->type) {
    case TYPE_TEXT:
    case TYPE_PATH:
        if (*value) *(const char **)field = keep(value);
        return !*value || *(const char **)field;
    case TYPE_NAMES:
    case TYPE_LIST: return (*(const char **)field = keep(value)) != NULL;
    case TYPE_NUMBER: return tfi_whole_number(value, 1, 1048576, field);
    case TYPE_COUNT: return tfi_whole_number(value, 0, 1048576, field);
    case TYPE_LEVEL:
        found = index_of(value, levels, TFI_COUNT(levels));
        if (found >= 0) *(enum tfi_log_level *)field = (enum tfi_log_level)found;
        return found >= 0;
    case TYPE_GRAPHS:
        found = index_of(value, graphs, TFI_COUNT(graphs));
        if (found >= 0) *(enum tfi_graphs *)field = (enum tfi_graphs)found;
        return found >= 0;
    case TYPE_WORDS: return tfi_config_activities(value, field);
    case TYPE_SCHEDULE: return tfi_plan_parse(value, field);
    case TYPE_CAPTURE: return tfi_capture_parse(value, field);
    case TYPE_TRIGGER: return (value = keep(value)) != NULL && tfi_trigger_parse(value, field);
    case TYPE_SWITCH:
    case TYPE_FLAG:
        found = v->type == TYPE_SWITCH && strlen(value) > 1 ? -1 : parse_flag(value);
        if (found >= 0) *(uint32_t *)field = (uint32_t)found;
        return found >= 0;
    }
    return false;
}

/* The header's pairs about the environment, as it was at start: what the program does to it later is not what holds. */
static char environment_room[16384];
static struct tfi_text environment = {environment_room, sizeof environment_room, 0, 0};

static void keep_variable(const char *name)
{
    const char *value = getenv(name);
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

static const struct variable *find(const char *name)
{
    for (size_t i = 0; i < TFI_COUNT(variables); i++)
        if (strcmp(variables[i].name, name) == 0) return &variables[i];
    return NULL;
}

/* What is to be said about the environment, until a process wakes. */
static struct {
    char line[8][700];
    unsigned count;
} complaints;

static void complain(const char *format, ...)
{
    va_list args;
    if (complaints.count == TFI_COUNT(complaints.line)) return;
    va_start(args, format);
    tfi_vfmt(complaints.line[complaints.count++], sizeof complaints.line[0], format, args);
    va_end(args);
}

static void complain_unknown(const char *name)
{
    const char *nearest = NULL;
    unsigned best = 1000;
    char valid[512];
    size_t used = 0;
    for (size_t i = 0; i < TFI_COUNT(variables); i++) {
        unsigned d = tfi_distance(name, strlen(name), variables[i].name, strlen(variables[i].name));
        if (d < best) nearest = variables[i].name;
        if (d < best) best = d;
        if (strncmp(variables[i].name, "TFI_", 4) == 0)
            used += tfi_fmt(valid + used, sizeof valid - used, "%s%s", used ? ", " : "", variables[i].name);
    }
    if (best <= 4) complain("%s is not known and ignored; did you mean %s? Known: %s", name, nearest, valid);
    else complain("%s is not known and ignored. Known: %s", name, valid);
}

static void complain_value(const struct variable *v, const char *name, const char *value)
{
    char shown[200]; /* a long one must not push out what is said about it */
    tfi_fmt(shown, sizeof shown, "%s", value);
    static const char *const valid[] = {
        [TYPE_NUMBER] = "a whole number from 1 to 1048576",
        [TYPE_COUNT] = "a whole number from 0 to 1048576",
        [TYPE_LEVEL] = "one of error, warn, info, debug",
        [TYPE_GRAPHS] = "node or graph",
        [TYPE_SWITCH] = "0 or 1",
        [TYPE_FLAG] = "0 or 1 (or true, yes, on, false, no, off)",
        [TYPE_WORDS] = "words of cpu, gpu, mem, nccl, ops, io, stack, separated by commas",
        [TYPE_SCHEDULE] = "skip_first, wait, warmup, active (not 0), repeat, each as name=number, and commas between",
        [TYPE_CAPTURE] = "cudaProfilerApi, delay=seconds, duration=seconds, one or several with commas between",
        [TYPE_TRIGGER] = "signal:NUMBER, of a signal that may be caught, or file:PATH",
    };
    const char *takes = v->type < TFI_COUNT(valid) && valid[v->type] ? valid[v->type] : "a shorter text";
    complain("%s=%s is not valid, the default is used; it takes %s", name, shown, takes);
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
        if (strcmp(name, RUN_DIR) != 0 && !find(name)) complain_unknown(name);
    }
}

/* What a variable of its own says about an activity goes over the list. */
static void switch_activity(uint32_t bit, uint32_t flag)
{
    if (flag == 1) tfi_config.activities |= bit;
    else if (flag == 0) tfi_config.activities &= ~bit;
    if (flag != TFI_UNSET) tfi_config.fixed |= bit;
}

/* Activities that nothing records yet. */
static void complain_early(void)
{
    static const uint32_t early[] = {TFI_ACTIVITY_NCCL, TFI_ACTIVITY_IO};
    for (size_t i = 0; i < TFI_COUNT(early); i++)
        if (tfi_config.activities & early[i])
            complain("TFI_ACTIVITIES: %s is not recorded yet; everything else of the list is",
                     activities[__builtin_ctz(early[i])]);
}

/* Marks settings the user fixed; embedded profilers cannot override them. */
static void fix(const struct variable *v)
{
    if (v->type == TYPE_WORDS) tfi_config.fixed |= (1u << TFI_COUNT(activities)) - 1;
    if (v->type == TYPE_WORDS) complain_early();
    if (v->field == offsetof(struct tfi_config, record_shapes)) tfi_config.fixed |= TFI_RECORDING_SHAPES;
}

static enum tfi_select selection_of(const char *list)
{
    char entry[8];
    if (!list) return TFI_SELECT_ALL;
    return tfi_next_name(&list, entry, sizeof entry) ? TFI_SELECT_NAMES : TFI_SELECT_NOTHING;
}

void tfi_config_read(void)
{
    char used[NAME_BYTES];
    tfi_config = (struct tfi_config){.max_mb = 4096,
                                     .log = TFI_LOG_WARN,
                                     .flush_ms = 1000,
                                     .record_shapes = 1,
                                     .record_values = 1,
                                     .with_stack = TFI_UNSET,
                                     .profile_memory = TFI_UNSET};
    tfi_config.native = "torchfx.torchfx_ext";
    tfi_config_activities("cpu,gpu,mem,nccl,ops", &tfi_config.activities);
    copies_used = 0;
    for (size_t i = 0; i < TFI_COUNT(variables); i++) {
        const char *value = value_of(&variables[i], used);
        if (!value) continue;
        if (store(&variables[i], value)) fix(&variables[i]);
        else complain_value(&variables[i], used, value);
    }
    find_unknown();
    switch_activity(TFI_ACTIVITY_STACK, tfi_config.with_stack);
    switch_activity(TFI_ACTIVITY_MEM, tfi_config.profile_memory);
    if (!tfi_config.pipeline) tfi_config.pipeline = "default";
    const char *run_dir = getenv(RUN_DIR);
    bool is_directory = run_dir && run_dir[0] == '/' && run_dir[1] != '/'; /* two slashes begin a token, see rank.c */
    tfi_config.inherited_dir = is_directory ? keep(run_dir) : NULL;
    tfi_config.select = selection_of(tfi_config.names);
    keep_environment();
}

bool tfi_config_setting(unsigned index, struct tfi_setting *setting)
{
    if (index >= TFI_COUNT(variables)) return false;
    const struct variable *v = &variables[index];
    const void *field = (const char *)&tfi_config + v->field;
    *setting = (struct tfi_setting){.field = v->label};
    switch (v->type) {
    case TYPE_TEXT:
    case TYPE_PATH:
        setting->kind = TFI_SETTING_TEXT;
        setting->text = *(const char *const *)field;
        break;
    case TYPE_NAMES:
    case TYPE_LIST:
        setting->kind = TFI_SETTING_LIST;
        setting->text = *(const char *const *)field;
        break;
    case TYPE_NUMBER:
    case TYPE_COUNT:
        setting->kind = TFI_SETTING_NUMBER;
        setting->number = *(const uint64_t *)field;
        break;
    case TYPE_SWITCH:
    case TYPE_FLAG:
        setting->kind = TFI_SETTING_SWITCH;
        setting->number = *(const uint32_t *)field == 1;
        break;
    case TYPE_WORDS:
    case TYPE_LEVEL:
    case TYPE_GRAPHS:
        setting->kind = TFI_SETTING_NUMBER;
        setting->number = *(const uint32_t *)field;
        break;
    case TYPE_SCHEDULE:
    case TYPE_CAPTURE:
    case TYPE_TRIGGER: setting->kind = TFI_SETTING_OTHER; break;
    }
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
    static char entry[4096]; /* waking has one entrant, and it may have a small stack */
    const char *list = tfi_config.metadata ? tfi_config.metadata : "";
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
    static char copy[COPIES][BYTES]; /* another thread may be reading the one before */
    static unsigned count;
    char *to = copy[count++ % COPIES];
    tfi_fmt(to, BYTES, "%s", names);
    tfi_config.names = to;
    __atomic_store_n(&tfi_config.select, selection_of(to), __ATOMIC_RELEASE);
}

bool tfi_config_selects(const char *text, size_t length)
{
    char entry[256];
    const char *list = tfi_config.names ? tfi_config.names : "";
    while (tfi_next_name(&list, entry, sizeof entry))
        if (tfi_glob(entry, text, length, false)) return true;
    return false;
}
