/* config.h - keeps the settings of include/env.def, which the constructor reads once. */
#ifndef TFI_CONFIG_H
#define TFI_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/plan.h"
#include "control/value_types.h"
#include "pattern.h"
#include "record/log.h"

/* The selection by ENABLE_PROFILER_NAMES. */
enum tfi_select {
    TFI_SELECT_ALL,    /* unset: everything, all the time */
    TFI_SELECT_NAMES,  /* inside matching stages */
    TFI_SELECT_NOTHING /* empty: stage timing only */
};

#define ACTIVITY(name, word, meaning) TFI_ACTIVITY_BIT_##name,
enum tfi_activity_bit {
#include "env.def"
    TFI_ACTIVITIES
};

/* Words of TFI_ACTIVITIES, as bits. */
#define ACTIVITY(name, word, meaning) TFI_ACTIVITY_##name = 1 << TFI_ACTIVITY_BIT_##name,
enum tfi_activity {
#include "env.def"
};

/* Files that TFI_IO_PATHS may add, as bits. */
#define IO_CLASS(name, word, meaning) TFI_IO_CLASS_BIT_##name,
enum tfi_io_class_bit {
#include "env.def"
};
#define IO_CLASS(name, word, meaning) TFI_IO_CLASS_##name = 1 << TFI_IO_CLASS_BIT_##name,
enum tfi_io_class {
#include "env.def"
};

#define TFI_UNSET 2u

#define GRAPHS(name, word) TFI_GRAPHS_##name,
enum tfi_graphs {
#include "env.def"
};

#define MODES(name, word) TFI_MODE_##name,
enum tfi_mode {
#include "env.def"
};

struct tfi_config {
    const char *names; /* this and the next ones: copies of the values, NULL if unset */
    const char *output_dir;
    const char *pipeline;
    const char *nvtx_domains;
    const char *metadata;
    const char *live_dir;
    const char *cupti_path;
    const char *io_paths; /* NULL: all files but those of the classes */
    const char *step;     /* NULL: ProfilerStep#* */
    uint64_t max_mb;
    uint64_t flight_mb;
    uint64_t flight_s;
    uint64_t flight_period_s;
    uint64_t flush_ms;
    uint64_t nvml_hz;
    uint64_t hang_s;
    uint64_t sample_hz;
    uint64_t io_aggregate_ms;
    uint64_t host_alloc_kb;
    uint32_t activities; /* enum tfi_activity */
    uint32_t fixed;      /* bits set by the environment, as in tfi_recording_now; the others are defaults */
    uint32_t nccl_plugin;
    uint32_t tensor_addresses;
    uint32_t with_modules;
    uint32_t record_shapes;
    uint32_t record_values;
    uint32_t with_stack; /* TFI_UNSET: the list decides; `activities` holds the result */
    uint32_t profile_memory;
    const char *stages;
    const char *native;
    uint64_t module_depth;
    uint32_t keep_originals;
    uint32_t sync_stages; /* TFI_UNSET: contexts of TeleFuser wait, other stages do not */
    uint32_t profile_debug;
    enum tfi_graphs graphs;
    enum tfi_mode mode;
    struct tfi_plan schedule;
    struct tfi_capture capture;
    struct tfi_trigger trigger;
    enum tfi_log_level log;
    enum tfi_select select;
    const char *inherited_dir; /* TFI_RUN_DIR as it was at start, NULL if unset */
    bool secure; /* this program has rights that its user lacks (AT_SECURE): no variable is read, nothing is recorded */
};

extern struct tfi_config tfi_config;

/* Reads the environment; cheap enough for every process that inherits the preload. */
void tfi_config_read(void);

/* Describes the variable at `index` of the table; false behind the last one. */
bool tfi_config_setting(unsigned index, struct tfi_setting *setting);

/* True if an activity is on, or may be switched on while the program runs. */
bool tfi_config_may_have(enum tfi_activity activity);

/* Test for warnings and log them: one for every unknown TFI_ name and every bad value that tfi_config_read() found. */
bool tfi_config_has_warnings(void);
void tfi_config_warn(void);

/* Adds an `env.NAME` pair for each variable that is set (this table's and the launchers'), and `meta.KEY` pairs. */
struct tfi_text;
void tfi_config_header(struct tfi_text *text);

/* Turns words of TFI_ACTIVITIES, separated by commas, into bits; false if a word is unknown. */
bool tfi_config_activities(const char *list, uint32_t *bits);

/* Turns a word of TFI_IO_PATHS, without its plus sign, into its bit; false if it is unknown. */
bool tfi_config_io_class(const char *word, size_t length, uint32_t *bit);

/* Replaces ENABLE_PROFILER_NAMES at the program's request. */
void tfi_config_select(const char *names);

/* Sets TFI_IO_PATHS unless it is set. Paths that calls have used before keep their decision. */
void tfi_config_io_paths(const char *paths);

/* Records everything from now on, in a process whose work belongs to stages of another one: the analysis decides what
 * lies in a selected stage. An empty ENABLE_PROFILER_NAMES stays in force. */
void tfi_config_select_undecided(void);

/* True if the text matches an entry of ENABLE_PROFILER_NAMES. */
bool tfi_config_selects(const char *text, size_t length);

#endif
