/* changes.c - sorts the blocks of a process by time, joins each with what frees it, and adds up what has no totals.
 *
 * Addresses of torch's allocators count by device, those of CUDA's calls for the whole process: a call that frees does
 * not tell its device. Physical memory that is mapped outlives its handle. A block at an address in use means that the record of what freed it is missing: it has ended.
 */
#include "ask/memory/changes.h"

#include <stdlib.h>

int64_t memory_device(const struct process *process, const struct blocks *blocks, size_t i)
{
    bool is_only = process->devices == 1 && blocks->device[i] == DEVICE_OTHER && is_cuda_block(blocks, i) &&
                   blocks->kind[i] != BLOCK_RESERVED;
    return is_only ? (int64_t)process->device[0].number : blocks->device[i];
}

static int by_time(const void *a, const void *b, void *context)
{
    const struct blocks *blocks = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int order = by_number(blocks->time[x], blocks->time[y]);
    return order ? order : by_number(x, y);
}

static uint32_t pool_of(struct memory_changes *c, int64_t device, uint32_t allocator, bool is_summed, uint8_t kind)
{
    uint32_t number = map_number(&c->number_of_device, (uint64_t)device << 8 | kind << 1 | is_summed);
    uint64_t key = (uint64_t)allocator << 32 | number;
    uint32_t at = map_get(&c->pool_of, key);
    if (at != MAP_NONE) return at;
    c->pool = mem_grow(c->pool, &c->pool_capacity, c->pools + 1, sizeof *c->pool);
    c->pool[c->pools] =
        (struct memory_pool){.device = device, .allocator = allocator, .is_summed = is_summed, .kind = kind};
    map_put(&c->pool_of, key, (uint32_t)c->pools);
    return (uint32_t)c->pools++;
}

/* Returns the place of the next change, for which it makes room: what one call unmaps may be several blocks. */
static struct memory_change *next_change(struct memory_changes *c)
{
    c->change = mem_grow(c->change, &c->capacity, c->count + 1, sizeof *c->change);
    return &c->change[c->count];
}

/* Takes the block at an address off the list; returns the change that allocated it, or NO_PLACE. */
static uint32_t end_block(struct memory_changes *c, uint32_t space, uint64_t address, uint32_t by)
{
    uint32_t from = map_get(&c->pool[space].live, address);
    if (from == MAP_NONE) return NO_PLACE;
    map_remove(&c->pool[space].live, address);
    struct memory_change *begin = &c->change[from];
    begin->other = by;
    if (c->pool[begin->pool].is_summed) c->pool[begin->pool].in_use -= (uint64_t)begin->bytes;
    return from;
}

static void allocate(struct memory_changes *c, uint32_t space, const struct memory_change *change, uint64_t address)
{
    uint32_t at = (uint32_t)c->count;
    struct memory_pool *pool = &c->pool[change->pool];
    struct memory_change *to = next_change(c);
    *to = *change;
    to->ended = end_block(c, space, address, at);
    map_put(&c->pool[space].live, address, at);
    c->count++;
    if (!pool->is_summed) return;
    if (__builtin_add_overflow(pool->in_use, (uint64_t)change->bytes, &pool->in_use)) pool->in_use = TOTAL_UNKNOWN;
    to->allocated = pool->in_use;
}

/* Returns the change that allocated what is freed, NO_PLACE if it was not recorded. */
static uint32_t release(struct memory_changes *c, uint32_t space, const struct memory_change *change, uint64_t address)
{
    struct memory_change *to = next_change(c);
    uint32_t from = end_block(c, space, address, (uint32_t)c->count);
    bool is_summed = c->pool[space].is_summed;
    *to = *change;
    to->other = from;
    c->count += from != NO_PLACE || !is_summed;
    c->older += from == NO_PLACE && is_summed;
    if (!is_summed || from == NO_PLACE) return from;
    to->pool = c->change[from].pool;
    to->bytes = -c->change[from].bytes;
    to->allocated = c->pool[to->pool].in_use;
    return from;
}

/* Ends physical memory that has neither handles nor mappings any more. */
static void end_physical(struct memory_changes *c, const struct memory_change *change, uint64_t handle)
{
    uint32_t allocator = c->physical_allocator;
    if (allocator != NAME_NONE) release(c, pool_of(c, DEVICE_OTHER, allocator, true, BLOCK_NONE), change, handle);
}

