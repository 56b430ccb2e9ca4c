/* native_names.h - finds functions by address, from the dynamic symbols of mapped objects. One caller at a time. */
#ifndef TFI_NATIVE_NAMES_H
#define TFI_NATIVE_NAMES_H

#include <stdbool.h>
#include <stdint.h>

struct tfi_native_object {
    uintptr_t start, end; /* of its mapping */
    const char *path;
};

struct tfi_native_name {
    const struct tfi_native_object *object;
    const char *function; /* NULL if it has no exported name */
    uintptr_t start, end; /* of the function; 0 without one */
};

/* Looks up the function at an address, which must be on the running stack, so that its object stays mapped. False
 * if it lies in no object. The result is valid until the next call. */
bool tfi_native_find(uintptr_t address, struct tfi_native_name *name);

/* Called at wake: forgets what a parent process has found. */
void tfi_native_restart(void);

#endif
