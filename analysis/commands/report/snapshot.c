/* snapshot.c - writes one stage's allocator snapshot for torch.cuda._memory_viz.
 *
 * `device_traces` has every block from the first entry of the stage to its last exit, one list per device. The host's
 * list comes last, as in snapshots that torch makes from a profile. `segments` has the memory reserved at the end,
 * with the blocks in use in it. The allocator reports blocks and totals, not segments. Those are what the calls
 * underneath the allocator gave it (grants.c); segments.c reconstructs the ones whose calls were not recorded.
 * The addresses of blocks in use since before the recording are unknown. Their bytes are shown as one block per
 * segment, without frames. The host's allocator reserves nothing: its blocks less than 2 MiB apart are shown as one
 * segment, with the gaps inactive.
 */
#include <stdlib.h>
#include <string.h>

#include "ask/ops/segments.h"
#include "commands/report/report_memory.h"
#include "model/frames.h"
#include "write/pickle.h"

struct in_use {
    uint64_t address, bytes;
    uint32_t stack;
    bool gone;
};

static void put_frame(struct pickle *p, const struct name *name)
{
    struct frame frame;
    if (!frame_parse(&frame, name->text, name->length)) frame = (struct frame){name->text, "", "0", name->length, 0};
    pickle_open_dict(p);
    pickle_key(p, "filename");
    pickle_text(p, frame.file, frame.file_length);
    pickle_key(p, "line");
    pickle_int(p, strtol(frame.line, NULL, 10));
    pickle_key(p, "name");
    pickle_text(p, frame.function, frame.function_length);
    pickle_close_dict(p);
}

/* Writes a stack. A stack or frame written before is referenced by its memo number. */
static void put_frames(struct pickle *p, struct view *view, uint32_t stack)
{
    const struct names *names = &view->report->session->model.names;
    uint32_t known = map_get(&view->stacks, stack);
    if (known != MAP_NONE) {
        pickle_again(p, known);
        return;
    }
    pickle_open_list(p);
    for (size_t i = 0; i < stack_depth(names, stack); i++) {
        uint32_t frame = stack_frame(names, stack, i);
        known = map_get(&view->frames, frame);
        if (known != MAP_NONE) {
            pickle_again(p, known);
        } else {
            put_frame(p, names_get(names, frame));
            map_put(&view->frames, frame, pickle_remember(p));
        }
    }
    pickle_close_list(p);
    map_put(&view->stacks, stack, pickle_remember(p));
}

static void put_int(struct pickle *p, const char *key, int64_t value)
{
    pickle_key(p, key);
    pickle_int(p, value);
}

/* A change of memory: where, when and by whom. */
struct action {
    const char *name;
    uint64_t address, stream;
    int64_t size, time;
    uint32_t stack;
};

static void put_action(struct pickle *p, struct view *view, const struct action *action)
{
    pickle_open_dict(p);
    pickle_key(p, "action");
    pickle_key(p, action->name);
    put_int(p, "addr", (int64_t)action->address);
    put_int(p, "size", action->size);
    put_int(p, "stream", (int64_t)action->stream);
    put_int(p, "time_us", action->time / 1000);
    pickle_key(p, "frames");
    put_frames(p, view, action->stack);
    pickle_close_dict(p);
}

/* Writes the event of block `i`, whose allocation is block `given`; MAP_NONE: it is unknown. */
static void put_snapshot_event(struct pickle *p, struct view *view, size_t i, uint32_t given, const char *name)
{
    const struct blocks *b = &view->process->blocks;
    const struct action action = {.name = name,
                                  .address = b->address[i],
                                  .stream = given == MAP_NONE ? 0 : b->other[given],
                                  .size = block_magnitude(b->bytes[i]),
                                  .time = b->time[i],
                                  .stack = b->stack[i]};
    put_action(p, view, &action);
}

/* Writes a refused request. `device_free` is the device's memory less the allocator's reserved bytes, 0 if the device's
 * memory is unknown; torch asks the driver instead. */
