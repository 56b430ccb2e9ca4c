/* reveals.h - finds what a trace of ours tells a recipient about the program. */
#ifndef TFA_REVEALS_H
#define TFA_REVEALS_H

#include "base/util.h"

struct trace;

enum reveals_command { COMMAND_UNKNOWN, COMMAND_WHOLE, COMMAND_SHORTENED, COMMAND_NAME };

struct reveals {
    bool known; /* false for a Kineto trace */
    enum reveals_command command;
    uint64_t left_out; /* number of values omitted from the command line */
    bool values;       /* the trace holds the values of arguments and inputs */
    uint64_t texts;    /* distinct texts: names, messages, signatures */
    uint64_t lines;    /* those that are frames of call stacks, with the path of a source file */
    char *paths;       /* header entries that are paths, joined with ", "; NULL: none */
    char *environment; /* names of the environment variables whose values are in the trace, joined like `paths` */
};

/* Needs the strings to be read. All except `texts` and `lines` comes from the header. */
void reveals_find(struct reveals *reveals, const struct trace *trace);
void reveals_free(struct reveals *reveals);

#endif
