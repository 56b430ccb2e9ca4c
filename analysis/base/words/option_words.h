/* option_words.h - what the values of options are, and the words of those that take one of several. */
#ifndef TFA_OPTION_WORDS_H
#define TFA_OPTION_WORDS_H

/* The types in options.def. READS, PATHS and WRITES are paths of files. */
enum option_type {
    FLAG,
    WORD,
    TEXT,
    READS,
    WRITES,
    COUNT,
    LIST,
    GLOB,
    PATHS,
    SECONDS,
    GROUPS,
    SORT_KEY,
    METRIC,
    LIMIT,
    PERCENT
};

/* Each ends with NULL. */
extern const char *const format_names[];
extern const char *const device_rules_names[];
extern const char *const file_rules_names[];
extern const char *const file_group_names[];
extern const char *const layout_names[];
extern const char *const by_names[];
extern const char *const spot_names[];
extern const char *const stack_layout_names[];
extern const char *const memory_layout_names[];
extern const char *const style_names[];
extern const char *const stage_name_words[];

#endif
