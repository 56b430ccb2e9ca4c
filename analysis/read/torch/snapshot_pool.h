/* snapshot_pool.h - keeps sequences of bytes, each different one once: texts, frames and stacks of a snapshot. */
#ifndef TFA_SNAPSHOT_POOL_H
#define TFA_SNAPSHOT_POOL_H

#include "base/util.h"

struct snapshot_pool {
    char *bytes;
    size_t length, byte_capacity;
    size_t *end; /* of each, in `bytes` */
    size_t count, capacity;
    struct map of; /* number by a hash */
};

/* Returns the number of a sequence, counted from 0 in the order of their first appearance. */
uint32_t snapshot_pool_add(struct snapshot_pool *pool, const void *bytes, size_t length);
const char *snapshot_pool_get(const struct snapshot_pool *pool, uint32_t number, size_t *length);
void snapshot_pool_free(struct snapshot_pool *pool);

#endif
