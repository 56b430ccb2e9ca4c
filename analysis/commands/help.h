/* help.h - the pages of `tfanalyze help`, which the build writes into one table from the texts in help/. */
#ifndef TFA_HELP_H
#define TFA_HELP_H

struct command;

struct help_page {
    const char *name;     /* the words after `tfanalyze help` */
    const char *text;     /* its first line is "name - what it explains" */
    const char *question; /* of the first command below a question; else NULL */
};

/* Written by `scripts/gen-tables help` into the build directory. */
/* A row of NULLs ends each. */
extern const struct help_page help_topics[];   /* in the order of their names */
extern const struct help_page help_commands[]; /* in the order of commands.def */

/* Returns the text of a topic. */
const char *help_topic(const char *name);
/* Prints the page of a command, or with NULL that of the program. */
void help_print(const struct command *command);

#endif
