/* segments.c - reconstructs the segments of a caching allocator from the blocks and totals that it reports.
 *
 * A total that grew means a new segment, which begins with the block that needed it. A total that shrank means that
 * segments without a block in use were freed: one of exactly that size, else the largest. The allocator may have
 * reserved memory before its first report, at unknown addresses. That memory is placed beyond all blocks. When a
 * block appears outside all segments, a part of that memory is moved there. The part has the size of the segment that
 * torch's allocator requests for such a block. The sum of all sizes equals the reported total wherever the blocks in
 * use fit into it.
 *
 * Segments whose calls were recorded have their true place and size. A total that shrank takes them last: the call that
 * freed such a segment is missing then. An expandable segment is held as its pieces.
 */
#include "ask/ops/segments.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define SMALL_MOST (1ull << 20)
#define MEDIUM_BELOW (10ull << 20)
#define MEDIUM_SEGMENT (20ull << 20)

static uint64_t round_up(uint64_t size)
{
    return (size + SEGMENT_GRAIN - 1) / SEGMENT_GRAIN * SEGMENT_GRAIN;
}

uint64_t segment_usual_size(uint64_t bytes)
{
    return bytes <= SMALL_MOST ? SEGMENT_GRAIN : bytes < MEDIUM_BELOW ? MEDIUM_SEGMENT : round_up(bytes);
}

static uint64_t end_of(const struct segment *segment)
{
    return segment->address + segment->size;
}

/* Returns the number of segments that begin at or before an address. */
static size_t up_to(const struct segments *s, uint64_t address)
{
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->segment[middle].address <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

static struct segment *find(const struct segments *s, uint64_t address)
{
    size_t n = up_to(s, address);
    return n && address < end_of(&s->segment[n - 1]) ? &s->segment[n - 1] : NULL;
}

static void tell(struct segments *s, const char *action, uint64_t address, uint64_t size, uint64_t stream)
{
    if (s->tell) s->tell(s->context, action, address, size, stream);
}

static struct segment *insert(struct segments *s, struct segment segment)
{
    size_t at = up_to(s, segment.address);
    s->segment = mem_grow(s->segment, &s->capacity, s->count + 1, sizeof *s->segment);
    memmove(&s->segment[at + 1], &s->segment[at], (s->count - at) * sizeof *s->segment);
    s->segment[at] = segment;
    s->count++;
    s->total += segment.size;
    return &s->segment[at];
}

static struct segment *add(struct segments *s, struct segment segment)
{
    struct segment *added = insert(s, segment);
    tell(s, "segment_alloc", segment.address, segment.size, segment.stream);
    return added;
}

static void drop(struct segments *s, size_t at)
{
    s->total -= s->segment[at].size;
    s->count--;
    memmove(&s->segment[at], &s->segment[at + 1], (s->count - at) * sizeof *s->segment);
}

static void give_up(struct segments *s, size_t at)
{
    tell(s, "segment_free", s->segment[at].address, s->segment[at].size, s->segment[at].stream);
    drop(s, at);
}

static void add_made_up(struct segments *s, uint64_t size)
{
    uint64_t end = s->count ? end_of(&s->segment[s->count - 1]) : 0;
    add(s, (struct segment){.address = round_up(MAX(end, s->beyond)), .size = size, .is_made_up = true});
}

/* True if `excess` bytes are better taken from x than from y. Preference: a segment without a recorded call, one of
 * exactly that size, a made-up one, the largest that fits, the smallest that does not. */
static bool is_better(const struct segment *x, const struct segment *y, uint64_t excess)
{
    if (!x->area != !y->area) return !x->area;
    if ((x->size == excess) != (y->size == excess)) return x->size == excess;
    if (x->is_made_up != y->is_made_up) return x->is_made_up;
    if ((x->size <= excess) != (y->size <= excess)) return x->size <= excess;
    return x->size <= excess ? x->size > y->size : x->size < y->size;
}

/* Returns the index of the best segment without a block to take `excess` bytes from; s->count if there is none. */
static size_t find_empty(const struct segments *s, uint64_t excess)
{
    size_t best = s->count;
    for (size_t i = 0; i < s->count; i++)
        if (!s->segment[i].live && (best == s->count || is_better(&s->segment[i], &s->segment[best], excess))) best = i;
    return best;
}

void segments_shrink(struct segments *s, uint64_t reserved)
{
    while (s->total > reserved) {
        uint64_t excess = s->total - reserved;
        size_t at = find_empty(s, excess);
        if (at == s->count) return;
        struct segment *segment = &s->segment[at];
        if (segment->size <= excess) {
            give_up(s, at);
        } else {
            segment->size -= excess;
            segment->area = SEGMENT_GUESSED;
            s->total -= excess;
            tell(s, "segment_unmap", end_of(segment), excess, segment->stream);
        }
    }
}

void segments_settle(struct segments *s, uint64_t reserved)
{
    uint64_t known = MIN(reserved, SEGMENTS_LIMIT);
    segments_shrink(s, known);
    if (s->total < known) add_made_up(s, known - s->total);
}

/* Returns the total size of the segments without a block whose place may be another. */
static uint64_t spare(const struct segments *s)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < s->count; i++) sum += s->segment[i].live || s->segment[i].area ? 0 : s->segment[i].size;
    return sum;
}

