/* command.h - the command line as the header of a trace keeps it. */
#ifndef TFI_COMMAND_H
#define TFI_COMMAND_H

#include "fmt.h"

/* Adds the pairs `values`, `command` and, where something was left out of the command, `command.left_out`. */
void tfi_command_header(struct tfi_text *text);

/* Appends one argument without its secrets; `more` becomes true where the next argument is one. Returns how many were
 * left out. */
unsigned tfi_command_argument(struct tfi_text *to, const char *bytes, size_t count, int *more);

#endif
