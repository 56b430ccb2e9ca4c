/* block_sizes.c - keeps the sizes of blocks by address, in a table that is written without a lock.
 *
 * A process may fork at any moment and its child uses the table, so it has no lock. An allocator gives an address out
 * to one thread at a time, and gets it back before it gives it out again. An entry thus has one owner, and threads
 * compete only for free places. A place is taken by its address with a compare-and-swap and freed by a zero; nothing
 * ever moves.
 *
 * An address has two groups of four places, a cache line each. If both are full, a larger level is added, to which
 * all new blocks go; those of smaller levels are found there until they are freed. Levels have 256 KiB to 256 MiB;
 * blocks beyond that are not known. Memory of a level is used only once it is touched.
 */
#include "base/block_sizes.h"

#include <errno.h>
#include <stddef.h>

#include "base/sys.h"
#include "base/tfi.h"

enum { PLACES = 4, FIRST_BITS = 12 };

struct place {
    uint64_t address; /* 0: free */
    uint64_t bytes;   /* written by the owner */
};

struct tfi_block_group {
    struct place place[PLACES];
};

static inline uint64_t mix(uint64_t address)
{
    __uint128_t product = (__uint128_t)address * 0x9e3779b97f4a7c15u;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Returns one of the two groups of a hash in level n. */
static inline struct tfi_block_group *group_of(const struct tfi_blocks *b, uint32_t n, uint64_t hash, uint32_t which)
{
    uint64_t number = (which ? hash >> 32 : hash) & ((1u << (FIRST_BITS + n)) - 1);
    return &__atomic_load_n(&b->level[n], __ATOMIC_RELAXED)[number];
}

static inline struct place *find_in(const struct tfi_blocks *b, uint32_t n, uint64_t hash, uint64_t address)
{
    for (uint32_t which = 0; which < 2; which++) {
        struct tfi_block_group *g = group_of(b, n, hash, which);
        for (uint32_t i = 0; i < PLACES; i++)
            if (__atomic_load_n(&g->place[i].address, __ATOMIC_RELAXED) == address) return &g->place[i];
    }
    return NULL;
}

static inline struct place *find_block(const struct tfi_blocks *b, uint64_t address)
{
    uint64_t hash = mix(address);
    struct place *p = NULL;
    for (uint32_t n = __atomic_load_n(&b->levels, __ATOMIC_ACQUIRE); n-- > 0 && !p;) p = find_in(b, n, hash, address);
    return p;
}

static inline struct place *claim(const struct tfi_blocks *b, uint32_t n, uint64_t hash, uint64_t address)
{
    for (uint32_t which = 0; which < 2; which++) {
        struct tfi_block_group *g = group_of(b, n, hash, which);
        for (uint32_t i = 0; i < PLACES; i++) {
            uint64_t *a = &g->place[i].address, none = 0;
            if (__atomic_load_n(a, __ATOMIC_RELAXED) == 0 &&
                __atomic_compare_exchange_n(a, &none, address, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
                return &g->place[i];
        }
    }
    return NULL;
}

/* Adds level n, unless another thread does. Keeps errno. */
static TFI_COLD bool add_level(struct tfi_blocks *b, uint32_t n)
{
    int error = errno;
    struct tfi_block_group *level = tfi_map_once(&b->level[n], sizeof *level << (FIRST_BITS + n));
    errno = error;
    if (level) __atomic_compare_exchange_n(&b->levels, &n, n + 1, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    return level != NULL;
}

bool tfi_block_put(struct tfi_blocks *b, uint64_t address, uint64_t bytes)
{
    uint64_t hash = mix(address);
    for (;;) {
        uint32_t n = __atomic_load_n(&b->levels, __ATOMIC_ACQUIRE);
        struct place *p = n ? find_in(b, n - 1, hash, address) : NULL;
        if (TFI_LIKELY(!p) && n) p = claim(b, n - 1, hash, address);
        if (TFI_LIKELY(p != NULL)) {
            p->bytes = bytes;
            return true;
        }
        if (n == TFI_BLOCK_LEVELS || !add_level(b, n)) return false;
    }
}

uint64_t tfi_block_take(struct tfi_blocks *b, uint64_t address)
{
    struct place *p = find_block(b, address);
    if (!p) return 0;
    uint64_t bytes = p->bytes;
    __atomic_store_n(&p->address, 0, __ATOMIC_RELEASE);
    return bytes;
}

bool tfi_block_known(const struct tfi_blocks *b, uint64_t address)
{
    return find_block(b, address) != NULL;
}
