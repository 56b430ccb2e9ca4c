/* cupti_buffers.c - a simulated CUPTI: the client's buffers, from the request to the completion.
 *
 * A lane collects the records of one origin: the API records of one thread if threads have their own buffers, or all
 * other records. A buffer is full if the next record does not fit or the client's maximum is reached. CUPTI hands a
 * buffer back when it is full or at a flush, to the callback that is registered at that moment.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cupti_sim.h"

struct text {
    struct text *next;
    size_t length;
    char text[];
};
struct buffer {
    struct buffer *next;
    uint8_t *data;
    size_t size, used, max, count;
    uint64_t due;
    struct text *names;
    uint32_t v2; /* session of the second interface; 0: first interface */
};
struct lane {
    uint64_t thread; /* 0: shared by all threads */
    uint32_t v2;
    struct buffer *buffer;
};

uint8_t sim_thread_buffers, sim_latency_stamps;
struct sim_counts sim_counts;
static CUpti_BuffersCallbackRequestFunc request_fn;
static CUpti_BuffersCallbackCompleteFunc complete_fn;
static struct lane *lanes;
static size_t nr_lanes;
static struct buffer *done; /* newest first */
static size_t nr_done, dropped;
static bool exiting;
static __thread bool in_callback;

CUptiResult sim_register(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete)
{
    if (!request || !complete) return CUPTI_ERROR_INVALID_PARAMETER;
    __atomic_store_n(&complete_fn, complete, __ATOMIC_RELEASE);
    __atomic_store_n(&request_fn, request, __ATOMIC_RELEASE);
    return CUPTI_SUCCESS;
}

bool sim_registered(void)
{
    return __atomic_load_n(&request_fn, __ATOMIC_ACQUIRE) != NULL || sim_v2_registered();
}

bool sim_in_callback(void)
{
    return in_callback;
}

size_t sim_take_dropped(void)
{
    return __atomic_exchange_n(&dropped, 0, __ATOMIC_RELAXED);
}

/* ---- another client, which registers without the first one's knowledge ---- */

static void foreign_request(uint8_t **buffer, size_t *size, size_t *max)
{
    *size = 65536;
    *max = 0;
    *buffer = malloc(*size);
}

static void foreign_complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)buffer, (void)size, (void)valid; /* no free(): the buffer may be the client's */
}

/* ---- requests ---- */

static void give(const struct buffer *b)
{
    if (b->v2) sim_v2_complete(b->v2, b->data, b->size, b->used);
    else complete_fn(NULL, 0, b->data, b->size, b->used);
}

static struct buffer *request(uint32_t v2)
{
    struct buffer b = {.v2 = v2};
    __atomic_add_fetch(&sim_counts.requested, 1, __ATOMIC_RELAXED);
    in_callback = true;
    sim_internal_call();
    if (v2) sim_v2_request(v2, &b.data, &b.size, &b.max);
    else if (request_fn) request_fn(&b.data, &b.size, &b.max);
    in_callback = false;
    if (sim_nasty(NASTY_stolen) && sim_counts.requested == sim_nasty(NASTY_stolen))
        sim_register(foreign_request, foreign_complete);
    for (size_t i = 0; i < nr_lanes; i++)
        if (lanes[i].buffer) sim_trap_twice(b.data, lanes[i].buffer->data);
    for (const struct buffer *other = done; other; other = other->next) sim_trap_twice(b.data, other->data);
    if (b.data && b.size >= SIM_RECORD_MAX) {
        struct buffer *buffer = malloc(sizeof *buffer);
        *buffer = b;
        return buffer;
    }
    sim_counts.refused++;
    if (sim_nasty(NASTY_crash)) raise(SIGSEGV);
    if (b.data) give(&b);
    if (sim_config()->version >= 1209) sim_callback_state(CUPTI_ERROR_OUT_OF_MEMORY, "no buffer for activity records");
    return NULL;
}

/* A client of the second interface loses its open buffers when it unsubscribes. */
static struct lane *lane_of(uint64_t thread, uint32_t v2)
{
    size_t i = 0;
    if (!sim_thread_buffers) thread = 0;
    while (i < nr_lanes && (lanes[i].thread != thread || !lanes[i].v2 != !v2)) i++;
    if (i == nr_lanes) {
        lanes = sim_resize(lanes, (nr_lanes + 1) * sizeof *lanes);
        lanes[nr_lanes++] = (struct lane){.thread = thread, .v2 = v2};
    }
    if (lanes[i].v2 != v2) lanes[i].buffer = NULL;
    lanes[i].v2 = v2;
    return &lanes[i];
}

/* ---- handing back ---- */

static void hand_back(struct lane *lane)
{
    struct buffer *b = lane->buffer;
    lane->buffer = NULL;
    b->due = sim_monotonic() + (uint64_t)sim_nasty(NASTY_late) * 1000000;
    b->next = done;
    done = b;
    nr_done++;
}

void sim_hand_back_all(bool but_device)
{
    for (size_t i = 0; i < nr_lanes; i++)
        if (lanes[i].buffer && lanes[i].buffer->used && !(but_device && lanes[i].thread == 0)) hand_back(&lanes[i]);
}

