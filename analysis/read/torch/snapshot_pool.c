/* snapshot_pool.c - finds sequences of bytes by their hash. */
#include "read/torch/snapshot_pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

const char *snapshot_pool_get(const struct snapshot_pool *pool, uint32_t number, size_t *length)
{
    size_t from = number ? pool->end[number - 1] : 0;
    *length = pool->end[number] - from;
    return pool->bytes + from;
}

uint32_t snapshot_pool_add(struct snapshot_pool *pool, const void *bytes, size_t length)
{
    uint64_t key = hash_text(bytes, length);
    uint32_t at;
    for (; (at = map_get(&pool->of, key)) != MAP_NONE; key += 0x9e3779b97f4a7c15u) {
        size_t known_length;
        const char *known = snapshot_pool_get(pool, at, &known_length);
        if (known_length == length && (!length || memcmp(known, bytes, length) == 0)) return at;
    }
    pool->bytes = mem_grow(pool->bytes, &pool->byte_capacity, pool->length + length + 1, 1);
    pool->end = mem_grow(pool->end, &pool->capacity, pool->count + 1, sizeof *pool->end);
    if (length) memcpy(pool->bytes + pool->length, bytes, length);
    pool->length += length;
    pool->end[pool->count] = pool->length;
    map_put(&pool->of, key, (uint32_t)pool->count);
    return (uint32_t)pool->count++;
}

void snapshot_pool_free(struct snapshot_pool *pool)
{
    free(pool->bytes);
    free(pool->end);
    map_free(&pool->of);
    *pool = (struct snapshot_pool){0};
}