static void put_oom(struct pickle *p, struct view *view, size_t i)
{
    const struct blocks *b = &view->process->ooms;
    uint64_t memory = 0;
    for (size_t k = 0; k < view->process->devices; k++)
        if (view->process->device[k].number == b->device[i]) memory = view->process->device[k].memory;
    pickle_open_dict(p);
    pickle_key(p, "action");
    pickle_key(p, "oom");
    put_int(p, "device_free", (int64_t)(memory - MIN(memory, b->reserved[i])));
    put_int(p, "size", block_magnitude(b->bytes[i]));
    put_int(p, "stream", 0);
    put_int(p, "time_us", b->time[i] / 1000);
    pickle_key(p, "frames");
    put_frames(p, view, b->stack[i]);
    pickle_close_dict(p);
}

/* Writes a device's refused requests before a time, from index `next` on; returns the index after them. */
static size_t put_ooms(struct pickle *p, struct view *view, int64_t device, size_t next, int64_t before)
{
    const struct blocks *b = &view->process->ooms;
    for (; next < view->ooms && b->time[view->oom[next]] < before; next++)
        if (b->device[view->oom[next]] == device) put_oom(p, view, view->oom[next]);
    return next;
}

/* ---- segments ---- */

/* State of a replay of one device's reports, and of the calls underneath its allocator. */
struct replay {
    struct view *view;
    struct pickle *pickle; /* NULL: nothing is written */
    int64_t device;
    size_t at;         /* index of the current report in the process's blocks */
    size_t next_grant; /* in view->grants */
    bool told, started;
    struct map live; /* by address: the index of the allocation, while the block is in use */
    struct segments segments;
};

static void tell_segment(void *context, const char *action, uint64_t address, uint64_t size, uint64_t stream)
{
    struct replay *r = context;
    const struct blocks *b = &r->view->process->blocks;
    bool more = !strcmp(action, "segment_alloc") || !strcmp(action, "segment_map");
    const struct action told = {.name = action,
                                .address = address,
                                .stream = stream,
                                .size = (int64_t)size,
                                .time = b->time[r->at],
                                .stack = more ? b->stack[r->at] : 0};
    if (r->told) put_action(r->pickle, r->view, &told);
}

/* Gives the allocator the piece of a grant, or takes it back. Returns false if that is against what the reports say. */
static bool replay_grant(struct replay *r, const struct grant *grant)
{
    if (grant->is_taken) return segments_release(&r->segments, grant->address);
    return segments_hold(&r->segments, grant->address, grant->bytes, grant->area, grant->stream);
}

/* Writes pieces that were given or taken one after the other and lie side by side, as one. */
static void tell_grants(struct replay *r, const struct grant *first, uint64_t bytes)
{
    static const char *const names[][2] = {{"segment_alloc", "segment_free"}, {"segment_map", "segment_unmap"}};
    const struct action action = {.name = names[first->area >= SEGMENT_MAPPED][first->is_taken],
                                  .address = first->address,
                                  .stream = first->stream,
                                  .size = (int64_t)bytes,
                                  .time = first->time,
                                  .stack = r->view->process->grants.stack[first->row]};
    if (bytes && r->pickle && first->time >= r->view->start) put_action(r->pickle, r->view, &action);
}

/* Replays the calls up to a time that gave the device's allocator memory or took it back. */
static void replay_grants(struct replay *r, int64_t until)
{
    const struct grants *g = &r->view->grants;
    const struct grant *first = NULL;
    uint64_t bytes = 0;
    for (; r->next_grant < g->count && g->grant[r->next_grant].time <= until; r->next_grant++) {
        const struct grant *grant = &g->grant[r->next_grant];
        if (grant->device != r->device || !replay_grant(r, grant)) continue;
        bool goes_on = first && grant->area >= SEGMENT_MAPPED && grant->area == first->area &&
                       grant->is_taken == first->is_taken && grant->address == first->address + bytes;
        if (!goes_on) {
            if (first) tell_grants(r, first, bytes);
            first = grant;
            bytes = 0;
        }
        bytes += grant->bytes;
    }
    if (first) tell_grants(r, first, bytes);
}

/* Creates the segments from before the first report. If the first report's block is the only one in use, they have the
 * reserved bytes less the size of that block's own segment; otherwise all reserved bytes. So they have if the call that
 * gave the block's segment was recorded. */
