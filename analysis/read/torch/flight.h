/* flight.h - reads dumps of PyTorch's flight recorder: a pickle of plain data, or the same as JSON. */
#ifndef TFA_FLIGHT_H
#define TFA_FLIGHT_H

#include <jansson.h>

#include "base/file_in.h"

/* Recognises a dump by its first bytes. */
bool is_flight_file(const char *path, enum file_how how);
/* Both return the dump, an object with the list `entries`; NULL with the reason in *why, which the caller frees. */
json_t *flight_read(const char *path, enum file_how how, char **why);
json_t *flight_parse(const char *bytes, size_t length, char **why);

#endif
