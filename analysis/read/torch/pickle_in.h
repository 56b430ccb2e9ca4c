/* pickle_in.h - reads pickles of plain data, such as PyTorch's flight recorder writes, without executing anything.
 *
 * Only opcodes for dictionaries, lists, tuples, texts, numbers, true, false and none are accepted, of protocols 2 to 5.
 * Every other opcode is refused: REDUCE, GLOBAL, BUILD, INST, persistent ids and all others that name a function or a
 * class. Sizes, nesting, and the memo are limited, and a container may be used again but not changed again, so that no
 * pickle becomes larger than a small multiple of its file.
 */
#ifndef TFA_PICKLE_IN_H
#define TFA_PICKLE_IN_H

#include <jansson.h>
#include <stddef.h>

/* Returns the value as JSON: tuples are lists, and keys are texts. NULL if the pickle is refused or damaged, with the
 * opcode and its offset in *why, which the caller frees. */
json_t *pickle_read(const unsigned char *bytes, size_t length, char **why);

#endif