static void begin_segments(struct replay *r)
{
    const struct blocks *b = &r->view->process->blocks;
    uint64_t bytes = (uint64_t)block_magnitude(b->bytes[r->at]), own = segment_usual_size(bytes);
    bool is_first = b->bytes[r->at] > 0 && b->allocated[r->at] <= bytes;
    if (segments_know(&r->segments, b->address[r->at])) is_first = false;
    bool told = r->told;
    r->told = false;
    segments_settle(&r->segments, b->reserved[r->at] - MIN(b->reserved[r->at], is_first ? own : 0));
    r->told = told;
    r->started = true;
}

static void replay_block(struct replay *r)
{
    const struct blocks *b = &r->view->process->blocks;
    uint64_t address = b->address[r->at], bytes = (uint64_t)block_magnitude(b->bytes[r->at]),
             reserved = b->reserved[r->at];
    uint32_t given = map_get(&r->live, address);
    bool known = given != MAP_NONE;
    if (!r->started) begin_segments(r);
    if (b->bytes[r->at] > 0) {
        if (known) segments_forget(&r->segments, address, bytes);
        if (segments_can_hold(address, bytes)) {
            segments_give(&r->segments, address, bytes, reserved, b->other[r->at]);
            map_put(&r->live, address, (uint32_t)r->at);
        }
        if (r->told) put_snapshot_event(r->pickle, r->view, r->at, (uint32_t)r->at, "alloc");
        return;
    }
    segments_shrink(&r->segments, reserved);
    if (r->told) {
        put_snapshot_event(r->pickle, r->view, r->at, given, "free_requested");
        put_snapshot_event(r->pickle, r->view, r->at, given, "free_completed");
    }
    if (known) {
        segments_forget(&r->segments, address, bytes);
        map_remove(&r->live, address);
    }
    segments_settle(&r->segments, reserved);
}

/* Replays all reports of a device up to the stage's end; writes those of the stage if `pickle` is given. */
static void replay_device(struct replay *r, struct view *view, int64_t device, struct pickle *pickle)
{
    const struct blocks *b = &view->process->blocks;
    const struct grants *g = &view->grants;
    size_t oom = 0, pieces = 0;
    struct extent *piece = mem_zero(g->count + 1, sizeof *piece);
    *r = (struct replay){.view = view, .pickle = pickle, .device = device};
    for (size_t i = 0; i < g->count; i++)
        if (g->grant[i].device == device && g->grant[i].area >= SEGMENT_MAPPED)
            piece[pieces++].address = g->grant[i].address;
    segments_init(&r->segments, piece, pieces);
    r->segments.tell = tell_segment;
    r->segments.context = r;
    for (size_t k = 0; k < view->blocks; k++) {
        size_t i = view->block[k];
        uint64_t bytes = (uint64_t)block_magnitude(b->bytes[i]);
        if (b->device[i] == device && segments_can_hold(b->address[i], bytes))
            r->segments.beyond = MAX(r->segments.beyond, b->address[i] + bytes);
    }
    for (size_t i = 0; i < g->count; i++)
        r->segments.beyond = MAX(r->segments.beyond, g->grant[i].address + g->grant[i].bytes);
    for (size_t k = 0; k < view->blocks; k++) {
        r->at = view->block[k];
        r->told = pickle && k >= view->first;
        if (b->device[r->at] == device) {
            replay_grants(r, b->time[r->at]);
            oom = r->told ? put_ooms(pickle, view, device, oom, b->time[r->at]) : oom;
            replay_block(r);
        }
    }
    replay_grants(r, INT64_MAX);
    if (pickle) put_ooms(pickle, view, device, oom, INT64_MAX);
    map_free(&r->live);
}

static void put_events(struct pickle *p, struct view *view, int64_t device)
{
    const struct blocks *b = &view->process->blocks;
    struct replay replay;
    pickle_open_list(p);
    if (device != DEVICE_HOST) {
        replay_device(&replay, view, device, p);
        segments_free(&replay.segments);
    }
    for (size_t k = view->first; k < view->blocks && device == DEVICE_HOST; k++) {
        size_t i = view->block[k];
        if (b->device[i] != device) continue;
        if (b->bytes[i] > 0) {
            put_snapshot_event(p, view, i, MAP_NONE, "alloc");
        } else {
            put_snapshot_event(p, view, i, MAP_NONE, "free_requested");
            put_snapshot_event(p, view, i, MAP_NONE, "free_completed");
        }
    }
    pickle_close_list(p);
}

