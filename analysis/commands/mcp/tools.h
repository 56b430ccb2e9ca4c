/* tools.h - the tools that `tfanalyze mcp` offers, and the command line that a call of one of them means. */
#ifndef TFA_TOOLS_H
#define TFA_TOOLS_H

#include <jansson.h>

#include "commands/mcp/served.h"

struct command;

/* The words of a command line; NULL ends them. */
struct words {
    char **word;
    size_t count;
};
void words_free(struct words *words);

/* Returns the list of tools, made from the table of the commands. */
json_t *tools_list(const struct command *commands, const struct served *served);
/* Returns false if there is no such tool. */
bool tools_have(const struct command *commands, const char *tool);
/* Makes the command line of a call, and the first line of the answer to return. Returns false with a message for the
 * client. */
bool tools_words(const struct command *commands, const struct served *served, const char *tool, const json_t *arguments,
                 struct words *words, size_t *offset, struct text *why);

#endif
