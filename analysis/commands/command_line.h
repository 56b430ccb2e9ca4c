/* command_line.h - one command line from its words to the exit status. */
#ifndef TFA_COMMAND_LINE_H
#define TFA_COMMAND_LINE_H

struct command;

/* Parses the words, asks the questions and returns the exit status. */
int command_line_run(const struct command *commands, int argc, char **argv);

#endif