/* A call may unmap several mappings that lie side by side. */
static void unmap(struct memory_changes *c, uint32_t space, const struct memory_change *change, uint32_t block)
{
    const struct blocks *b = &c->process->blocks;
    uint64_t at = b->address[block], left = b->other[block];
    while (left) {
        uint32_t from = release(c, space, change, at);
        if (from == NO_PLACE) return;
        uint64_t bytes = (uint64_t)c->change[from].bytes, handle = b->other[c->change[from].block];
        if (physical_unmap(&c->physicals, handle)) end_physical(c, change, handle);
        at += bytes;
        left -= MIN(left, bytes);
    }
}

/* Takes what a call of CUDA frees. */
static void take_freed(struct memory_changes *c, uint32_t space, const struct memory_change *change, uint32_t block)
{
    const struct blocks *b = &c->process->blocks;
    uint64_t address = b->address[block];
    if (b->kind[block] == BLOCK_RETAINED) physical_retain(&c->physicals, address);
    else if (b->kind[block] == BLOCK_MAPPED) unmap(c, space, change, block);
    else if (b->kind[block] != BLOCK_PHYSICAL) release(c, space, change, address);
    else if (physical_release(&c->physicals, address)) end_physical(c, change, address);
}

static void take(struct memory_changes *c, uint32_t block)
{
    const struct blocks *b = &c->process->blocks;
    bool is_summed = is_cuda_block(b, block), unknown = b->lacks_totals;
    uint8_t kind = b->kind[block];
    int64_t device = memory_device(c->process, b, block);
    if (kind == BLOCK_MAPPED) device = physical_device(&c->physicals, b->other[block], device);
    bool is_apart = c->by_kind || kind == BLOCK_LIBC;
    uint32_t pool = pool_of(c, device, b->allocator[block], is_summed, is_apart ? kind : BLOCK_NONE);
    uint32_t space = is_summed ? pool_of(c, DEVICE_OTHER, b->allocator[block], true, BLOCK_NONE) : pool;
    const struct memory_change change = {.time = b->time[block],
                                         .bytes = b->bytes[block],
                                         .allocated = unknown ? TOTAL_UNKNOWN : b->allocated[block],
                                         .reserved =
                                             unknown || device == DEVICE_HOST ? TOTAL_UNKNOWN : b->reserved[block],
                                         .block = block,
                                         .pool = pool,
                                         .other = NO_PLACE,
                                         .ended = NO_PLACE};
    if (change.bytes > 0) {
        if (kind == BLOCK_PHYSICAL) physical_create(&c->physicals, b->address[block], device);
        if (kind == BLOCK_PHYSICAL) c->physical_allocator = b->allocator[block];
        if (kind == BLOCK_MAPPED) physical_map(&c->physicals, b->other[block]);
        allocate(c, space, &change, b->address[block]);
    } else if (is_summed) {
        take_freed(c, space, &change, block);
    } else if (change.bytes < 0) {
        release(c, space, &change, b->address[block]);
    }
}

void memory_changes_init(struct memory_changes *changes, const struct process *process, bool by_kind)
{
    const struct blocks *b = &process->blocks;
    size_t count = b->table.count;
    uint32_t *order = mem_zero(count, sizeof *order);
    for (size_t i = 0; i < count; i++) order[i] = (uint32_t)i;
    if (count) qsort_r(order, count, sizeof *order, by_time, (void *)b);
    *changes = (struct memory_changes){.process = process, .by_kind = by_kind, .physical_allocator = NAME_NONE};
    changes->change = mem_grow(NULL, &changes->capacity, count, sizeof *changes->change);
    for (size_t i = 0; i < count; i++) take(changes, order[i]);
    for (size_t i = 0; i < changes->pools; i++) map_free(&changes->pool[i].live);
    physicals_free(&changes->physicals);
    free(order);
}

uint32_t memory_block(const struct memory_changes *changes, const struct memory_change *change)
{
    bool frees = change->bytes < 0 && change->other != NO_PLACE;
    return frees ? changes->change[change->other].block : change->block;
}

void memory_changes_free(struct memory_changes *changes)
{
    free(changes->change);
    free(changes->pool);
    map_free(&changes->number_of_device);
    map_free(&changes->pool_of);
    *changes = (struct memory_changes){0};
}