/* Adds a segment for a block that lies in none. */
static struct segment *place(struct segments *s, uint64_t address, uint64_t bytes, uint64_t reserved, uint64_t stream)
{
    uint64_t grown = reserved > s->total ? reserved - s->total : 0, size = grown, from = address;
    size_t at = up_to(s, address);
    if (grown < bytes) {
        uint64_t below = at ? end_of(&s->segment[at - 1]) : 0;
        uint64_t most = grown + spare(s);
        from = MAX(address / SEGMENT_GRAIN * SEGMENT_GRAIN, below);
        size = segment_usual_size(bytes);
        if (from + size < address + bytes) size = round_up(address + bytes - from);
        if (size > most) {
            from = address;
            size = MAX(bytes, MIN(segment_usual_size(bytes), most));
        }
        segments_shrink(s, reserved > size ? reserved - size : 0);
        at = up_to(s, address);
    }
    if (at < s->count && s->segment[at].address - from < size) size = s->segment[at].address - from;
    return add(s, (struct segment){.address = from, .size = size, .stream = stream});
}

static bool goes_on(const struct segments *s, size_t at)
{
    return at + 1 < s->count && segment_goes_on(&s->segment[at], &s->segment[at + 1]);
}

/* Extends a segment up to an address: maps the gaps behind it and absorbs the segments that follow. */
static void extend(struct segments *s, size_t at, uint64_t end)
{
    while (end_of(&s->segment[at]) < end) {
        uint64_t from = end_of(&s->segment[at]), to = end;
        bool meets = at + 1 < s->count && s->segment[at + 1].address < end;
        if (meets) to = s->segment[at + 1].address;
        if (to > from) tell(s, "segment_map", from, to - from, s->segment[at].stream);
        s->segment[at].size += to - from;
        s->total += to - from;
        if (meets) {
            struct segment next = s->segment[at + 1];
            drop(s, at + 1);
            s->segment[at].size += next.size;
            s->segment[at].live += next.live;
            s->total += next.size;
        }
    }
}

void segments_give(struct segments *s, uint64_t address, uint64_t bytes, uint64_t reserved, uint64_t stream)
{
    reserved = MIN(reserved, SEGMENTS_LIMIT);
    struct segment *segment = find(s, address);
    if (!segment) segment = place(s, address, bytes, reserved, stream);
    size_t at = (size_t)(segment - s->segment);
    for (s->segment[at].live++; end_of(&s->segment[at]) < address + bytes && goes_on(s, at);) s->segment[++at].live++;
    extend(s, at, address + bytes);
    segments_settle(s, reserved);
}

void segments_forget(struct segments *s, uint64_t address, uint64_t bytes)
{
    struct segment *segment = find(s, address);
    for (size_t at = segment ? (size_t)(segment - s->segment) : s->count; at < s->count; at++) {
        if (s->segment[at].live) s->segment[at].live--;
        if (end_of(&s->segment[at]) >= address + bytes || !goes_on(s, at)) return;
    }
}

bool segments_know(const struct segments *s, uint64_t address)
{
    const struct segment *segment = find(s, address);
    return segment && segment->area;
}

bool segments_hold(struct segments *s, uint64_t address, uint64_t size, uint32_t area, uint64_t stream)
{
    for (;;) {
        size_t at = up_to(s, address + size - 1);
        if (!at || end_of(&s->segment[at - 1]) <= address) break;
        if (s->segment[at - 1].live) return false;
        give_up(s, at - 1);
    }
    insert(s, (struct segment){.address = address, .size = size, .area = area, .stream = stream});
    return true;
}

bool segments_release(struct segments *s, uint64_t address)
{
    size_t at = up_to(s, address);
    if (!at || s->segment[at - 1].address != address || !s->segment[at - 1].area) return false;
    drop(s, at - 1);
    return true;
}
