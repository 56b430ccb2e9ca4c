/* snapshot_rows.c - makes rows of the dictionaries of a snapshot: events, segments, blocks, frames, annotations. */
#include <string.h>

#include "read/torch/snapshot_build.h"

/* ---- fields ---- */

static bool has(const struct fields *f, unsigned key)
{
    return f->value[key].type != PICKLE_MARK;
}

static bool is_number(const struct fields *f, unsigned key)
{
    return f->value[key].type == PICKLE_INTEGER;
}

static bool is_text(const struct fields *f, unsigned key)
{
    return f->value[key].type == PICKLE_TEXT;
}

/* A size or a time: a number that is not negative. */
static bool is_amount(const struct fields *f, unsigned key)
{
    return is_number(f, key) && f->value[key].value <= INT64_MAX;
}

static uint64_t amount(const struct fields *f, unsigned key)
{
    return is_amount(f, key) ? f->value[key].value : SNAPSHOT_UNKNOWN;
}

static uint64_t number(const struct fields *f, unsigned key, uint64_t without)
{
    return is_number(f, key) ? f->value[key].value : without;
}

static uint32_t text(const struct fields *f, unsigned key)
{
    return is_text(f, key) ? (uint32_t)f->value[key].value : SNAPSHOT_NONE;
}

/* Returns the row or list of a field that is a container of that kind; SNAPSHOT_NONE if it is not. */
static uint32_t row(const struct snapshot_building *b, const struct fields *f, unsigned key, uint8_t kind)
{
    const struct pickle_item *item = &f->value[key];
    if (item->type < PICKLE_LIST || b->kind[item->value] != kind) return SNAPSHOT_NONE;
    return b->id[item->value];
}

/* Counts a field that holds something else than rows of that kind, or nothing. */
static void expect(struct snapshot_building *b, const struct fields *f, unsigned key, uint8_t kind)
{
    const struct pickle_item *item = &f->value[key];
    bool is_container = item->type >= PICKLE_LIST;
    uint8_t known = is_container ? b->kind[item->value] : KIND_OTHER;
    if (item->type <= PICKLE_NONE || (is_container && known == KIND_EMPTY) || known == kind) return;
    b->snapshot->bad++;
}

static struct snapshot_list list(const struct snapshot_building *b, const struct fields *f, unsigned key, uint8_t of)
{
    uint32_t number = row(b, f, key, LIST_OF | of);
    return b->snapshot->list[number == SNAPSHOT_NONE ? 0 : number];
}

/* Times are microseconds, and become nanoseconds later. */
static bool is_time(const struct fields *f)
{
    return !has(f, WORD_time_us) || (is_amount(f, WORD_time_us) && f->value[WORD_time_us].value <= INT64_MAX / 1000);
}

/* ---- rows ---- */

static uint8_t frame_row(struct snapshot_building *b, const struct fields *f, uint32_t *id)
{
    const struct snapshot_frame frame = {text(f, WORD_name), text(f, WORD_filename), (int64_t)number(f, WORD_line, 0)};
    struct snapshot *s = b->snapshot;
    size_t before = s->frames.count, length;
    *id = snapshot_pool_add(&s->frames, &frame, sizeof frame);
    const uint32_t texts[] = {frame.function, frame.file};
    for (int i = 0; i < 2 && s->frames.count > before; i++) {
        if (texts[i] == SNAPSHOT_NONE) continue;
        snapshot_pool_get(&s->texts, texts[i], &length);
        b->frame_bytes += length;
    }
    return KIND_FRAME;
}

static uint8_t event_row(struct snapshot_building *b, const struct fields *f, uint32_t *id)
{
    struct snapshot *s = b->snapshot;
    uint32_t word = text(f, WORD_action);
    bool is_known = word >= WORD_alloc && word < WORD_alloc + SNAPSHOT_ACTIONS - 1;
    struct snapshot_event event = {.action = is_known ? (uint8_t)(word - WORD_alloc + 1) : SNAPSHOT_OTHER};
    bool is_request = event.action == SNAPSHOT_OOM;
    event.address = is_request ? amount(f, WORD_device_free) : number(f, WORD_addr, SNAPSHOT_UNKNOWN);
    event.size = amount(f, WORD_size);
    event.stream = number(f, WORD_stream, 0);
    event.time_us = amount(f, WORD_time_us);
    event.stack = row(b, f, WORD_frames, KIND_STACK);
    bool is_whole = event.size != SNAPSHOT_UNKNOWN && (is_request || is_number(f, WORD_addr));
    expect(b, f, WORD_frames, KIND_STACK);
    bool needs_place = event.action != SNAPSHOT_OTHER && event.action < SNAPSHOT_TAKEN;
    if (word == SNAPSHOT_NONE || !is_time(f) || (needs_place && !is_whole)) return KIND_OTHER;
    s->event = mem_grow(s->event, &s->event_capacity, s->events + 1, sizeof *s->event);
    s->event[s->events] = event;
    *id = (uint32_t)s->events++;
    return KIND_EVENT;
}

static bool take_state(const struct fields *f, uint8_t *state)
{
    switch (text(f, WORD_state)) {
    case WORD_inactive: *state = SNAPSHOT_INACTIVE; return true;
    case WORD_active_allocated: *state = SNAPSHOT_ALLOCATED; return true;
    case WORD_active_pending_free:
    case WORD_active_awaiting_free: *state = SNAPSHOT_PENDING; return true;
    default: return false;
    }
}

