/* config.h - the environment variables of include/env.def, read once in the constructor. */
#ifndef TFI_CONFIG_H
#define TFI_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pattern.h"
#include "schedule.h"

enum tfi_log_level { TFI_LOG_ERROR, TFI_LOG_WARN, TFI_LOG_INFO, TFI_LOG_DEBUG };

/* How ENABLE_PROFILER_NAMES selects. */
enum tfi_select {
    TFI_SELECT_ALL,    /* unset: everything, all the time */
    TFI_SELECT_NAMES,  /* inside matching stages */
    TFI_SELECT_NOTHING /* empty: stage timing only */
};

/* Words of TFI_ACTIVITIES, as bits. */
enum tfi_activity {
    TFI_ACTIVITY_CPU = 1,
    TFI_ACTIVITY_GPU = 2,
    TFI_ACTIVITY_MEM = 4,
    TFI_ACTIVITY_NCCL = 8,
    TFI_ACTIVITY_OPS = 16,
    TFI_ACTIVITY_IO = 32,
    TFI_ACTIVITY_STACK = 64,
};

#define TFI_UNSET 2u

enum tfi_graphs { TFI_GRAPHS_NODE, TFI_GRAPHS_GRAPH };

struct tfi_config {
    const char *names; /* copies of the values, NULL where unset */
    const char *output_dir;
    const char *pipeline;
    const char *nvtx_domains;
    const char *metadata;
    const char *live_dir;
    const char *cupti_path;
    const char *step; /* NULL: ProfilerStep#* */
    uint64_t max_mb;
    uint64_t flush_ms;
    uint32_t activities; /* enum tfi_activity */
    uint32_t fixed;      /* what the environment says something about, as in tfi_recording_now; the rest is default */
    uint32_t event_kernels;
    uint32_t tensor_addresses;
    uint32_t record_shapes;
    uint32_t record_values;
    uint32_t with_stack; /* TFI_UNSET: as the list says; activities holds the outcome */
    uint32_t profile_memory;
    const char *stages;
    const char *native;
    uint64_t module_depth;
    uint32_t keep_originals;
    uint32_t sync_stages;
    uint32_t profile_debug;
    enum tfi_graphs graphs;
    struct tfi_plan schedule;
    struct tfi_capture capture;
    struct tfi_trigger trigger;
    enum tfi_log_level log;
    enum tfi_select select;
    const char *inherited_dir; /* TFI_RUN_DIR as it was at start, NULL if unset */
};

extern struct tfi_config tfi_config;

/* Reads the environment; cheap enough for every process that inherits the preload. */
void tfi_config_read(void);

/* What a variable holds, for those who don't know its field. */
struct tfi_setting {
    const char *field; /* as in the table */
    enum { TFI_SETTING_TEXT, TFI_SETTING_LIST, TFI_SETTING_NUMBER, TFI_SETTING_SWITCH, TFI_SETTING_OTHER } kind;
    const char *text; /* of a text or list; NULL if it is not set */
    uint64_t number;
};

/* The variable at this place of the table; false behind the last one. */
bool tfi_config_setting(unsigned index, struct tfi_setting *setting);

/* True if an activity is on, or may be switched on while the program runs. */
bool tfi_config_may_have(enum tfi_activity activity);

/* Logs a warning for every unknown TFI_ name and every bad value found by tfi_config_read(). */
bool tfi_config_has_warnings(void);
void tfi_config_warn(void);

/* Adds `env.NAME` pairs of what is set (this table's and the launchers' variables) and `meta.KEY` pairs. */
struct tfi_text;
void tfi_config_header(struct tfi_text *text);

/* Words of TFI_ACTIVITIES, separated by commas, as bits; false if one is not known. */
bool tfi_config_activities(const char *list, uint32_t *bits);

/* ENABLE_PROFILER_NAMES is this from now on: the program says so. */
void tfi_config_select(const char *names);

/* True if the text matches an entry of ENABLE_PROFILER_NAMES. */
bool tfi_config_selects(const char *text, size_t length);

#endif
