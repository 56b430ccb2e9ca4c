/* snapshot_trace.c - follows the events of a device.
 *
 * A trace has the latest events only. What its first event found is known all the same: blocks that are freed without an
 * allocation, and blocks of the segments that no event allocated. Sizes are those that were requested, as in torch's
 * viewer: events have no others. A block is in use until its free is requested, as in torch's own counts, or, without that
 * event, until the free is completed.
 */
#include "model/memory/snapshot_trace.h"

#include <stdlib.h>

/* The first pass gives this action to frees that change nothing. */
enum { PASSED_OVER = SNAPSHOT_OTHER };

/* ---- the first pass ---- */

static void add_older(struct device_trace *t, struct older_block block)
{
    t->older = mem_grow(t->older, &t->older_capacity, t->olders + 1, sizeof *t->older);
    t->older[t->olders++] = block;
    t->bytes += block.size;
}

static void judge_alloc(struct device_trace *t, struct snapshot *s, uint32_t at)
{
    const struct snapshot_event *event = &s->event[at];
    uint32_t before = map_take(&t->live, event->address);
    if (before != MAP_NONE) {
        t->lost = mem_grow(t->lost, &t->lost_capacity, t->losts + 1, sizeof *t->lost);
        t->lost[t->losts++] = (struct lost_end){at, s->event[before].size};
    }
    if (t->pending.count) map_remove(&t->pending, event->address);
    map_put(&t->live, event->address, at);
}

/* Ends the block at the event's address, which is older if no event allocated it. */
static void judge_end(struct device_trace *t, struct snapshot *s, uint32_t at)
{
    struct snapshot_event *event = &s->event[at];
    uint32_t given = map_take(&t->live, event->address);
    if (given == MAP_NONE && event->size)
        add_older(t, (struct older_block){event->address, event->size, event->stream, SNAPSHOT_NONE});
    else if (given != MAP_NONE) event->size = s->event[given].size;
    event->action = SNAPSHOT_FREE_REQUESTED;
}

static void judge_completed(struct device_trace *t, struct snapshot *s, uint32_t at)
{
    struct snapshot_event *event = &s->event[at];
    bool was_requested = map_take(&t->pending, event->address) != MAP_NONE;
    bool is_live = map_get(&t->live, event->address) != MAP_NONE;
    if (was_requested || (t->has_requests && !is_live))
        event->action = PASSED_OVER; /* or requested before the first event */
    else judge_end(t, s, at);
}

static void judge_event(struct device_trace *t, struct snapshot *s, uint32_t at)
{
    switch (s->event[at].action) {
    case SNAPSHOT_ALLOC: judge_alloc(t, s, at); break;
    case SNAPSHOT_FREE_REQUESTED:
        judge_end(t, s, at);
        map_put(&t->pending, s->event[at].address, 1);
        break;
    case SNAPSHOT_FREE_COMPLETED: judge_completed(t, s, at); break;
    default: break;
    }
}

void snapshot_trace_judge(struct device_trace *t, struct snapshot *s)
{
    struct snapshot_cursor cursor = {0};
    uint32_t at;
    while (snapshot_next(s, &t->events, &cursor, &at))
        t->has_requests |= s->event[at].action == SNAPSHOT_FREE_REQUESTED;
    cursor = (struct snapshot_cursor){0};
    while (snapshot_next(s, &t->events, &cursor, &at)) judge_event(t, s, at);
}

void snapshot_trace_in_use(struct device_trace *t, const struct snapshot *s, const struct older_block *block)
{
    uint32_t given = map_take(&t->live, block->address);
    if (given == MAP_NONE && block->size) add_older(t, *block);
    else if (given != MAP_NONE) t->astray += s->event[given].size != block->size;
}

static uint64_t reserve(const struct snapshot_event *event, uint64_t reserved)
{
    bool takes = event->action == SNAPSHOT_SEGMENT_ALLOC || event->action == SNAPSHOT_SEGMENT_MAP;
    bool gives = event->action == SNAPSHOT_SEGMENT_FREE || event->action == SNAPSHOT_SEGMENT_UNMAP;
    return takes ? reserved + event->size : gives ? reserved - event->size : reserved;
}

void snapshot_trace_judged(struct device_trace *t, const struct snapshot *s)
{
    struct snapshot_cursor cursor = {0};
    uint64_t change = 0;
    uint32_t at;
    while (snapshot_next(s, &t->events, &cursor, &at)) change = reserve(&s->event[at], change);
    t->reserved -= change;
    t->astray += t->live.count;
    map_free(&t->live);
    map_free(&t->pending);
}

/* ---- rows ---- */

static uint32_t stack_of(const struct snapshot_rows *rows, uint32_t stack)
{
    return stack == SNAPSHOT_NONE ? NAME_NONE : rows->stack[stack];
}

