/* value_types.h - parses and describes the variables of include/env.def, by type. */
#ifndef TFI_VALUE_TYPES_H
#define TFI_VALUE_TYPES_H

#include <stdbool.h>
#include <stdint.h>

enum tfi_value_type {
    TYPE_TEXT,
    TYPE_PATH,
    TYPE_LIST,
    TYPE_NAMES,
    TYPE_NUMBER,
    TYPE_COUNT,
    TYPE_RATE,
    TYPE_SWITCH,
    TYPE_FLAG,
    TYPE_WORDS,
    TYPE_LEVEL,
    TYPE_GRAPHS,
    TYPE_MODES,
    TYPE_SCHEDULE,
    TYPE_CAPTURE,
    TYPE_TRIGGER,
    TYPE_FILES
};

/* The value of a variable, for callers that do not know its field. */
struct tfi_setting {
    const char *field; /* as in the table */
    enum {
        TFI_SETTING_TEXT,
        TFI_SETTING_LIST,
        TFI_SETTING_NUMBER,
        TFI_SETTING_SWITCH,
        TFI_SETTING_UNSET, /* a switch with a third state */
        TFI_SETTING_OTHER
    } kind;
    const char *text; /* value of a text or list; NULL if it is not set */
    uint64_t number;
};

/* Parses `text` into a field of the type. False, with the field unchanged, if the text is invalid or there is no room
 * for a copy. */
bool tfi_value_parse(enum tfi_value_type type, const char *text, void *field);

/* Fills in everything but the setting's field name. */
void tfi_value_describe(enum tfi_value_type type, const void *field, struct tfi_setting *setting);

/* The values that a variable of the type takes, as text for a message. */
const char *tfi_value_takes(enum tfi_value_type type);

/* Returns a copy that stays until the next tfi_values_forget(); NULL if there is no room. */
const char *tfi_value_keep(const char *text);
void tfi_values_forget(void);

#endif
