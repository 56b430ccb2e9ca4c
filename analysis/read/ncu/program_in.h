/* program_in.h - runs another program and reads what it prints; only for a file that the user named to be read by it. */
#ifndef TFA_PROGRAM_IN_H
#define TFA_PROGRAM_IN_H

#include "base/util.h"

/* Runs the program that the user's PATH has under argv[0], without a shell, and waits for it. Its messages go to stderr.
 * Returns what it printed, which the caller frees; NULL: *why has the reason, which the caller frees. */
char *program_output(char *const argv[], size_t most, size_t *length, char **why);

#endif
