/* communicators.c - keeps the communicators of this process in a table that is read without a lock.
 *
 * A handle has two groups of eight places. A place is taken with a compare-and-swap, filled, and then gets its handle.
 * Nothing moves and there is no lock, because a process may fork at any moment. NCCL lets only one thread at a time use
 * a communicator, except to abort it; the counters are atomic all the same.
 *
 * A split that is part of a group, or of a communicator that does not block, stores its new handle later. Until then
 * the address where NCCL will store it is kept. It is read only when NCCL itself has just reported that it was stored,
 * because the program may use its memory for something else afterwards.
 */
#include "nccl/communicators.h"

#include <string.h>

#include "base/process.h"
#include "base/sys.h"
#include "record/thread.h"

enum { PLACES = 8, GROUPS = 512, AWAITED = 64, FEWEST_COUNTS = 64 };
enum { TAKEN = 1 }; /* a handle that no library gives out */

typedef struct tfi_communicator group[PLACES];
static group *groups; /* GROUPS of them; NULL until the first communicator */

static struct {
    void *const *where; /* NULL: free */
    uint64_t hash, parent;
    const void *thread; /* the thread that asked for it */
} awaited[AWAITED];

uint64_t tfi_communicator_hash(uint64_t hash, const void *bytes, size_t count)
{
    const uint8_t *byte = bytes;
    for (size_t i = 0; i < count; i++) hash = (hash ^ byte[i]) * 0x100000001b3u;
    return hash ? hash : 1;
}

static inline struct tfi_communicator *group_of(group *table, uint64_t handle, uint32_t which)
{
    uint64_t hash = handle * 0x9e3779b97f4a7c15u;
    return table[(which ? hash >> 40 : hash >> 52) % GROUPS];
}

struct tfi_communicator *tfi_communicator_find(uint64_t handle)
{
    group *table = __atomic_load_n(&groups, __ATOMIC_ACQUIRE);
    if (handle <= TAKEN || !table) return NULL;
    for (uint32_t which = 0; which < 2; which++) {
        struct tfi_communicator *c = group_of(table, handle, which);
        for (uint32_t i = 0; i < PLACES; i++)
            if (__atomic_load_n(&c[i].handle, __ATOMIC_ACQUIRE) == handle) return &c[i];
    }
    return NULL;
}

static struct tfi_communicator *take_place(uint64_t handle)
{
    struct tfi_communicator *known = tfi_communicator_find(handle);
    if (known) return known;
    group *table = tfi_map_once(&groups, GROUPS * sizeof *table);
    for (uint32_t which = 0; table && which < 2; which++) {
        struct tfi_communicator *c = group_of(table, handle, which);
        for (uint32_t i = 0; i < PLACES; i++) {
            uint64_t none = 0;
            if (__atomic_compare_exchange_n(&c[i].handle, &none, TAKEN, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
                return &c[i];
        }
    }
    return NULL;
}

/* Begins the counts of a place again. A mapping that is too small is left to whoever may still count in it: another
 * thread may be in a call of a communicator that was aborted. The room doubles, so a place leaves few behind. */
static void reset_counts(struct tfi_communicator *c, uint32_t ranks)
{
    struct tfi_peer_counts *peer = __atomic_load_n(&c->peer, __ATOMIC_ACQUIRE);
    if (!peer) return;
    if (peer->room < ranks) {
        __atomic_store_n(&c->peer, NULL, __ATOMIC_RELEASE);
        return;
    }
    memset(peer->count, 0, (size_t)peer->room * TFI_DIRECTIONS * sizeof peer->count[0]);
    __atomic_store_n(&peer->ranks, ranks, __ATOMIC_RELAXED);
}

struct tfi_communicator *tfi_communicator_add(uint64_t handle, uint64_t hash, int32_t rank, uint32_t ranks)
{
    struct tfi_communicator *c = handle > TAKEN ? take_place(handle) : NULL;
    if (!c) {
        if (handle > TAKEN) tfi_count_drop(TFI_DROP_COMMUNICATORS, 1);
        return NULL;
    }
    reset_counts(c, ranks);
    c->hash = hash;
    c->sequence = 0;
    c->rank = rank;
    c->ranks = ranks;
    c->splits = c->shrinks = 0;
    __atomic_store_n(&c->handle, handle, __ATOMIC_RELEASE);
    return c;
}

void tfi_communicator_remove(uint64_t handle)
{
    struct tfi_communicator *c = tfi_communicator_find(handle);
    if (c) __atomic_store_n(&c->handle, 0, __ATOMIC_RELEASE);
}

static TFI_COLD struct tfi_peer_counts *make_counts(struct tfi_communicator *c)
{
    struct tfi_peer_counts *none = NULL, *peer;
    uint32_t ranks = c->ranks;
    uint64_t room = FEWEST_COUNTS;
    while (room < ranks) room *= 2;
    size_t bytes = sizeof *peer + room * TFI_DIRECTIONS * sizeof peer->count[0];
    if (room > UINT32_MAX || !(peer = tfi_map(bytes))) return NULL;
    peer->room = (uint32_t)room;
    peer->ranks = ranks;
    if (__atomic_compare_exchange_n(&c->peer, &none, peer, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return peer;
    tfi_unmap(peer, bytes);
    return none;
}

uint64_t tfi_communicator_next(struct tfi_communicator *c, enum tfi_direction direction, uint32_t peer)
{
    struct tfi_peer_counts *counts = __atomic_load_n(&c->peer, __ATOMIC_ACQUIRE);
    if (TFI_UNLIKELY(!counts)) counts = make_counts(c);
    if (!counts || peer >= __atomic_load_n(&counts->ranks, __ATOMIC_RELAXED)) return 0;
    return __atomic_fetch_add(&counts->count[peer * TFI_DIRECTIONS + direction], 1, __ATOMIC_RELAXED);
}

/* ---- handles that are stored later ---- */

void tfi_communicator_await(void *const *where, uint64_t hash, uint64_t parent)
{
    for (uint32_t i = 0; i < AWAITED; i++) {
        void *const *none = NULL;
        if (!__atomic_compare_exchange_n(&awaited[i].where, &none, where, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            continue;
        awaited[i].hash = hash;
        awaited[i].parent = parent;
        __atomic_store_n(&awaited[i].thread, &tfi_self, __ATOMIC_RELEASE);
        return;
    }
    tfi_count_drop(TFI_DROP_COMMUNICATORS, 1);
}

void tfi_communicator_arrived(uint64_t parent, bool stored)
{
    for (uint32_t i = 0; i < AWAITED; i++) {
        void *const *where = __atomic_load_n(&awaited[i].where, __ATOMIC_ACQUIRE);
        const void *thread = __atomic_load_n(&awaited[i].thread, __ATOMIC_ACQUIRE);
        if (!where || !thread || (parent ? awaited[i].parent != parent : thread != (const void *)&tfi_self)) continue;
        uint64_t handle = stored ? (uint64_t)__atomic_load_n(where, __ATOMIC_ACQUIRE) : 0;
        if (stored && !handle) continue; /* only an inner group has ended */
        if (handle) tfi_communicator_add(handle, awaited[i].hash, -1, 0);
        __atomic_store_n(&awaited[i].thread, NULL, __ATOMIC_RELAXED);
        __atomic_store_n(&awaited[i].where, NULL, __ATOMIC_RELEASE);
    }
}
