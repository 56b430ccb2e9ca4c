/* stage_sums.c - sums device time by stage (`device_sum_ms` of rank*.timing.json) while device records come in.
 *
 * Rule. Work belongs to the stages that were open where it was launched: those of the launching thread or, if that
 * thread has none, those of the only thread that has some. The stages are determined when the launch is intercepted,
 * because CUPTI's times are too coarse to tell on which side of another thread's edge it lay. A call that is not
 * intercepted counts as made where its thread's last one was.
 *
 * Nodes. A node stands for a set of open stages: the stage opened last and the node of those before it, each name
 * once. Each thread has a ring of the nodes it launched in, with the time of the first launch in each and the innermost
 * stage's id, by which left_out.c sums. CUPTI's record of a call gives thread and time; they select the ring's entry,
 * which holds until the next entry.
 *
 * Threads. Only a thread itself changes its own ring. Threads without stages read the ring's `node`, and the thread
 * that converts records reads the entries. If another thread ends a stage, it removes it from the ring by a
 * compare-and-swap if it is the innermost one; otherwise the owner finds out at its next launch. Nodes are found
 * without a lock and made with it. Sums, calls and waiting records belong to the converter, who holds the token.
 *
 * Bounds. Nodes, nested names, threads, entries of a ring, calls and waiting records are limited. Records that find
 * no room are counted (`left_out`), and timing.json says so.
 *
 * A backward operator on a thread without stages belongs to the stages of its forward operator, which is known for
 * the last FORWARDS operators with a sequence number. Otherwise it is treated like any other launch there.
 */
#include "base/process.h"
#include "base/sys.h"
#include "control/config.h"
#include "control/schedule.h"
#include "cupti/client.h"
#include "record/clock.h"
#include "record/thread.h"
#include "stage/stage.h"
#include "stage/timing.h"
#include "stage/watch.h"

#define NODES (1u << 16)
#define SLOTS (4u * NODES) /* several names may lead to one node */
#define DEEPEST 256u       /* nested names */
#define FEW_OPEN 64u
#define RINGS 1024u
#define ENTRIES 16384u
#define CALLS (1u << 20)
#define WAITING 4096u
#define FORWARDS (1u << 16)
#define UNKNOWN UINT64_MAX    /* the id of a stage that is not known */
#define NO_NODE 0u            /* no stage is open */
#define LOST_NODE (NODES - 1) /* stages are open, but no node could be made for them */
#define IDLE_NODE NODES       /* the call was made in a warm-up step, which is left out of all answers */

struct node {
    uint32_t parent, name;
    uint32_t depth, reserved;
    uint64_t ns; /* of work whose innermost stage this is */
};

/* Maps a node and a name to a node; `key` is stored last. */
struct slot {
    uint64_t key; /* node << 32 | name, 0: empty */
    uint32_t to;
    uint32_t reserved;
};

struct forward {
    uint64_t key; /* stored last */
    uint64_t node, range;
};

struct tfi_sums_ring {
    uint32_t thread;  /* low half of pthread_self() */
    uint32_t tid;     /* the kernel's number of that thread */
    uint32_t node;    /* of the stages open in the thread */
    uint32_t noted;   /* the node of the newest entry */
    uint32_t place;   /* index among the rings */
    uint32_t counted; /* it is counted among the threads with stages */
    uint32_t own;     /* set by the thread itself, not by adopt() */
    uint32_t stale;   /* `node` has stages that are no longer open */
    uint32_t forward; /* node of the forward operator of the running backward one, NO_NODE if none runs */
    uint32_t framed;  /* autograd's frame round a backward operator is open */
    uint64_t range;   /* id of the innermost stage open in the thread, 0: none, or UNKNOWN */
    uint64_t noted_range, forward_range; /* as `noted` and `forward` */
    uint64_t count;                      /* entries so far */
    struct {
        uint64_t ticks;
        uint64_t node;
        uint64_t range;
    } entry[ENTRIES];
};

