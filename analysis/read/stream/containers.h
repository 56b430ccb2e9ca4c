/* containers.h - names the kind of a file that is no trace. */
#ifndef TFA_READ_CONTAINERS_H
#define TFA_READ_CONTAINERS_H

#include <stdbool.h>

#include "base/file_in.h"

/* Returns what a file is and what to do with it, for a message: "compressed with zstd ...; unpack it first: ..."; NULL if
 * its first bytes do not tell. */
const char *container_of(const char *path, enum file_how how);
/* The same of the first bytes, 512 of them if there are so many. */
const char *container_in(const char *head, size_t length);
/* True for the name of a compressed trace that is not read: rank0.json.zst. */
bool is_packed_name(const char *name);

#endif
