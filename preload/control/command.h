/* command.h - writes the command line for the header of a trace. */
#ifndef TFI_COMMAND_H
#define TFI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "base/fmt.h"

/* Adds the pairs `values`, `command` and, if something was left out of the command, `command.left_out`. */
void tfi_command_header(struct tfi_text *text);

/* Appends one argument without its secrets; sets `more` if the next argument is a secret. Returns how many secrets were
 * left out. */
unsigned tfi_command_argument(struct tfi_text *to, const char *bytes, size_t count, int *more);

/* True if a name (of an option, a variable, a parameter, a key) is a secret's. --max_new_tokens is a number and no secret. */
bool tfi_secret_name(const char *name, size_t count);

/* Appends the text of a value without URLs' passwords and signatures, and without words that look like keys. Prose that
 * speaks of keys stays. */
void tfi_secret_text(struct tfi_text *to, const char *bytes, size_t count);

#endif
