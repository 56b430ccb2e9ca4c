/* command.h - a command, a row of commands.def: its name, what it takes and the functions that answer it.
 *
 * Only main.c includes commands.def, so that a new command rebuilds few files. All others get the table from the options.
 */
#ifndef TFA_COMMAND_H
#define TFA_COMMAND_H

#include <stdint.h>

#include "base/opts.h"

struct needs;
struct reduction;
struct session;

/* Options that only some commands take, as `takes` in commands.def lists them, and takers of options.def. An enum has no
 * more than 31 bits in C11. */
#define ROWS (UINT64_C(1) << 0)
#define ANSWER (UINT64_C(1) << 1)
#define FILES (UINT64_C(1) << 2)
#define TOGETHER (UINT64_C(1) << 3)
#define RULES (UINT64_C(1) << 4)
#define HTA_RULES (UINT64_C(1) << 5)
#define TRACELENS_RULES (UINT64_C(1) << 6)
#define KERNEL_GROUPS (UINT64_C(1) << 7)
#define TORCH_TABLE (UINT64_C(1) << 8)
#define EXCLUSIVE (UINT64_C(1) << 9) /* --exclusive and --slowest */
#define FILE_TABLE (UINT64_C(1) << 10)
#define MEMORY_LAYOUTS (UINT64_C(1) << 11)
#define SPOTS (UINT64_C(1) << 12)
#define BUDGET (UINT64_C(1) << 13)
#define DIFF (UINT64_C(1) << 14)
#define STACK_LINES (UINT64_C(1) << 15)
#define OPERATOR (UINT64_C(1) << 16)
#define PATH (UINT64_C(1) << 17)
#define PEAKS (UINT64_C(1) << 18)
#define FINDINGS (UINT64_C(1) << 19)
#define MERGED (UINT64_C(1) << 20)
#define DFTRACER (UINT64_C(1) << 21)
#define MEMORY_ROWS (UINT64_C(1) << 22)
#define VERSIONED (UINT64_C(1) << 23)
#define FIRST_SCREEN (UINT64_C(1) << 24) /* what is asked where no command is given */
#define COMMAND_LINE (UINT64_C(1) << 25) /* words behind `--` are a command line */
#define HELP (UINT64_C(1) << 26)         /* the command reads no trace: its arguments are words */
#define ALL (UINT64_C(1) << 27)          /* of an option: every command but `help` and `mcp` takes it */
#define FILTERED (UINT64_C(1) << 28)     /* of a filter: every command takes it unless commands.def refuses it */
#define REPLAYS (UINT64_C(1) << 29)      /* --graph-capture */
#define PLACES (UINT64_C(1) << 30)
#define PAGE (UINT64_C(1) << 31)   /* --html */
#define STAGED (UINT64_C(1) << 32) /* of an option: every command that takes --stage takes it */
#define SORTED                                                                                                         \
    (UINT64_C(1) << 33) /* of an option: every command that prints rows takes it unless commands.def refuses it */
#define TOOL (UINT64_C(1) << 34)   /* a tool of its own over the Model Context Protocol */
#define SERVES (UINT64_C(1) << 35) /* the command asks others: its arguments are directories */
#define COLLECTIVES (UINT64_C(1) << 36)

/* How a command answers by our rules or by another tool's definitions. */
struct definition {
    void (*answer)(struct session *session);
    struct needs (*needs)(const struct options *options); /* what it reads of the inputs (model/needs/needs.def) */
    const struct reduction *reduction;                    /* NULL: it needs the whole model */
};

struct command {
    const char *name, *answers, *keys, *refuses;
    uint64_t takes;
    struct definition by[NR_RULES];
};

/* Returns how a command answers by the chosen rules. */
static inline const struct definition *definition_of(const struct command *command, const struct options *options)
{
    return &command->by[options_rules(options)];
}

#endif
