/* reveals.h - what a trace of ours says about the program to somebody it is given to. */
#ifndef TFA_REVEALS_H
#define TFA_REVEALS_H

#include "util.h"

struct trace;

enum reveals_command { COMMAND_UNKNOWN, COMMAND_WHOLE, COMMAND_SHORTENED, COMMAND_NAME };

struct reveals {
    bool known; /* not of a Kineto trace */
    enum reveals_command command;
    uint64_t left_out; /* values of the command line */
    bool values;       /* arguments and inputs stand in it with what they hold */
    uint64_t texts;    /* distinct ones: names, messages, signatures */
    uint64_t lines;    /* of them frames of call stacks, with the path of a source file */
    char *paths;       /* entries of the header that are paths, with ", " between; NULL: none */
    char *environment; /* names of the variables whose values are kept, as paths */
};

/* Everything but `values` and texts is in the header. The strings have been read. */
void reveals_find(struct reveals *reveals, const struct trace *trace);
void reveals_free(struct reveals *reveals);

#endif
