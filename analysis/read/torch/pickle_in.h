/* pickle_in.h - reads pickles of plain data, such as PyTorch's flight recorder writes, as JSON (pickle_machine.h). */
#ifndef TFA_PICKLE_IN_H
#define TFA_PICKLE_IN_H

#include <jansson.h>
#include <stddef.h>

/* Returns the value as JSON: tuples are lists, and keys are texts. NULL if the pickle is refused or damaged, with the
 * opcode and its offset in *why, which the caller frees. */
json_t *pickle_read(const unsigned char *bytes, size_t length, char **why);

#endif
