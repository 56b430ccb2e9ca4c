/* command.h - a command, a row of commands.def: its name, what it takes and the functions that answer it.
 *
 * Only main.c includes commands.def, so that a new command rebuilds few files. All others get the table from the options.
 */
#ifndef TFA_COMMAND_H
#define TFA_COMMAND_H

#include "base/opts.h"

struct needs;
struct reduction;
struct session;

/* Options that only some commands take, as `takes` in commands.def lists them. */
enum {
    ROWS = 1,
    ANSWER = 2,
    FILES = 4,
    TOGETHER = 8,
    RULES = 16,
    KERNEL_GROUPS = 32,
    TORCH_TABLE = 64,
    EXCLUSIVE = 128,    /* --exclusive and --slowest */
    ALL = 256,          /* every command but `help` takes it */
    FILTERED = 512,     /* a filter: every command takes it unless commands.def refuses it */
    STAGED = 268435456, /* every command that takes --stage takes it */
    MERGED = 2048,
    HELP = 1024, /* the command reads no trace: its arguments are words */
    DFTRACER = 4096,
    FILE_TABLE = 8192,
    MEMORY_LAYOUTS = 8388608,
    MEMORY_ROWS = 16777216,
    SPOTS = 67108864,
    BUDGET = 16384,
    DIFF = 32768,
    STACK_LINES = 65536,
    OPERATOR = 131072,
    PATH = 262144,
    HTA_RULES = 1048576,
    TRACELENS_RULES = 2097152,
    VERSIONED = 4194304,
    PEAKS = 33554432,
    FINDINGS = 134217728,
    FIRST_SCREEN = 268435456, /* what is asked where no command is given */
    COMMAND_LINE = 524288     /* words behind `--` are a command line */
};

/* How a command answers by our rules or by another tool's definitions. */
struct definition {
    void (*answer)(struct session *session);
    struct needs (*needs)(const struct options *options); /* what it reads of the inputs (model/needs/needs.def) */
    const struct reduction *reduction;                    /* NULL: it needs the whole model */
};

struct command {
    const char *name, *keys, *refuses;
    unsigned takes;
    struct definition by[NR_RULES];
};

/* Returns how a command answers by the chosen rules. */
static inline const struct definition *definition_of(const struct command *command, const struct options *options)
{
    return &command->by[options_rules(options)];
}

#endif
