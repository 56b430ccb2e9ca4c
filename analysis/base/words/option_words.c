/* option_words.c - the values of the options that take one of several words, indexed by their enums. */
#include "base/words/option_words.h"

#include <stddef.h>

#include "base/opts.h"

const char *const format_names[] = {[FORMAT_TEXT] = "text", [FORMAT_JSON] = "json", [FORMAT_CSV] = "csv", NULL};
const char *const rules_names[] = {[RULES_EXACT] = "exact",
                                   [RULES_TRACELENS] = "tracelens",
                                   [RULES_HTA] = "hta",
                                   [RULES_DFANALYZER] = "dfanalyzer",
                                   NULL};
const char *const device_rules_names[] = {
    [RULES_EXACT] = "exact", [RULES_TRACELENS] = "tracelens", [RULES_HTA] = "hta", NULL};
const char *const file_rules_names[] = {[FILE_RULES_EXACT] = "exact", [FILE_RULES_DFANALYZER] = "dfanalyzer", NULL};
const char *const group_names[] = {[GROUP_KERNEL] = "kernel", [GROUP_OP] = "op", [GROUP_CATEGORY] = "category", NULL};
const char *const file_group_names[] = {
    [GROUP_FUNCTION] = "function", [GROUP_FILE] = "file", [GROUP_PROCESS] = "process", [GROUP_WORKER] = "worker", NULL};
const char *const layout_names[] = {
    [LAYOUT_ROWS] = "rows",   [LAYOUT_SUMMARY] = "summary", [LAYOUT_TIMELINE] = "timeline",
    [LAYOUT_FILES] = "files", [LAYOUT_BATCHES] = "batches", NULL};
const char *const by_names[] = {[BY_KERNEL] = "kernel",
                                [BY_OP] = "op",
                                [BY_STAGE] = "stage",
                                [BY_TREE] = "tree",
                                [BY_FINDING] = "finding",
                                [BY_RUN] = "run",
                                NULL};
const char *const spot_names[] = {[SPOT_FUNCTION] = "function", [SPOT_LINE] = "line", [SPOT_STAGE] = "stage", NULL};
const char *const metric_names[] = {[METRIC_SELF_CPU] = "self_cpu",
                                    [METRIC_SELF_DEVICE] = "self_device",
                                    [METRIC_WALL] = "wall",
                                    [METRIC_CPU] = "cpu",
                                    [METRIC_WAITING] = "waiting",
                                    [METRIC_DEVICE_IDLE] = "device_idle",
                                    NULL};
const char *const stack_layout_names[] = {[STACKS_COLLAPSED] = "collapsed", [STACKS_SPEEDSCOPE] = "speedscope", NULL};
const char *const memory_layout_names[] = {[MEMORY_TIMELINE] = "timeline",
                                           [MEMORY_RAW] = "raw",
                                           [MEMORY_PEAKS] = "peaks",
                                           [MEMORY_LEAKS] = "leaks",
                                           [MEMORY_OOM] = "oom",
                                           [MEMORY_HTML] = "html",
                                           [MEMORY_PROCESS] = "process",
                                           [MEMORY_TORCH] = "torch",
                                           [MEMORY_FRAGMENTATION] = "fragmentation",
                                           NULL};
const char *const style_names[] = {[NAMES_FULL] = "full", [NAMES_SHORT] = "short", [NAMES_MANGLED] = "mangled", NULL};

const char *const stage_name_words[] = {[STAGES_FOLDED] = "folded", [STAGES_FULL] = "full", NULL};
