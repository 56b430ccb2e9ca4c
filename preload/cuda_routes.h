/* cuda_routes.h - the ways to a CUDA function that lead past its symbol, each ending at our wrapper. */
#ifndef TFI_CUDA_ROUTES_H
#define TFI_CUDA_ROUTES_H

#include <stdint.h>

#include "hooks.h"

/* What the driver's and the runtime's look-ups are asked for. */
enum { TFI_ROUTE_LEGACY = 1, TFI_ROUTE_PER_THREAD = 2 };

/* Our wrapper for a name in a library that somebody opened; NULL if dlsym is to answer. */
void *tfi_route_symbol(void *handle, const char *name);

/* True if a table has a row of that name. */
bool tfi_route_is_row(const char *name);

/* For the name of a row: true if no library of its table that is mapped has such a function. */
bool tfi_route_is_missing(const char *name, const void *caller);

/* True if what the handle gives for that name is a wrapper of ours. */
bool tfi_route_is_ours(void *handle, const char *name);

/* Our wrapper for what the driver found under a name for a version; what it found where there is none. Keeps errno. */
void *tfi_route_driver(const char *name, unsigned version, uint64_t flags, void *found);

/* The wrapper of a row, from cuda.c and cudart.c. */
void *tfi_cuda_wrapper(enum tfi_hook hook);
void *tfi_cudart_wrapper(enum tfi_hook hook);

#endif