/* The caller sets the time, the bytes, the place and the totals. */
static size_t add_row(struct blocks *b, const struct snapshot_rows *rows, int64_t device, uint32_t stack)
{
    size_t at = b->table.count;
    blocks_reserve(b, 1);
    b->table.count++;
    b->device[at] = device;
    b->thread[at] = SNAPSHOT_THREAD;
    b->allocator[at] = device == DEVICE_HOST ? rows->pinned : rows->allocator;
    b->stack[at] = stack_of(rows, stack);
    b->kind[at] = BLOCK_NONE;
    return at;
}

/* The sum of impossible sizes must not look like an unknown one. */
static uint64_t bounded(uint64_t bytes)
{
    return MIN(bytes, (uint64_t)INT64_MAX);
}

void snapshot_trace_add_older(struct device_trace *t, const struct snapshot_rows *rows)
{
    struct blocks *b = &rows->process->blocks;
    uint64_t allocated = 0;
    t->first_older = b->table.count;
    for (size_t i = 0; rows->keeps && i < t->olders; i++) {
        const struct older_block *block = &t->older[i];
        size_t at = add_row(b, rows, t->device, block->stack);
        b->time[at] = rows->process->first;
        b->bytes[at] = (int64_t)block->size;
        b->address[at] = block->address;
        b->other[at] = block->stream;
        b->allocated[at] = bounded(allocated += block->size);
        b->reserved[at] = t->reserved;
    }
    b->earlier = b->table.count;
}

/* The bytes in use and reserved during the second pass. */
struct totals {
    uint64_t allocated, reserved;
    int64_t time;
    size_t next_lost;
};

static void take_event(struct device_trace *t, const struct snapshot_event *event, uint32_t at, struct totals *now)
{
    now->reserved = reserve(event, now->reserved);
    if (event->action == SNAPSHOT_FREE_REQUESTED) now->allocated -= event->size;
    if (event->action == SNAPSHOT_ALLOC) {
        if (now->next_lost < t->losts && t->lost[now->next_lost].event == at)
            now->allocated -= t->lost[now->next_lost++].size;
        now->allocated += event->size;
    }
    t->is_doubted |= now->reserved > INT64_MAX || now->reserved < now->allocated;
}

static void add_event(struct device_trace *t, const struct snapshot_event *event, const struct snapshot_rows *rows,
                      const struct totals *now)
{
    bool is_request = event->action == SNAPSHOT_OOM;
    bool is_block = event->action == SNAPSHOT_ALLOC || event->action == SNAPSHOT_FREE_REQUESTED;
    bool is_segment = event->action >= SNAPSHOT_SEGMENT_ALLOC && event->action <= SNAPSHOT_SEGMENT_UNMAP;
    if (!rows->keeps || (!is_request && !is_segment && !(is_block && event->size))) return;
    struct blocks *b = is_request ? &rows->process->ooms : &rows->process->blocks;
    size_t at = add_row(b, rows, t->device, event->stack);
    b->time[at] = now->time;
    b->bytes[at] = is_segment ? 0 : (int64_t)event->size;
    if (event->action == SNAPSHOT_FREE_REQUESTED) b->bytes[at] = -b->bytes[at];
    b->address[at] = is_request ? 0 : event->address;
    b->other[at] = is_request ? event->address : event->stream; /* the device's free memory, as the driver told */
    b->allocated[at] = bounded(now->allocated);
    b->reserved[at] = now->reserved;
    b->kind[at] = is_segment ? BLOCK_SEGMENT : BLOCK_NONE;
}

static void forget_reserved(struct blocks *b, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) b->reserved[i] = TOTAL_UNKNOWN;
}

void snapshot_trace_add(struct device_trace *t, const struct snapshot *s, const struct snapshot_rows *rows)
{
    struct process *p = rows->process;
    struct totals now = {.allocated = t->bytes, .reserved = t->reserved, .time = p->first};
    struct snapshot_cursor cursor = {0};
    size_t first = p->blocks.table.count, first_request = p->ooms.table.count;
    uint32_t at;
    t->is_doubted = t->reserved > INT64_MAX || t->reserved < t->bytes;
    while (snapshot_next(s, &t->events, &cursor, &at)) {
        const struct snapshot_event *event = &s->event[at];
        if (!rows->has_time) now.time++;
        else if (event->time_us != SNAPSHOT_UNKNOWN) now.time = MAX(now.time, (int64_t)event->time_us * 1000);
        take_event(t, event, at, &now);
        add_event(t, event, rows, &now);
    }
    if (!t->is_doubted || !rows->keeps) return;
    forget_reserved(&p->blocks, t->first_older, t->first_older + t->olders);
    forget_reserved(&p->blocks, first, p->blocks.table.count);
    forget_reserved(&p->ooms, first_request, p->ooms.table.count);
}

void snapshot_trace_free(struct device_trace *t)
{
    free(t->older);
    free(t->lost);
    map_free(&t->live);
    map_free(&t->pending);
}
