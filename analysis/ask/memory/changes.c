/* changes.c - takes the blocks of a process by time, joins each with what frees it, and adds up what has no totals.
 *
 * Addresses of torch's allocators count by device, those of CUDA's calls for the whole process: a call that frees does
 * not tell its device. Physical memory that is mapped outlives its handle. A block at an address in use means that the
 * record of what freed it is missing: it has ended.
 */
#include "ask/memory/changes.h"

#include <stdlib.h>

/* ---- devices and pools ---- */

static int64_t device_of(const struct process *process, int64_t device, bool is_cuda, uint8_t kind)
{
    bool is_only = process->devices == 1 && device == DEVICE_OTHER && is_cuda && kind != BLOCK_RESERVED;
    return is_only ? (int64_t)process->device[0].number : device;
}

int64_t memory_request_device(const struct process *process, size_t request)
{
    const struct blocks *b = &process->ooms;
    bool is_cuda = is_cuda_block(b->allocator[request], b->allocated[request]);
    return device_of(process, b->device[request], is_cuda, b->kind[request]);
}

static uint32_t find_pool(struct memory_walk *w, int64_t device, uint32_t allocator, bool is_summed, uint8_t kind)
{
    uint32_t number = map_number(&w->number_of_device, (uint64_t)device << 8 | kind << 1 | is_summed);
    uint64_t key = (uint64_t)allocator << 32 | number;
    uint32_t at = map_get(&w->pool_of, key);
    if (at != MAP_NONE) return at;
    w->pool = mem_grow(w->pool, &w->pool_capacity, w->pools + 1, sizeof *w->pool);
    w->pool[w->pools] =
        (struct memory_pool){.device = device, .allocator = allocator, .is_summed = is_summed, .kind = kind};
    map_put(&w->pool_of, key, (uint32_t)w->pools);
    return (uint32_t)w->pools++;
}

static uint32_t pool_of(struct memory_walk *w, int64_t device, uint32_t allocator, bool is_summed, uint8_t kind)
{
    struct memory_pool *latest = &w->latest;
    if (w->latest_number != NO_PLACE && latest->device == device && latest->allocator == allocator &&
        latest->is_summed == is_summed && latest->kind == kind)
        return w->latest_number;
    *latest = (struct memory_pool){.device = device, .allocator = allocator, .is_summed = is_summed, .kind = kind};
    return w->latest_number = find_pool(w, device, allocator, is_summed, kind);
}

/* ---- blocks in use ---- */

/* Returns the place of the next change, for which it makes room. */
static struct memory_change *next_change(struct memory_walk *w)
{
    w->change = mem_grow(w->change, &w->capacity, w->changes + 1, sizeof *w->change);
    return &w->change[w->changes];
}

static uint32_t new_live(struct memory_walk *w)
{
    uint32_t at = w->free;
    if (at == NO_PLACE) {
        w->live = mem_grow(w->live, &w->live_capacity, w->lives + 1, sizeof *w->live);
        return (uint32_t)w->lives++;
    }
    w->free = w->live[at].next_free;
    return at;
}

/* Takes the block at an address off the list, and copies it. Returns false if there is none. */
static bool end_block(struct memory_walk *w, uint32_t space, uint64_t address, struct memory_live *gone)
{
    uint32_t at = map_take(&w->pool[space].live, address);
    if (at == MAP_NONE) return false;
    struct memory_live *live = &w->live[at];
    *gone = *live;
    live->is_free = true;
    live->next_free = w->free;
    w->free = at;
    if (w->pool[gone->pool].is_summed) w->pool[gone->pool].in_use -= (uint64_t)gone->bytes;
    return true;
}

/* The change has its place already. */
static void allocate(struct memory_walk *w, uint32_t space, struct memory_change *to, uint64_t other)
{
    struct memory_pool *pool = &w->pool[to->pool];
    to->has_gone = end_block(w, space, to->address, &to->gone);
    to->live = new_live(w);
    w->live[to->live] = (struct memory_live){.bytes = to->bytes,
                                             .address = to->address,
                                             .other = other,
                                             .block = to->block,
                                             .pool = to->pool,
                                             .holder = NO_PLACE,
                                             .kind = to->kind};
    map_put(&w->pool[space].live, to->address, to->live);
    w->changes++;
    if (!pool->is_summed) return;
    if (__builtin_add_overflow(pool->in_use, (uint64_t)to->bytes, &pool->in_use)) pool->in_use = TOTAL_UNKNOWN;
    to->allocated = pool->in_use;
}

