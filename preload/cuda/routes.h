/* routes.h - look-ups that bypass the symbol of a CUDA or NCCL function; each of them returns our wrapper. */
#ifndef TFI_CUDA_ROUTES_H
#define TFI_CUDA_ROUTES_H

#include <stdint.h>

#include "hooks/hooks.h"

/* Flags of the driver's and the runtime's look-ups. */
enum { TFI_ROUTE_LEGACY = 1, TFI_ROUTE_PER_THREAD = 2 };

/* Returns our wrapper for a name in a library that the program opened; NULL if dlsym is to answer. */
void *tfi_route_symbol(void *handle, const char *name);

/* True if a table has a row of that name. */
bool tfi_route_is_row(const char *name);

/* For the name of a row: true if no mapped library of its table has such a function. */
bool tfi_route_is_missing(const char *name, const void *caller);

/* True if the handle gives a wrapper of ours for that name. */
bool tfi_route_is_ours(void *handle, const char *name);

/* Returns our wrapper for the function that the driver found for a name and version; `found` if there is none.
 * Keeps errno. */
void *tfi_route_driver(const char *name, unsigned version, uint64_t flags, void *found);

/* Return the wrapper of a row, from cuda.c and cudart.c. */
void *tfi_cuda_wrapper(enum tfi_hook hook);
void *tfi_cudart_wrapper(enum tfi_hook hook);

#endif