/* Hands a buffer to the client, then overwrites its names. They stay allocated, so a client that kept a pointer reads
 * garbage and does not crash. */
static void complete(struct buffer *b)
{
    __atomic_add_fetch(&sim_counts.returned, 1, __ATOMIC_RELAXED);
    in_callback = true;
    sim_internal_call();
    give(b);
    in_callback = false;
    for (struct text *t = b->names; t; t = t->next) memset(t->text, '#', t->length);
    free(b);
}

/* Delivers buffers that are due: oldest first, or newest first with NASTY_order. */
void sim_deliver(bool all)
{
    if (sim_nasty(NASTY_exit) && !exiting) return;
    if (sim_nasty(NASTY_order) && !all && nr_done < sim_nasty(NASTY_order)) return;
    if (sim_nasty(NASTY_late) && !all && !sim_is_worker()) return;
    uint64_t now = sim_monotonic();
    for (;;) {
        struct buffer **at = &done;
        if (!sim_nasty(NASTY_order))
            while (*at && (*at)->next) at = &(*at)->next;
        struct buffer *b = *at;
        if (!b || (!all && b->due > now)) return;
        *at = b->next;
        nr_done--;
        complete(b);
    }
}

/* ---- records ---- */

static const char *dying_name(struct buffer *b, const char *name)
{
    size_t length = strlen(name);
    struct text *t = malloc(sizeof *t + length + 1);
    memcpy(t->text, name, length + 1);
    t->length = length;
    t->next = b->names;
    b->names = t;
    return t->text;
}

static bool is_timed(const struct sim_item *item)
{
    return item->type == ITEM_WORK && item->kind != CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
}

void sim_emit(const struct sim_item *item)
{
    static uint64_t timed;
    uint8_t record[SIM_RECORD_MAX];
    if (item->v2 ? item->v2 != sim_v2_session() : !request_fn) return;
    struct lane *lane = lane_of(item->thread, item->v2);
    size_t size = sim_record_size(item->kind);
    struct buffer *b = lane->buffer;
    if (b && (b->used + size > b->size || (b->max && b->count >= b->max))) {
        hand_back(lane);
        sim_deliver(false);
    }
    if (!lane->buffer) {
        b = request(item->v2); /* the callback may register other callbacks */
        lane->buffer = b;
    }
    if (!(b = lane->buffer)) {
        sim_counts.dropped++;
        __atomic_add_fetch(&dropped, 1, __ATOMIC_RELAXED);
        return;
    }
    bool zeroed = sim_nasty(NASTY_zero) && is_timed(item) && ++timed % sim_nasty(NASTY_zero) == 0;
    enum sim_damage damage = zeroed ? SIM_ZEROED : sim_trap_damage(item);
    const char *name = item->type == ITEM_WORK ? item->work.name : NULL;
    if (name && sim_nasty(NASTY_names)) name = dying_name(b, name);
    sim_record_write(item, name, damage, sim_latency_stamps != 0, record);
    memcpy(b->data + b->used, record, size);
    b->used += size;
    b->count++;
    sim_counts.zeroed += zeroed;
    sim_counts.damaged += damage != SIM_WHOLE && !zeroed;
    sim_counts.cut += item->cut != 0;
    if (++sim_counts.written == sim_nasty(NASTY_clock) && sim_nasty(NASTY_clock)) sim_clock_foreign();
}

void sim_buffers_forget(void)
{
    for (size_t i = 0; i < nr_lanes; i++) lanes[i].buffer = NULL;
    done = NULL;
    nr_done = 0;
    request_fn = NULL;
    complete_fn = NULL;
}

/* ---- the end ---- */

static void write_counts(const char *path)
{
    for (size_t i = 0; i < nr_lanes; i++)
        if (lanes[i].buffer) sim_counts.kept += lanes[i].buffer->count;
    for (struct buffer *b = done; b; b = b->next) sim_counts.kept += b->count;
    FILE *f = fopen(path, "ae");
    if (!f) return;
    fprintf(f,
            "{\"requested\":%llu,\"refused\":%llu,\"returned\":%llu,\"written\":%llu,\"zeroed\":%llu,\"cut\":%llu,"
            "\"dropped\":%llu,\"kept\":%llu,\"damaged\":%llu,\"blocked\":%llu,\"unwritten\":%zu,\"running\":%zu}\n",
            (unsigned long long)sim_counts.requested, (unsigned long long)sim_counts.refused,
            (unsigned long long)sim_counts.returned, (unsigned long long)sim_counts.written,
            (unsigned long long)sim_counts.zeroed, (unsigned long long)sim_counts.cut,
            (unsigned long long)sim_counts.dropped, (unsigned long long)sim_counts.kept,
            (unsigned long long)sim_counts.damaged, (unsigned long long)sim_counts.blocked, sim_queue_length(false),
            sim_queue_length(true));
    fclose(f);
}

__attribute__((destructor)) static void at_exit(void)
{
    const char *path = getenv("SIMCUPTI_STATS");
    if (sim_inherited()) return;
    exiting = true;
    if (sim_nasty(NASTY_exit)) sim_flush(true);
    if (path && *path) write_counts(path);
}
