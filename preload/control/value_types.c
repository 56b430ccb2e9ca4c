/* value_types.c - has one row for each type of variable: its parser, its describer, and the values it takes, for messages.
 *
 * Only the constructor parses. Texts are copied, because the program may change its environment later.
 */
#include "control/value_types.h"

#include <string.h>

#include "base/tfi.h"
#include "control/config.h"

static char copies[16384];
static size_t copies_used;

const char *tfi_value_keep(const char *text)
{
    size_t bytes = strlen(text) + 1;
    if (bytes > sizeof copies - copies_used) return NULL;
    char *copy = copies + copies_used;
    memcpy(copy, text, bytes);
    copies_used += bytes;
    return copy;
}

void tfi_values_forget(void)
{
    copies_used = 0;
}

/* ---- parsers ---- */

/* Parses a text; an empty one leaves the default. */
static bool parse_text(const char *text, void *field)
{
    const char *copy = *text ? tfi_value_keep(text) : NULL;
    if (copy) *(const char **)field = copy;
    return copy || !*text;
}

static bool parse_list(const char *text, void *field)
{
    return (*(const char **)field = tfi_value_keep(text)) != NULL;
}

#define RANGE(type, least, most) type##_LEAST = least, type##_MOST = most,
enum {
#include "env.def"
};

static bool parse_number(const char *text, void *field)
{
    return tfi_whole_number(text, NUMBER_LEAST, NUMBER_MOST, field);
}

static bool parse_count(const char *text, void *field)
{
    return tfi_whole_number(text, COUNT_LEAST, COUNT_MOST, field);
}

static bool parse_rate(const char *text, void *field)
{
    return tfi_whole_number(text, RATE_LEAST, RATE_MOST, field);
}

static bool parse_flag(const char *text, void *field)
{
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on", "unset"};
    for (size_t i = 0; i < TFI_COUNT(words); i++) {
        if (!tfi_glob(words[i], text, strlen(text), true)) continue;
        *(uint32_t *)field = strcmp(words[i], "unset") == 0 ? TFI_UNSET : i & 1;
        return true;
    }
    return false;
}

static bool parse_switch(const char *text, void *field)
{
    return strlen(text) == 1 && parse_flag(text, field);
}

static int index_of(const char *word, const char *const words[], unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (strcmp(word, words[i]) == 0) return (int)i;
    return -1;
}

#define ACTIVITY(name, word, meaning) word,
static const char *const activities[] = {
#include "env.def"
};
#define LEVEL(name, word) word,
static const char *const levels[] = {
#include "env.def"
};
#define GRAPHS(name, word) word,
static const char *const graphs[] = {
#include "env.def"
};

#define MODES(name, word) word,
static const char *const modes[] = {
#include "env.def"
};

/* An empty list gives no bits. */
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

static bool parse_words(const char *text, void *field)
{
    return tfi_config_activities(text, field);
}

#define IO_CLASS(name, word, meaning) word,
static const char *const io_classes[] = {
#include "env.def"
};

bool tfi_config_io_class(const char *word, size_t length, uint32_t *bit)
{
    for (unsigned i = 0; i < TFI_COUNT(io_classes); i++) {
        if (strlen(io_classes[i]) != length || memcmp(io_classes[i], word, length) != 0) continue;
        *bit = 1u << i;
        return true;
    }
    return false;
}

static bool parse_files(const char *text, void *field)
{
    uint32_t bit;
    for (const char *entry = text; *entry;) {
        size_t length = (size_t)(strchrnul(entry, ',') - entry);
        bool is_path = entry[0] == '/' || (entry[0] == '-' && entry[1] == '/');
        if (!is_path && !(entry[0] == '+' && tfi_config_io_class(entry + 1, length - 1, &bit))) return false;
        entry += length + (entry[length] == ',');
    }
    return parse_text(text, field);
}

static bool parse_level(const char *text, void *field)
{
    int found = index_of(text, levels, TFI_COUNT(levels));
    if (found >= 0) *(enum tfi_log_level *)field = (enum tfi_log_level)found;
    return found >= 0;
}

static bool parse_graphs(const char *text, void *field)
{
    int found = index_of(text, graphs, TFI_COUNT(graphs));
    if (found >= 0) *(enum tfi_graphs *)field = (enum tfi_graphs)found;
    return found >= 0;
}

static bool parse_mode(const char *text, void *field)
{
    int found = index_of(text, modes, TFI_COUNT(modes));
    if (found >= 0) *(enum tfi_mode *)field = (enum tfi_mode)found;
    return found >= 0;
}

static bool parse_schedule(const char *text, void *field)
{
    return tfi_plan_parse(text, field);
}

