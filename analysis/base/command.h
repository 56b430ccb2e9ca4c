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

/* Options that only some commands take, as `takes` in commands.def lists them, and takers of options.def. */
enum {
    ROWS = 1 << 0,
    ANSWER = 1 << 1,
    FILES = 1 << 2,
    TOGETHER = 1 << 3,
    RULES = 1 << 4,
    HTA_RULES = 1 << 5,
    TRACELENS_RULES = 1 << 6,
    KERNEL_GROUPS = 1 << 7,
    TORCH_TABLE = 1 << 8,
    EXCLUSIVE = 1 << 9, /* --exclusive and --slowest */
    FILE_TABLE = 1 << 10,
    MEMORY_LAYOUTS = 1 << 11,
    SPOTS = 1 << 12,
    BUDGET = 1 << 13,
    DIFF = 1 << 14,
    STACK_LINES = 1 << 15,
    OPERATOR = 1 << 16,
    PATH = 1 << 17,
    PEAKS = 1 << 18,
    FINDINGS = 1 << 19,
    MERGED = 1 << 20,
    DFTRACER = 1 << 21,
    MEMORY_ROWS = 1 << 22,
    VERSIONED = 1 << 23,
    FIRST_SCREEN = 1 << 24, /* what is asked where no command is given */
    COMMAND_LINE = 1 << 25, /* words behind `--` are a command line */
    HELP = 1 << 26,         /* the command reads no trace: its arguments are words */
    ALL = 1 << 27,          /* of an option: every command but `help` takes it */
    FILTERED = 1 << 28,     /* of a filter: every command takes it unless commands.def refuses it */
    REPLAYS = 1 << 29,      /* --graph-capture */
    PLACES = 1 << 30,
    PAGE = 1U << 31, /* --html */
    /* Of an option: every command that takes --stage takes it; every command that prints rows takes it unless commands.def
     * refuses it. No bit is left; as takers are compared whole, each is two others together. */
    STAGED = FILTERED | ALL,
    SORTED = FILTERED | ROWS
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