static struct {
    struct tfi_lock lock; /* for making nodes and rings, and for `counted` */
    uint32_t nr_nodes;
    struct node *node;
    struct slot *slot;
    struct tfi_sums_ring *ring[RINGS]; /* by hash of the thread */
    uint64_t with_stages;              /* threads with stages: number << 32 | sum of their places + 1 */
    uint32_t *calls;                   /* by the low part of the id: high part << 20 | node + 1 */
    uint64_t *ranges;                  /* likewise: id of the innermost stage */
    struct {
        uint32_t id, records;
        uint64_t ns;
    } waiting[WAITING];       /* records whose call has not come yet */
    struct forward *forwards; /* by hash of thread and sequence number */
    uint64_t left_out;
} sums;
uint32_t tfi_sums_on;

/* ---- nodes ---- */

static uint32_t slot_of(uint64_t key)
{
    return (uint32_t)(key * 0x9e3779b97f4a7c15u >> 40) & (SLOTS - 1);
}

static bool has_name(uint32_t node, uint32_t name)
{
    while (node && sums.node[node].name != name) node = sums.node[node].parent;
    return node != NO_NODE;
}

/* With the lock held. */
static uint32_t make_node(uint64_t key)
{
    uint32_t parent = (uint32_t)(key >> 32), name = (uint32_t)key, node = parent, i = slot_of(key);
    for (; sums.slot[i].key; i = (i + 1) & (SLOTS - 1))
        if (sums.slot[i].key == key) return sums.slot[i].to;
    bool new = !has_name(parent, name);
    if (sums.nr_nodes >= LOST_NODE || sums.node[parent].depth >= DEEPEST) return LOST_NODE;
    if (new) {
        node = sums.nr_nodes;
        sums.node[node] = (struct node){.parent = parent, .name = name, .depth = sums.node[parent].depth + 1};
    }
    sums.nr_nodes++; /* an alias counts too: slots stay half empty */
    sums.slot[i].to = node;
    __atomic_store_n(&sums.slot[i].key, key, __ATOMIC_RELEASE);
    return node;
}

/* Node of a stage that is opened in `node`. */
static uint32_t node_in(uint32_t node, uint32_t name)
{
    uint64_t key = (uint64_t)node << 32 | name, found;
    if (!name || node == LOST_NODE) return node;
    for (uint32_t i = slot_of(key); (found = __atomic_load_n(&sums.slot[i].key, __ATOMIC_ACQUIRE));
         i = (i + 1) & (SLOTS - 1))
        if (found == key) return sums.slot[i].to;
    if (!tfi_lock_quick(&sums.lock)) return LOST_NODE;
    uint32_t made = make_node(key);
    tfi_unlock_quick(&sums.lock);
    return made;
}

/* ---- rings ---- */

static struct tfi_sums_ring *find_ring(uint32_t thread, uint32_t *place)
{
    uint32_t first = (thread >> 8) * 2654435761u >> 16;
    for (uint32_t i = 0; i < RINGS; i++) {
        *place = (first + i) % RINGS;
        struct tfi_sums_ring *ring = __atomic_load_n(&sums.ring[*place], __ATOMIC_ACQUIRE);
        if (!ring || ring->thread == thread) return ring;
    }
    *place = RINGS;
    return NULL;
}

/* With the lock held. A new thread may have the number of one that has ended. */
static struct tfi_sums_ring *make_ring(uint32_t thread)
{
    uint32_t place;
    struct tfi_sums_ring *ring = find_ring(thread, &place);
    if (ring || place == RINGS || !(ring = tfi_map(sizeof *ring))) return ring;
    ring->thread = thread;
    ring->place = place;
    ring->noted = UINT32_MAX;
    __atomic_store_n(&sums.ring[place], ring, __ATOMIC_RELEASE);
    return ring;
}

/* With the lock held: updates the count of threads that have stages. */
static void count_thread(struct tfi_thread *t)
{
    struct tfi_sums_ring *ring = t->ring;
    uint32_t has = __atomic_load_n(&t->stages, __ATOMIC_RELAXED) != 0;
    if (!ring || ring->counted == has) return;
    uint64_t one = (uint64_t)1 << 32 | (ring->place + 1);
    ring->counted = has;
    __atomic_add_fetch(&sums.with_stages, has ? one : -one, __ATOMIC_RELEASE);
}