/* Returns what the change frees, NULL if its allocation was not recorded. */
static const struct memory_live *release(struct memory_walk *w, uint32_t space, const struct memory_change *change,
                                         uint64_t address)
{
    struct memory_change *to = next_change(w);
    bool is_summed = w->pool[space].is_summed;
    if (to != change) *to = *change;
    to->has_gone = end_block(w, space, address, &to->gone);
    w->changes += to->has_gone || !is_summed;
    if (!to->has_gone) return NULL;
    to->address = to->gone.address;
    to->kind = to->gone.kind;
    if (!is_summed) return &to->gone;
    to->pool = to->gone.pool;
    to->bytes = -to->gone.bytes;
    to->allocated = w->pool[to->pool].in_use;
    return &to->gone;
}

/* ---- what calls of CUDA free ---- */

/* Ends physical memory that has neither handles nor mappings any more. */
static void end_physical(struct memory_walk *w, const struct memory_change *change, uint64_t handle)
{
    uint32_t allocator = w->physical_allocator;
    if (allocator != NAME_NONE) release(w, pool_of(w, DEVICE_OTHER, allocator, true, BLOCK_NONE), change, handle);
}

/* A call may unmap several mappings that lie side by side: `left` bytes. */
static void unmap(struct memory_walk *w, uint32_t space, const struct memory_change *change, uint64_t left)
{
    uint64_t at = change->address;
    while (left) {
        const struct memory_live *gone = release(w, space, change, at);
        if (!gone) return;
        uint64_t bytes = (uint64_t)gone->bytes, handle = gone->other;
        if (physical_unmap(&w->physicals, handle)) end_physical(w, change, handle);
        at += bytes;
        left -= MIN(left, bytes);
    }
}

static void take_freed(struct memory_walk *w, uint32_t space, const struct memory_change *change, uint64_t other)
{
    uint64_t address = change->address;
    if (change->kind == BLOCK_RETAINED) physical_retain(&w->physicals, address);
    else if (change->kind == BLOCK_MAPPED) unmap(w, space, change, other);
    else if (change->kind != BLOCK_PHYSICAL) release(w, space, change, address);
    else if (physical_release(&w->physicals, address)) end_physical(w, change, address);
}

/* ---- the blocks ---- */

static void take_block(struct memory_walk *w, const struct swept_block *b)
{
    bool is_summed = is_cuda_block(b->allocator, b->allocated);
    bool unknown = map_get(&w->process->blocks.untold, b->order) != MAP_NONE;
    int64_t device = device_of(w->process, b->device, is_summed, b->kind);
    if (b->kind == BLOCK_MAPPED) device = physical_device(&w->physicals, b->other, device);
    bool is_apart = (w->reading->by_kind && b->kind != BLOCK_SEGMENT) || b->kind == BLOCK_LIBC;
    uint32_t pool = pool_of(w, device, b->allocator, is_summed, is_apart ? b->kind : BLOCK_NONE);
    uint32_t space = is_summed ? pool_of(w, DEVICE_OTHER, b->allocator, true, BLOCK_NONE) : pool;
    struct memory_change *change = next_change(w); /* field by field, without `gone`: most of it */
    change->time = b->time;
    change->bytes = b->bytes;
    change->allocated = unknown ? TOTAL_UNKNOWN : b->allocated;
    change->reserved = unknown || device == DEVICE_HOST ? TOTAL_UNKNOWN : b->reserved;
    change->address = b->address;
    change->block = b->order;
    change->pool = pool;
    change->thread = b->thread;
    change->stack = b->stack;
    change->live = 0;
    change->kind = b->kind;
    change->has_gone = false;
    change->is_older = b->order < w->process->blocks.earlier;
    if (b->bytes > 0) {
        if (b->kind == BLOCK_PHYSICAL) physical_create(&w->physicals, b->address, device);
        if (b->kind == BLOCK_PHYSICAL) w->physical_allocator = b->allocator;
        if (b->kind == BLOCK_MAPPED) physical_map(&w->physicals, b->other);
        allocate(w, space, change, b->other);
    } else if (is_summed) {
        const struct memory_change freed = *change; /* what it frees may be several changes, from its place on */
        take_freed(w, space, &freed, b->other);
    } else if (b->bytes < 0) {
        release(w, space, change, b->address);
    } else if (b->kind == BLOCK_SEGMENT) {
        w->changes++;
    }
}

