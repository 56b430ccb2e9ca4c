/* opts.h - the command line, parsed by a table with a typed row per option. */
#ifndef TFA_OPTS_H
#define TFA_OPTS_H

#include "base/util.h"

struct command;

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_CSV };

/* The tool whose definitions an answer follows. */
enum rules { RULES_EXACT, RULES_TRACELENS, RULES_HTA, RULES_DFANALYZER, NR_RULES };
extern const char *const rules_names[NR_RULES + 1];

enum group_by { GROUP_KERNEL, GROUP_OP, GROUP_CATEGORY, NR_GROUPS };
extern const char *const group_names[NR_GROUPS + 1];

/* Rules, rows and layouts of `io`. */
enum file_rules { FILE_RULES_EXACT, FILE_RULES_DFANALYZER };
enum group_files { GROUP_FUNCTION, GROUP_FILE, GROUP_PROCESS, GROUP_WORKER };
enum io_layout { LAYOUT_ROWS, LAYOUT_SUMMARY, LAYOUT_TIMELINE, LAYOUT_FILES, LAYOUT_BATCHES };

enum memory_layout {
    MEMORY_TIMELINE,
    MEMORY_RAW,
    MEMORY_PEAKS,
    MEMORY_LEAKS,
    MEMORY_OOM,
    MEMORY_HTML,
    MEMORY_PROCESS,
    MEMORY_TORCH,
    MEMORY_FRAGMENTATION
};

/* Rows of `diff`. */
enum diff_by { BY_NOT_GIVEN = -1, BY_KERNEL, BY_OP, BY_STAGE, BY_TREE, BY_FINDING, BY_RUN };

/* Rows of `hotspots`. */
enum spot_by { SPOT_FUNCTION, SPOT_LINE, SPOT_STAGE };

/* Times and layouts of `stacks`. */
enum stack_metric {
    METRIC_SELF_CPU,
    METRIC_SELF_DEVICE,
    METRIC_WALL, /* this one and the next ones: of samples */
    METRIC_CPU,
    METRIC_WAITING,
    METRIC_DEVICE_IDLE
};
extern const char *const metric_names[]; /* ends with NULL */
enum stack_layout { STACKS_COLLAPSED, STACKS_SPEEDSCOPE };

/* Grouping of `ops`: always by name, and by these. */
struct group_ops {
    bool shapes, modules;
    uint64_t stack; /* number of frames; 0: do not group by stack */
};

/* Orders of torch's table of operators, by torch's names. */
enum sort_key {
    SORT_NONE,
    SORT_CPU_TIME,
    SORT_DEVICE_TIME,
    SORT_CPU_TIME_TOTAL,
    SORT_DEVICE_TIME_TOTAL,
    SORT_SELF_CPU_TIME_TOTAL,
    SORT_SELF_DEVICE_TIME_TOTAL,
    SORT_CPU_MEMORY,
    SORT_DEVICE_MEMORY,
    SORT_SELF_CPU_MEMORY,
    SORT_SELF_DEVICE_MEMORY,
    SORT_COUNT,
    SORT_FLOPS,
    NR_SORT_KEYS
};

/* The order of rows, and how many are shown. */
struct sort_by {
    char *key;            /* NULL: in the order in which the command writes them */
    enum sort_key torchs; /* what the key means for `ops` */
    uint64_t top;         /* --top beside a key: counts the sorted rows; 0: all */
};

enum stage_name_style { STAGES_FOLDED, STAGES_FULL };
enum name_style { NAMES_FULL, NAMES_SHORT, NAMES_MANGLED };

/* "0,2-5" */
struct list {
    struct {
        uint64_t from, to;
    } * item;
    size_t count;
};

struct strings_list {
    char **text;
    size_t count;
};

struct options {
    const struct command *commands;  /* all that there are; a row without a name ends them */
    const struct command *command;   /* the current one */
    const struct command **question; /* all questions asked, in order */
    size_t questions;
    enum format format;
    char *output;
    char *operator_name;
    char *gpu;     /* whose peaks count where a trace names no device */
    uint64_t jobs; /* 0: one per processor */
    struct list rank, pid, device, stream, step, cycle;
    enum rules rules;
    enum group_by group_by;
    enum file_rules file_rules;
    enum group_files group_files;
    enum diff_by by;
    enum spot_by spot_by;
    enum io_layout layout;
    enum stack_metric metric;
    enum stack_layout stack_layout;
    enum memory_layout memory_layout;
    struct group_ops group_ops;
    struct sort_by sort;
    int64_t row_limit; /* 0: not given, -1: all */
    enum name_style names;
    enum stage_name_style stage_names;
    struct strings_list stage, communication, graph_capture;
    char *budget, *write_budget; /* paths */
    double from, to;             /* seconds; NAN: not given */
    uint64_t top;                /* 0: all */
    uint64_t slowest;            /* 0: not given */
    bool exclusive;
    bool nodes, all, brief;
    double gate; /* percent; NAN: not given */
    char *overlay;
    char *html;     /* path of a page */
    char *topology; /* path */
    char *et;       /* path */
    bool help, version;
    struct strings_list inputs, after; /* after: the words of a COMMAND_LINE, and the runs of side B */
};

/* Returns false on wrong usage, after a one-line message on stderr that names the mistake and often what to use
 * instead. */
bool options_parse(struct options *options, const struct command *commands, int argc, char **argv);
void options_free(struct options *options);
/* Tells whether the command takes the option, a row of options.def with these takers. */
bool command_takes(const struct command *command, const char *option, uint64_t takers);
enum rules options_rules(const struct options *options);
const char *options_sort_key(const struct options *options); /* of the current command; NULL: it keeps its order */
bool list_has(const struct list *list, int64_t value);       /* an empty list matches every value */

#endif