static void recount(struct tfi_thread *t)
{
    if (!tfi_lock_quick(&sums.lock)) return;
    count_thread(t);
    tfi_unlock_quick(&sums.lock);
}

static TFI_COLD struct tfi_sums_ring *attach_as(struct tfi_thread *t, uint32_t thread)
{
    if (!tfi_lock_quick(&sums.lock)) return NULL;
    struct tfi_sums_ring *ring = t->ring;
    if (!ring) {
        ring = make_ring(thread);
        if (ring) ring->tid = t->tid;
        if (ring) {
            ring->node = ring->own = ring->counted = ring->stale = ring->forward = ring->framed = 0;
            ring->range = 0;
        }
        __atomic_store_n(&t->ring, ring, __ATOMIC_RELEASE);
    }
    tfi_unlock_quick(&sums.lock);
    return ring;
}

static bool attach(struct tfi_thread *t)
{
    return attach_as(t, (uint32_t)t->slot->pthread) != NULL;
}

/* Takes the open stages of a thread that has no ring yet from its slot, which is visible to all threads. A thread that
 * is beginning has no slot yet. */
static void adopt(struct tfi_thread *t)
{
    const struct tfi_slot *slot = __atomic_load_n(&t->slot, __ATOMIC_ACQUIRE);
    if (!slot || !__atomic_load_n(&t->gen, __ATOMIC_ACQUIRE) || __atomic_load_n(&t->ring, __ATOMIC_ACQUIRE)) return;
    uint32_t stages = __atomic_load_n(&slot->stages, __ATOMIC_ACQUIRE), node = NO_NODE;
    struct tfi_sums_ring *ring = stages ? attach_as(t, (uint32_t)slot->pthread) : NULL;
    if (!ring) return;
    for (uint32_t i = 0; i < stages && i < TFI_SLOT_STAGES; i++) node = node_in(node, slot->stage[i].name);
    if (!ring->own) {
        __atomic_store_n(&ring->range, node == NO_NODE ? 0 : UNKNOWN, __ATOMIC_RELAXED);
        __atomic_store_n(&ring->node, node, __ATOMIC_RELEASE);
    }
    recount(t);
}

static void note(struct tfi_sums_ring *ring, uint32_t node, uint64_t range)
{
    ring->noted = node;
    ring->noted_range = range;
    ring->entry[ring->count % ENTRIES].ticks = tfi_ticks();
    ring->entry[ring->count % ENTRIES].node = node;
    ring->entry[ring->count % ENTRIES].range = range;
    __atomic_store_n(&ring->count, ring->count + 1, __ATOMIC_RELEASE);
}

/* ---- actions of the program ---- */

/* Stores the innermost stage that the calling thread has open. */
static void find_range(struct tfi_thread *t)
{
    uint32_t i = t->nr_open;
    while (i > 0 && !(t->open[i - 1].flags & TFI_RANGE_STAGE)) i--;
    __atomic_store_n(&t->ring->range, i ? t->open[i - 1].id : 0, __ATOMIC_RELAXED);
}

/* Determines the calling thread's node anew, from all its open stages. */
static void find_node(struct tfi_thread *t)
{
    uint32_t node = NO_NODE;
    for (uint32_t i = 0; i < t->nr_open; i++) {
        if (!(t->open[i].flags & TFI_RANGE_STAGE)) continue;
        t->open[i].node = node;
        node = node_in(node, t->open[i].name);
    }
    t->ring->stale = 0;
    find_range(t);
    __atomic_store_n(&t->ring->node, node, __ATOMIC_RELEASE);
    if (TFI_LIKELY(t->ring->own)) return;
    t->ring->own = 1;
    recount(t);
}

static void put(struct tfi_thread *t)
{
    if (!tfi_sums_on) return;
    if (TFI_UNLIKELY(!t->ring) && !attach(t)) return;
    struct tfi_open *open = &t->open[t->nr_open - 1];
    if (TFI_UNLIKELY(!t->ring->own)) {
        find_node(t);
        return;
    }
    open->node = t->ring->node;
    __atomic_store_n(&t->ring->range, open->id, __ATOMIC_RELAXED);
    __atomic_store_n(&t->ring->node, node_in(open->node, open->name), __ATOMIC_RELEASE);
}