static int changes_by_time(const void *a, const void *b, void *context)
{
    const struct blocks *blocks = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int order = by_number(blocks->time[x], blocks->time[y]);
    return order ? order : by_number(x, y);
}

void memory_walk_init(struct memory_walk *walk, struct memory_reading *reading)
{
    const struct process *process = reading->process;
    const struct blocks *b = &process->blocks;
    *walk = (struct memory_walk){.reading = reading,
                                 .process = process,
                                 .free = NO_PLACE,
                                 .latest_number = NO_PLACE,
                                 .physical_allocator = NAME_NONE};
    if (process->in_file.trace) {
        const struct sweep_wants wants = {.blocks = true, .block_places = true, .block_stacks = reading->stacks};
        walk->sweep = sweep_open(process, reading->names, wants, reading->ahead);
        return;
    }
    walk->order = mem_zero(b->table.count, sizeof *walk->order);
    for (size_t i = 0; i < b->table.count; i++) walk->order[i] = (uint32_t)i;
    if (b->table.count) qsort_r(walk->order, b->table.count, sizeof *walk->order, changes_by_time, (void *)b);
}

static bool take_held(struct memory_walk *walk)
{
    const struct blocks *b = &walk->process->blocks;
    if (walk->next_block == b->table.count) return false;
    uint32_t i = walk->order[walk->next_block++];
    const struct swept_block block = {.time = b->time[i],
                                      .bytes = b->bytes[i],
                                      .device = b->device[i],
                                      .address = b->address[i],
                                      .allocated = b->allocated[i],
                                      .reserved = b->reserved[i],
                                      .other = b->other[i],
                                      .order = i,
                                      .thread = b->thread[i],
                                      .allocator = b->allocator[i],
                                      .stack = b->stack[i],
                                      .kind = b->kind[i]};
    take_block(walk, &block);
    return true;
}

static bool take_swept(struct memory_walk *walk)
{
    struct swept swept;
    if (!sweep_next(walk->sweep, &swept)) return false;
    take_block(walk, swept.block);
    return true;
}

const struct memory_change *memory_walk_next(struct memory_walk *walk)
{
    while (walk->next == walk->changes) {
        walk->next = walk->changes = 0;
        if (!(walk->sweep ? take_swept(walk) : take_held(walk))) return NULL;
    }
    return &walk->change[walk->next++];
}

void memory_walk_free(struct memory_walk *walk)
{
    for (size_t i = 0; i < walk->pools; i++) map_free(&walk->pool[i].live);
    if (walk->sweep) sweep_close(walk->sweep);
    physicals_free(&walk->physicals);
    free(walk->order);
    free(walk->change);
    free(walk->live);
    free(walk->pool);
    map_free(&walk->number_of_device);
    map_free(&walk->pool_of);
    *walk = (struct memory_walk){0};
}

/* ---- stages ---- */

struct belonging memory_change_at(const struct memory_reading *reading, const struct choice *choice,
                                  const struct memory_change *change)
{
    if (change->is_older) return (struct belonging){change->time, NO_PLACE, VIA_NONE};
    if (reading->finder)
        return (struct belonging){change->time, stage_at(reading->finder, change->thread, change->time), VIA_NONE};
    if (choice->attribution) return choice->attribution->block[change->block];
    return (struct belonging){change->time, NO_PLACE, VIA_NONE};
}

bool memory_change_chosen(const struct memory_walk *walk, const struct choice *choice,
                          const struct memory_change *change)
{
    struct belonging at = memory_change_at(walk->reading, choice, change);
    return list_has(&choice->options->device, walk->pool[change->pool].device) &&
           choice_moment(choice, change->time, at.time) && choice_in_stage(choice, &at);
}