/* Before torch 2.1 the last use of a block stands in a list. */
static uint8_t block_row(struct snapshot_building *b, const struct fields *f, uint32_t *id)
{
    struct snapshot *s = b->snapshot;
    struct snapshot_block block = {.address = number(f, WORD_address, SNAPSHOT_UNKNOWN),
                                   .size = amount(f, WORD_size),
                                   .requested = amount(f, WORD_requested_size),
                                   .stack = row(b, f, WORD_frames, KIND_STACK)};
    expect(b, f, WORD_frames, KIND_STACK);
    struct snapshot_list history = list(b, f, WORD_history, KIND_HISTORY);
    if (history.spans && !has(f, WORD_frames)) {
        uint32_t last = s->span[history.first].first;
        block.requested = b->history[last].size;
        block.stack = b->history[last].stack;
    }
    if (block.size == SNAPSHOT_UNKNOWN || !take_state(f, &block.state)) return KIND_OTHER;
    s->block = mem_grow(s->block, &s->block_capacity, s->blocks + 1, sizeof *s->block);
    s->block[s->blocks] = block;
    *id = (uint32_t)s->blocks++;
    return KIND_BLOCK;
}

static uint8_t history_row(struct snapshot_building *b, const struct fields *f, uint32_t *id)
{
    if (!is_amount(f, WORD_real_size)) return KIND_OTHER;
    b->history = mem_grow(b->history, &b->history_capacity, b->histories + 1, sizeof *b->history);
    b->history[b->histories].size = amount(f, WORD_real_size);
    b->history[b->histories].stack = row(b, f, WORD_frames, KIND_STACK);
    *id = (uint32_t)b->histories++;
    return KIND_HISTORY;
}

static uint8_t segment_row(struct snapshot_building *b, const struct fields *f, uint32_t *id)
{
    struct snapshot *s = b->snapshot;
    struct snapshot_segment segment = {.device = is_amount(f, WORD_device) ? (int64_t)amount(f, WORD_device) : -1,
                                       .address = number(f, WORD_address, SNAPSHOT_UNKNOWN),
                                       .total = amount(f, WORD_total_size),
                                       .stream = number(f, WORD_stream, 0),
                                       .allocated = amount(f, WORD_allocated_size),
                                       .active = amount(f, WORD_active_size),
                                       .requested = amount(f, WORD_requested_size),
                                       .blocks = list(b, f, WORD_blocks, KIND_BLOCK),
                                       .stack = row(b, f, WORD_frames, KIND_STACK),
                                       .is_small = text(f, WORD_segment_type) == WORD_small,
                                       .is_expandable = f->value[WORD_is_expandable].type == PICKLE_TRUE};
    expect(b, f, WORD_blocks, LIST_OF | KIND_BLOCK);
    expect(b, f, WORD_frames, KIND_STACK);
    uint32_t pool = row(b, f, WORD_segment_pool_id, KIND_NUMBERS);
    if (pool != SNAPSHOT_NONE) memcpy(segment.pool, b->numbers[pool], sizeof segment.pool);
    if (segment.total == SNAPSHOT_UNKNOWN || !is_number(f, WORD_address)) return KIND_OTHER;
    s->segment = mem_grow(s->segment, &s->segment_capacity, s->segments + 1, sizeof *s->segment);
    s->segment[s->segments] = segment;
    *id = (uint32_t)s->segments++;
    return KIND_SEGMENT;
}

static uint8_t mark_row(struct snapshot_building *b, const struct fields *f, uint32_t *id)
{
    struct snapshot *s = b->snapshot;
    uint32_t stage = text(f, WORD_stage);
    if (!is_text(f, WORD_name) || (stage != WORD_start && stage != WORD_end) || !is_time(f) || !has(f, WORD_time_us))
        return KIND_OTHER;
    s->mark = mem_grow(s->mark, &s->mark_capacity, s->marks + 1, sizeof *s->mark);
    s->mark[s->marks] = (struct snapshot_mark){.time_us = amount(f, WORD_time_us),
                                               .device = (int64_t)number(f, WORD_device, 0),
                                               .name = text(f, WORD_name),
                                               .is_start = stage == WORD_start};
    *id = (uint32_t)s->marks++;
    return KIND_MARK;
}

/* The outermost dictionary is made last, so that its lists count. */
static uint8_t root_row(struct snapshot_building *b, const struct fields *f)
{
    struct snapshot *s = b->snapshot;
    const struct {
        unsigned key;
        uint8_t of;
        struct snapshot_list *to;
    } lists[] = {{WORD_segments, KIND_SEGMENT, &s->all_segments},
                 {WORD_device_traces, KIND_LIST, &s->traces},
                 {WORD_external_annotations, KIND_MARK, &s->all_marks},
                 {WORD_host_segments, KIND_SEGMENT, &s->host_segments},
                 {WORD_host_traces, KIND_EVENT, &s->host_trace}};
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        expect(b, f, lists[i].key, LIST_OF | lists[i].of);
        *lists[i].to = list(b, f, lists[i].key, lists[i].of);
    }
    return KIND_ROOT;
}

uint8_t snapshot_row(struct snapshot_building *b, const struct fields *f, uint32_t *id)
{
    if (has(f, WORD_segments) || has(f, WORD_device_traces)) return root_row(b, f);
    if (has(f, WORD_action)) return event_row(b, f, id);
    if (has(f, WORD_blocks)) return segment_row(b, f, id);
    if (has(f, WORD_filename)) return frame_row(b, f, id);
    if (has(f, WORD_state)) return block_row(b, f, id);
    if (has(f, WORD_stage)) return mark_row(b, f, id);
    if (has(f, WORD_real_size)) return history_row(b, f, id);
    return KIND_OTHER;
}