/* A stage removed from below the top changes the nodes of all above it. If they are many, the update waits for a
 * launch. */
static void taken(struct tfi_thread *t, const struct tfi_open *open, bool top)
{
    if (!tfi_sums_on) return;
    if (TFI_UNLIKELY(!t->ring) && !attach(t)) return;
    if (TFI_LIKELY(top && t->ring->own && !t->ring->stale)) {
        find_range(t);
        __atomic_store_n(&t->ring->node, open->node, __ATOMIC_RELEASE);
    } else if (t->nr_open <= FEW_OPEN) find_node(t);
    else t->ring->stale = 1;
}

static void emptied(struct tfi_thread *t)
{
    if (tfi_sums_on && t->ring) find_node(t);
}

static void ended_elsewhere(const struct tfi_thread *t, const struct tfi_open *open)
{
    struct tfi_sums_ring *ring = tfi_sums_on ? __atomic_load_n(&t->ring, __ATOMIC_ACQUIRE) : NULL;
    uint32_t node = ring ? __atomic_load_n(&ring->node, __ATOMIC_ACQUIRE) : NO_NODE;
    if (node == NO_NODE || node == LOST_NODE || sums.node[node].name != open->name) return;
    __atomic_store_n(&ring->range, sums.node[node].parent == NO_NODE ? 0 : UNKNOWN, __ATOMIC_RELAXED);
    __atomic_compare_exchange_n(&ring->node, &node, sums.node[node].parent, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

static void counted(struct tfi_thread *t, const struct tfi_open *open, int step, bool turned)
{
    (void)open, (void)step;
    if (turned && tfi_sums_on) recount(t);
}

/* Node and innermost stage of the only thread that has stages. */
static uint32_t only(uint64_t *range)
{
    uint64_t with_stages = __atomic_load_n(&sums.with_stages, __ATOMIC_ACQUIRE);
    *range = 0;
    if (with_stages >> 32 != 1 || (uint32_t)with_stages - 1 >= RINGS) return NO_NODE;
    const struct tfi_sums_ring *ring = sums.ring[(uint32_t)with_stages - 1];
    *range = __atomic_load_n(&ring->range, __ATOMIC_RELAXED);
    return __atomic_load_n(&ring->node, __ATOMIC_ACQUIRE);
}

static struct forward *forward_of(uint32_t thread, int64_t sequence, uint64_t *key)
{
    *key = (uint64_t)thread << 48 | ((uint64_t)sequence & 0xffffffffffff);
    return &sums.forwards[*key * 0x9e3779b97f4a7c15u >> 48 & (FORWARDS - 1)];
}

void tfi_sums_operator(struct tfi_thread *t, uint32_t forward_thread, int64_t sequence, bool frame)
{
    uint64_t key;
    if (sequence < 0 && !frame) return;
    if (TFI_UNLIKELY(!t->ring) && !attach(t)) return;
    if (frame) {
        t->ring->framed = 1;
        t->ring->forward = NO_NODE;
        return;
    }
    struct forward *f = forward_of(forward_thread ? forward_thread : t->serial, sequence, &key);
    if (forward_thread) {
        t->ring->forward = __atomic_load_n(&f->key, __ATOMIC_ACQUIRE) == key ? (uint32_t)f->node : NO_NODE;
        t->ring->forward_range = f->range;
        return;
    }
    __atomic_store_n(&f->key, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&f->range, __atomic_load_n(&t->ring->range, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
    __atomic_store_n(&f->node, __atomic_load_n(&t->ring->node, __ATOMIC_RELAXED), __ATOMIC_RELEASE);
    __atomic_store_n(&f->key, key, __ATOMIC_RELEASE);
}

void tfi_sums_operator_end(struct tfi_thread *t, bool frame)
{
    if (!t->ring || (t->ring->framed && !frame)) return;
    t->ring->framed = 0;
    t->ring->forward = NO_NODE;
}

void tfi_sums_look(struct tfi_thread *t)
{
    if (!t || t->gen != __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED) || tfi_guarded(t)) return;
    tfi_guard_set(t);
    if (__atomic_load_n(&t->ended, __ATOMIC_RELAXED)) tfi_stage_sweep(t);
    if (t->ring || attach(t)) {
        if (TFI_UNLIKELY(t->ring->stale)) find_node(t);
        uint32_t node = __atomic_load_n(&t->ring->node, __ATOMIC_RELAXED);
        uint64_t range = __atomic_load_n(&t->ring->range, __ATOMIC_RELAXED);
        if (node == NO_NODE) {
            node = t->ring->forward;
            range = t->ring->forward_range;
        }
        if (node == NO_NODE) node = only(&range);
        if (node != t->ring->noted || range != t->ring->noted_range) note(t->ring, node, range);
    }
    tfi_guard_clear(t);
}

/* ---- records of CUPTI; with the token held ---- */

/* Node and innermost stage of a thread's launch at that moment. The ring may move on meanwhile. */
static uint32_t launched_in(const struct tfi_sums_ring *ring, uint64_t ticks, uint64_t *range)
{
    uint64_t count = __atomic_load_n(&ring->count, __ATOMIC_ACQUIRE), i = count;
    uint64_t first = count > ENTRIES ? count - ENTRIES : 0;
    if (!count) return LOST_NODE;
    while (i > first + 1 && ring->entry[(i - 1) % ENTRIES].ticks > ticks) i--;
    uint32_t node = (uint32_t)ring->entry[(i - 1) % ENTRIES].node;
    uint64_t found = ring->entry[(i - 1) % ENTRIES].range;
    bool before = ring->entry[(i - 1) % ENTRIES].ticks > ticks;
    uint64_t now = __atomic_load_n(&ring->count, __ATOMIC_ACQUIRE);
    if ((before && first) || (now > ENTRIES && now - ENTRIES >= i)) return LOST_NODE;
    *range = found;
    return node;
}

static void add_to_node(uint32_t node, uint64_t ns, uint32_t records)
{
    if (node == LOST_NODE) sums.left_out += records;
    else if (node < NODES) sums.node[node].ns += ns;
}

/* True in a warm-up step of the schedule: answers leave it out. */
static bool warms(uint64_t ticks)
{
    int64_t word = tfi_recording_at(ticks);
    return word >= 0 && word & TFI_RECORDING_WARMS;
}

void tfi_sums_call(uint32_t id, uint32_t thread, uint64_t start, uint64_t end)
{
    uint32_t place, node = LOST_NODE;
    uint64_t range = UNKNOWN;
    if (!tfi_sums_on || !id) return;
    struct tfi_sums_ring *ring = find_ring(thread, &place);
    if (ring) node = launched_in(ring, start + (end - start) / 2, &range);
    if (TFI_UNLIKELY(tfi_recording_switched) && warms(start)) node = IDLE_NODE;
    sums.calls[id % CALLS] = id / CALLS << 20 | (node + 1);
    sums.ranges[id % CALLS] = range;
    if (TFI_LIKELY(sums.waiting[id % WAITING].id != id)) return;
    add_to_node(node, sums.waiting[id % WAITING].ns, sums.waiting[id % WAITING].records);
    sums.waiting[id % WAITING].id = sums.waiting[id % WAITING].records = 0;
}

/* The time of a thread's latest launch in other stages than the one before; 0 if it made none. */
static uint64_t latest(const struct tfi_sums_ring *ring)
{
    uint64_t count = __atomic_load_n(&ring->count, __ATOMIC_ACQUIRE);
    return count ? ring->entry[(count - 1) % ENTRIES].ticks : 0;
}

uint32_t tfi_sums_thread(uint32_t thread)
{
    uint32_t place;
    if (!tfi_sums_on || find_ring(thread, &place)) return thread;
    const struct tfi_sums_ring *found = NULL;
    for (place = 0; place < RINGS; place++) {
        const struct tfi_sums_ring *ring = __atomic_load_n(&sums.ring[place], __ATOMIC_ACQUIRE);
        if (ring && ring->tid == thread && (!found || latest(ring) > latest(found))) found = ring;
    }
    return found ? found->thread : thread;
}

bool tfi_sums_stage(uint32_t id, uint64_t *range, bool *warmup)
{
    if (!tfi_sums_on || !id) return false;
    uint32_t call = sums.calls[id % CALLS];
    *range = sums.ranges[id % CALLS];
    *warmup = (call & (CALLS - 1)) - 1 == IDLE_NODE;
    return call && call >> 20 == id / CALLS && (*warmup || *range != UNKNOWN);
}

void tfi_sums_work(uint32_t id, uint64_t ns)
{
    if (!tfi_sums_on || !id) return;
    uint32_t call = sums.calls[id % CALLS], waits = id % WAITING;
    if (TFI_LIKELY(call && call >> 20 == id / CALLS)) {
        add_to_node((call & (CALLS - 1)) - 1, ns, 1);
        return;
    }
    if (sums.waiting[waits].id != id) {
        sums.left_out += sums.waiting[waits].records;
        sums.waiting[waits].records = 0;
        sums.waiting[waits].ns = 0;
        sums.waiting[waits].id = id;
    }
    sums.waiting[waits].records++;
    sums.waiting[waits].ns += ns;
}

/* ---- beginning and end ---- */

static void restart(void)
{
    bool again = sums.nr_nodes && tfi_cupti->on;
    __atomic_store_n(&tfi_sums_on, 0, __ATOMIC_SEQ_CST);
    sums.lock = (struct tfi_lock){0};
    if (!again) return; /* never used, or inherited from a parent */
    memset(sums.node, 0, sums.nr_nodes * sizeof *sums.node);
    memset(sums.slot, 0, SLOTS * sizeof *sums.slot);
    memset(sums.calls, 0, CALLS * sizeof *sums.calls);
    memset(sums.waiting, 0, sizeof sums.waiting);
    memset(sums.forwards, 0, FORWARDS * sizeof *sums.forwards);
    for (uint32_t i = 0; i < RINGS; i++) {
        if (!sums.ring[i]) continue;
        sums.ring[i]->node = sums.ring[i]->counted = sums.ring[i]->own = sums.ring[i]->stale = 0;
        sums.ring[i]->noted = UINT32_MAX;
        sums.ring[i]->count = sums.ring[i]->range = 0;
    }
    sums.nr_nodes = 1;
    sums.with_stages = sums.left_out = 0;
    __atomic_store_n(&tfi_sums_on, 1, __ATOMIC_SEQ_CST);
}

/* Runs at the end: no record comes any more. */
static void finish(struct tfi_device_time *time)
{
    if (!tfi_sums_on) return;
    time->known = true;
    time->left_out = sums.left_out;
    for (uint32_t i = 1; i < sums.nr_nodes; i++) {
        for (uint32_t n = i; sums.node[i].ns && n != NO_NODE; n = sums.node[n].parent) {
            struct tfi_timing *s = tfi_timing_of(sums.node[n].name);
            if (s) s->device += sums.node[i].ns;
        }
        sums.node[i].ns = 0;
    }
    for (uint32_t i = 0; i < WAITING; i++) time->left_out += sums.waiting[i].records;
}

static const struct tfi_watcher watcher = {.restart = restart,
                                           .put = put,
                                           .taken = taken,
                                           .emptied = emptied,
                                           .ended_elsewhere = ended_elsewhere,
                                           .counted = counted,
                                           .finish = finish};

void tfi_sums_begin(void)
{
    if (!sums.node) sums.node = tfi_map(NODES * sizeof *sums.node);
    if (!sums.slot) sums.slot = tfi_map(SLOTS * sizeof *sums.slot);
    if (!sums.calls) sums.calls = tfi_map(CALLS * sizeof *sums.calls);
    if (!sums.ranges) sums.ranges = tfi_map(CALLS * sizeof *sums.ranges);
    if (!sums.forwards) sums.forwards = tfi_map(FORWARDS * sizeof *sums.forwards);
    if (!sums.node || !sums.slot || !sums.calls || !sums.ranges || !sums.forwards) return;
    if (!sums.nr_nodes) sums.nr_nodes = 1;
    tfi_watch(&watcher);
    __atomic_store_n(&tfi_sums_on, 1, __ATOMIC_SEQ_CST);
    for (struct tfi_thread *t = tfi_threads(); t; t = t->all) adopt(t);
}