static int by_address(const void *a, const void *b)
{
    const struct in_use *x = a, *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

/* Lists the blocks in use at the end, sorted by address; returns their number. */
static size_t find_live(const struct view *view, int64_t device, struct in_use *live)
{
    const struct blocks *b = &view->process->blocks;
    struct map at = {0};
    size_t count = 0, left = 0;
    for (size_t k = 0; k < view->blocks; k++) {
        size_t i = view->block[k];
        if (b->device[i] != device) continue;
        uint32_t known = map_get(&at, b->address[i]);
        if (known != MAP_NONE) live[known].gone = true;
        if (b->bytes[i] > 0 && segments_can_hold(b->address[i], (uint64_t)b->bytes[i])) {
            map_put(&at, b->address[i], (uint32_t)count);
            live[count++] = (struct in_use){b->address[i], (uint64_t)b->bytes[i], b->stack[i], false};
        }
    }
    map_free(&at);
    for (size_t i = 0; i < count; i++)
        if (!live[i].gone) live[left++] = live[i];
    qsort(live, left, sizeof *live, by_address);
    return left;
}

static void put_block(struct pickle *p, struct view *view, const struct in_use *block, bool active)
{
    pickle_open_dict(p);
    put_int(p, "address", (int64_t)block->address);
    put_int(p, "size", (int64_t)block->bytes);
    put_int(p, "requested_size", (int64_t)block->bytes);
    pickle_key(p, "state");
    pickle_key(p, active ? "active_allocated" : "inactive");
    pickle_key(p, "frames");
    put_frames(p, view, active ? block->stack : 0);
    pickle_close_dict(p);
}

/* Writes a gap between a segment's blocks. Older bytes not placed yet are shown in use at its start. */
static void put_rest(struct pickle *p, struct view *view, uint64_t from, uint64_t to, uint64_t *older)
{
    uint64_t used = MIN(*older, to - from);
    struct in_use older_block = {.address = from, .bytes = used},
                  rest = {.address = from + used, .bytes = to - from - used};
    *older -= used;
    if (used) put_block(p, view, &older_block, true);
    if (rest.bytes) put_block(p, view, &rest, false);
}

/* Writes a segment, whose first piece has `grain` bytes. `older`: bytes in it used by blocks whose allocation was not
 * recorded. */
static void put_segment(struct pickle *p, struct view *view, int64_t device, const struct segment *segment,
                        uint64_t grain, const struct in_use *live, size_t count, uint64_t older)
{
    uint64_t used = older, next = segment->address, end = segment->address + segment->size;
    for (size_t i = 0; i < count; i++) used += live[i].bytes;
    pickle_open_dict(p);
    put_int(p, "device", device);
    put_int(p, "address", (int64_t)segment->address);
    put_int(p, "total_size", (int64_t)segment->size);
    put_int(p, "allocated_size", (int64_t)used);
    put_int(p, "active_size", (int64_t)used);
    put_int(p, "requested_size", (int64_t)used);
    put_int(p, "stream", (int64_t)segment->stream);
    pickle_key(p, "segment_type");
    pickle_key(p, grain > SEGMENT_GRAIN ? "large" : "small");
    pickle_key(p, "is_expandable");
    pickle_bool(p, segment->area >= SEGMENT_MAPPED);
    pickle_key(p, "frames");
    put_frames(p, view, 0);
    pickle_key(p, "blocks");
    pickle_open_list(p);
    for (size_t i = 0; i < count; i++) {
        put_rest(p, view, next, live[i].address, &older);
        put_block(p, view, &live[i], true);
        next = live[i].address + live[i].bytes;
    }
    put_rest(p, view, next, end, &older);
    pickle_close_list(p);
    pickle_close_dict(p);
}

/* Drops blocks that overlap an earlier block. They overlap because a report is missing. */
static size_t drop_overlapping(struct in_use *live, size_t count)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++)
        if (!left || live[i].address >= live[left - 1].address + live[left - 1].bytes) live[left++] = live[i];
    return left;
}

