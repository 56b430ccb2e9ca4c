/* patches.h - directs the calls of loaded objects to functions of ours. */
#ifndef TFI_HOST_PATCHES_H
#define TFI_HOST_PATCHES_H

#include <stddef.h>
#include <stdint.h>

struct tfi_patch {
    const char *symbol;
    void *from, *to; /* what the objects' references contain once they are bound (NULL: anything), and what they get */
};

/* Patches all loaded objects but this library and the loader. Later calls patch those that were loaded since. Objects that
 * have one of the functions (libc, allocators) get `held`, with the same symbols: they call with their own locks held. */
void tfi_patch_objects(const struct tfi_patch *patches, const struct tfi_patch *held, size_t count);

/* Patches the object that contains the address `inside`, also one that was patched before. */
void tfi_patch_object(uintptr_t inside, const struct tfi_patch *patches, size_t count);

#endif
