/* physical.c - counts the handles and mappings of physical memory. */
#include "ask/memory/physical.h"

#include <stdlib.h>

static struct physical *find_physical(const struct physicals *all, uint64_t handle)
{
    uint32_t at = map_get(&all->of, handle);
    return at == MAP_NONE ? NULL : &all->physical[at];
}

void physical_create(struct physicals *all, uint64_t handle, int64_t device)
{
    all->physical = mem_grow(all->physical, &all->capacity, all->count + 1, sizeof *all->physical);
    all->physical[all->count] = (struct physical){.device = device, .handles = 1};
    map_put(&all->of, handle, (uint32_t)all->count++);
}

void physical_retain(struct physicals *all, uint64_t handle)
{
    struct physical *p = find_physical(all, handle);
    if (p) p->handles++;
}

void physical_map(struct physicals *all, uint64_t handle)
{
    struct physical *p = find_physical(all, handle);
    if (p) p->mappings++;
}

static bool ends(struct physicals *all, uint64_t handle, const struct physical *p)
{
    if (p->handles || p->mappings) return false;
    map_remove(&all->of, handle);
    return true;
}

bool physical_release(struct physicals *all, uint64_t handle)
{
    struct physical *p = find_physical(all, handle);
    if (!p || !p->handles) return false;
    p->handles--;
    return ends(all, handle, p);
}

bool physical_unmap(struct physicals *all, uint64_t handle)
{
    struct physical *p = find_physical(all, handle);
    if (!p || !p->mappings) return false;
    p->mappings--;
    return ends(all, handle, p);
}

int64_t physical_device(const struct physicals *all, uint64_t handle, int64_t unknown)
{
    const struct physical *p = find_physical(all, handle);
    return p ? p->device : unknown;
}

void physicals_free(struct physicals *all)
{
    free(all->physical);
    map_free(&all->of);
    *all = (struct physicals){0};
}