static bool parse_capture(const char *text, void *field)
{
    return tfi_capture_parse(text, field);
}

static bool parse_trigger(const char *text, void *field)
{
    return (text = tfi_value_keep(text)) != NULL && tfi_trigger_parse(text, field);
}

/* ---- describers of fields ---- */

static void describe_text(const void *field, struct tfi_setting *setting)
{
    setting->kind = TFI_SETTING_TEXT;
    setting->text = *(const char *const *)field;
}

static void describe_list(const void *field, struct tfi_setting *setting)
{
    setting->kind = TFI_SETTING_LIST;
    setting->text = *(const char *const *)field;
}

static void describe_number(const void *field, struct tfi_setting *setting)
{
    setting->kind = TFI_SETTING_NUMBER;
    setting->number = *(const uint64_t *)field;
}

static void describe_word(const void *field, struct tfi_setting *setting)
{
    setting->kind = TFI_SETTING_NUMBER;
    setting->number = *(const uint32_t *)field;
}

static void describe_switch(const void *field, struct tfi_setting *setting)
{
    setting->kind = TFI_SETTING_SWITCH;
    setting->number = *(const uint32_t *)field == 1;
}

static void describe_flag(const void *field, struct tfi_setting *setting)
{
    describe_switch(field, setting);
    if (*(const uint32_t *)field == TFI_UNSET) setting->kind = TFI_SETTING_UNSET;
}

static void describe_other(const void *field, struct tfi_setting *setting)
{
    (void)field;
    setting->kind = TFI_SETTING_OTHER;
}

/* ---- the types ---- */

#define SHORTER "a shorter text"
#define ACTIVITY(name, word, meaning) " " word
static const char words_take[] = "any of:"
#include "env.def"
                                 ", separated by commas";
#define IO_CLASS(name, word, meaning) " +" word
static const char files_take[] = "/path, -/path, or any of:"
#include "env.def"
                                 ", separated by commas";
#define LEVEL(name, word) " " word
static const char level_takes[] = "one of:"
#include "env.def"
    ;
#define GRAPHS(name, word) " " word
static const char graphs_take[] = "one of:"
#include "env.def"
    ;

#define MODES(name, word) " " word
static const char mode_takes[] = "one of:"
#include "env.def"
    ;

#define RANGE(type, least, most) static const char type##_takes[] = "a whole number from " #least " to " #most;
#include "env.def"

static const struct {
    bool (*parse)(const char *text, void *field);
    void (*describe)(const void *field, struct tfi_setting *setting);
    const char *takes;
} types[] = {
    [TYPE_TEXT] = {parse_text, describe_text, SHORTER},
    [TYPE_PATH] = {parse_text, describe_text, SHORTER},
    [TYPE_LIST] = {parse_list, describe_list, SHORTER},
    [TYPE_NAMES] = {parse_list, describe_list, SHORTER},
    [TYPE_NUMBER] = {parse_number, describe_number, NUMBER_takes},
    [TYPE_COUNT] = {parse_count, describe_number, COUNT_takes},
    [TYPE_RATE] = {parse_rate, describe_number, RATE_takes},
    [TYPE_SWITCH] = {parse_switch, describe_switch, "0 or 1"},
    [TYPE_FLAG] = {parse_flag, describe_flag, "0 or 1 (or true, yes, on, false, no, off)"},
    [TYPE_WORDS] = {parse_words, describe_word, words_take},
    [TYPE_LEVEL] = {parse_level, describe_word, level_takes},
    [TYPE_GRAPHS] = {parse_graphs, describe_word, graphs_take},
    [TYPE_MODES] = {parse_mode, describe_word, mode_takes},
    [TYPE_SCHEDULE] = {parse_schedule, describe_other,
                       "skip_first, wait, warmup, active (not 0) and repeat, each as name=number, separated by commas"},
    [TYPE_CAPTURE] = {parse_capture, describe_other,
                      "one or several of cudaProfilerApi, delay=seconds and duration=seconds, separated by commas"},
    [TYPE_FILES] = {parse_files, describe_text, files_take},
    [TYPE_TRIGGER] = {parse_trigger, describe_other, "signal:NUMBER, where the signal can be caught, or file:PATH"},
};

bool tfi_value_parse(enum tfi_value_type type, const char *text, void *field)
{
    return types[type].parse(text, field);
}

void tfi_value_describe(enum tfi_value_type type, const void *field, struct tfi_setting *setting)
{
    types[type].describe(field, setting);
}

const char *tfi_value_takes(enum tfi_value_type type)
{
    return types[type].takes;
}
