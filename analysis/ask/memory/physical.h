/* physical.h - how long physical memory of cuMemCreate lives: until its last handle and its last mapping are gone. */
#ifndef TFA_MEMORY_PHYSICAL_H
#define TFA_MEMORY_PHYSICAL_H

#include "base/util.h"

struct physical {
    int64_t device;
    uint32_t handles, mappings;
};

struct physicals {
    struct physical *physical;
    size_t count, capacity;
    struct map of; /* index by handle */
};

void physical_create(struct physicals *all, uint64_t handle, int64_t device);
void physical_retain(struct physicals *all, uint64_t handle);
void physical_map(struct physicals *all, uint64_t handle);
/* They return true if the memory ends with this. */
bool physical_release(struct physicals *all, uint64_t handle);
bool physical_unmap(struct physicals *all, uint64_t handle);
/* Returns `unknown` if the handle is unknown: the memory is older than the recording, or another process's. */
int64_t physical_device(const struct physicals *all, uint64_t handle, int64_t unknown);
void physicals_free(struct physicals *all);

#endif