static void put_host_segments(struct pickle *p, struct view *view, int64_t shown_as)
{
    struct in_use *live = mem_zero(view->blocks + 1, sizeof *live);
    size_t count = drop_overlapping(live, find_live(view, DEVICE_HOST, live));
    for (size_t i = 0, next; i < count; i = next) {
        uint64_t end = live[i].address + live[i].bytes;
        for (next = i + 1; next < count && live[next].address - end <= SEGMENT_GRAIN; next++)
            end = live[next].address + live[next].bytes;
        struct segment segment = {.address = live[i].address, .size = end - live[i].address};
        put_segment(p, view, shown_as, &segment, segment.size, live + i, next - i, 0);
    }
    free(live);
}

/* Returns the bytes that the allocator reports in use, less the known blocks. */
static uint64_t older_bytes(const struct view *view, int64_t device, const struct in_use *live, size_t count)
{
    const struct blocks *b = &view->process->blocks;
    uint64_t known = 0, allocated = 0;
    for (size_t i = 0; i < count; i++) known += live[i].bytes;
    for (size_t k = 0; k < view->blocks; k++)
        allocated = b->device[view->block[k]] == device ? b->allocated[view->block[k]] : allocated;
    return allocated - MIN(allocated, known);
}

/* Joins the pieces of the expandable segment that ends with the last one; returns the first one. */
static const struct segment *join_pieces(const struct segments *s, const struct segment *last, struct segment *whole)
{
    *whole = *last;
    for (const struct segment *next; (next = segments_below(s, last->address)) && segment_goes_on(next, last);) {
        last = next;
        whole->address = last->address;
        whole->size += last->size;
    }
    return last;
}

/* Writes the segments from the last to the first. Segments of unknown address have the highest addresses, so they
 * take the older bytes first. A block outside of all segments has ended: the report of that is missing. */
static void put_segments(struct pickle *p, struct view *view, int64_t device)
{
    struct in_use *live = mem_zero(view->blocks + 1, sizeof *live);
    size_t count = drop_overlapping(live, find_live(view, device, live)), end = count;
    uint64_t older = older_bytes(view, device, live, count);
    struct replay replay;
    replay_device(&replay, view, device, NULL);
    const struct segment *at = segments_below(&replay.segments, UINT64_MAX);
    for (; at; at = segments_below(&replay.segments, at->address)) {
        struct segment segment;
        uint64_t used = 0;
        at = join_pieces(&replay.segments, at, &segment);
        while (end && live[end - 1].address + live[end - 1].bytes > segment.address + segment.size) end--;
        size_t first = end;
        while (first && live[first - 1].address >= segment.address) used += live[--first].bytes;
        uint64_t share = MIN(older, segment.size - MIN(used, segment.size));
        put_segment(p, view, device, &segment, at->size, live + first, end - first, share);
        older -= share;
        end = first;
    }
    segments_free(&replay.segments);
    free(live);
}

void report_put_snapshot(struct out *out, struct view *view)
{
    struct pickle p;
    pickle_begin(&p, out);
    pickle_open_dict(&p);
    pickle_key(&p, "about");
    pickle_key(&p, REPORT_WRITER); /* marks the file as a report's */
    pickle_key(&p, "device_traces");
    pickle_open_list(&p);
    for (int64_t device = 0; device < view->devices; device++) put_events(&p, view, device);
    if (view->has_host) put_events(&p, view, DEVICE_HOST);
    pickle_close_list(&p);
    pickle_key(&p, "segments");
    pickle_open_list(&p);
    for (int64_t device = 0; device < view->devices; device++) put_segments(&p, view, device);
    put_host_segments(&p, view, view->devices);
    pickle_close_list(&p);
    pickle_key(&p, "allocator_settings");
    pickle_open_dict(&p);
    pickle_close_dict(&p);
    pickle_close_dict(&p);
    pickle_end(&p);
    map_free(&view->stacks);
    map_free(&view->frames);
}
