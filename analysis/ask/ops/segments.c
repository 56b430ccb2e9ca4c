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
 *
 * A block may lie in any number of pieces, and come and go. Its cost is log N all the same, because `uses` counts the
 * blocks of all pieces at once, and `ends` tells where the pieces in a row end. `empties` may have a piece that is in use,
 * which a search removes. It may lack a piece that became empty again. A search moves a few of these to `empties`, and
 * looks at the others one by one, until the looks have cost as much as the moves would. So a trace whose blocks make many
 * pieces of different sizes empty and used, again and again between searches, costs N for each search.
 */
#include "ask/ops/segments.h"

#include <stdlib.h>

#include "ask/ops/empties.h"
#include "base/util.h"

#define SMALL_MOST (1ull << 20)
#define MEDIUM_BELOW (10ull << 20)
#define MEDIUM_SEGMENT (20ull << 20)
#define MADE_UP_LIMIT (1ull << 63) /* no segment ends above it */
#define MOVES 8                    /* for each search */
#define LOOKS_PER_MOVE 64          /* they cost as much as a move */

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

static bool is_piece(const struct segment *segment)
{
    return segment->area >= SEGMENT_MAPPED;
}

/* ---- the segments, those without a block, and the ends of expandable ones ---- */

static int by_address(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

void segments_init(struct segments *s, struct extent *piece, size_t pieces)
{
    *s = (struct segments){.all = {.item = sizeof(struct segment), .words = 1},
                           .empties = {.item = EMPTIES_WORDS * sizeof(uint64_t), .words = EMPTIES_WORDS},
                           .ends = {.item = sizeof(uint64_t), .words = 1},
                           .piece = piece};
    if (pieces) qsort(piece, pieces, sizeof *piece, by_address);
    for (size_t i = 0; i < pieces; i++)
        if (!i || piece[i].address != piece[s->pieces - 1].address) piece[s->pieces++] = piece[i];
    if (pieces) tallies_init(&s->uses, s->pieces);
}

void segments_free(struct segments *s)
{
    sorted_free(&s->all);
    sorted_free(&s->empties);
    sorted_free(&s->ends);
    tallies_free(&s->uses);
    free(s->piece);
    s->piece = NULL;
}

/* Returns the last segment that begins at or before an address. */
static struct segment *up_to(const struct segments *s, uint64_t address)
{
    return sorted_up_to(&s->all, &address);
}

static struct segment *above(const struct segments *s, uint64_t address)
{
    return sorted_above(&s->all, &address);
}

const struct segment *segments_below(const struct segments *s, uint64_t address)
{
    return sorted_below(&s->all, &address);
}

/* Returns the segment that an address lies in. */
static struct segment *find_segment(const struct segments *s, uint64_t address)
{
    struct segment *segment = up_to(s, address);
    return segment && address < end_of(segment) ? segment : NULL;
}

/* Returns the number of the piece at an address, which calls gave. */
static size_t piece_at(const struct segments *s, uint64_t address)
{
    size_t low = 0, high = s->pieces - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->piece[middle].address < address) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void tell(struct segments *s, const char *action, uint64_t address, uint64_t size, uint64_t stream)
{
    if (s->tell) s->tell(s->context, action, address, size, stream);
}

static bool is_in_use(const struct segments *s, const struct segment *segment)
{
    return is_piece(segment) ? tallies_value(&s->uses, segment->piece) > 0 : segment->live > 0;
}

static void add_empty(struct segments *s, const struct segment *segment)
{
    empties_add(&s->empties, segment);
    if (segment->area == SEGMENT_GUESSED) s->spare += segment->size;
}

static void remove_empty(struct segments *s, const struct segment *segment)
{
    empties_remove(&s->empties, segment);
    if (segment->area == SEGMENT_GUESSED) s->spare -= segment->size;
}

/* Keeps a piece out of the empties while it is in use. */
static void set_aside(struct segments *s, const struct segment *segment)
{
    if (tallies_watches(&s->uses, segment->piece)) return;
    remove_empty(s, segment);
    tallies_watch(&s->uses, segment->piece, true);
}

/* Notes whether another piece goes on after this one. */
static void note_end(struct segments *s, const struct segment *segment)
{
    if (!segment || !is_piece(segment)) return;
    const struct segment *next = above(s, segment->address);
    const uint64_t *end = sorted_from(&s->ends, &segment->address);
    bool ends = !next || !segment_goes_on(segment, next), is_noted = end && *end == segment->address;
    if (ends && !is_noted) sorted_insert(&s->ends, &segment->address);
    if (!ends && is_noted) sorted_remove(&s->ends, &segment->address);
}

/* Inserts a segment without a block. */
static struct segment *insert(struct segments *s, struct segment segment)
{
    if (is_piece(&segment)) {
        segment.piece = piece_at(s, segment.address);
        s->piece[segment.piece].size = segment.size;
        tallies_set(&s->uses, segment.piece, 0);
    }
    struct segment *inserted = sorted_insert(&s->all, &segment);
    s->total += segment.size;
    add_empty(s, &segment);
    if (is_piece(&segment)) {
        note_end(s, inserted);
        note_end(s, segments_below(s, segment.address));
    }
    return inserted;
}

static struct segment *add_segment(struct segments *s, struct segment segment)
{
    struct segment *added = insert(s, segment);
    tell(s, "segment_alloc", segment.address, segment.size, segment.stream);
    return added;
}

static void drop(struct segments *s, struct segment segment)
{
    s->total -= segment.size;
    if (is_piece(&segment)) {
        set_aside(s, &segment);
        tallies_watch(&s->uses, segment.piece, false);
        sorted_remove(&s->ends, &segment.address);
    } else if (!segment.live) {
        remove_empty(s, &segment);
    }
    sorted_remove(&s->all, &segment.address);
    if (is_piece(&segment)) note_end(s, segments_below(s, segment.address));
}

static void give_up(struct segments *s, struct segment segment)
{
    tell(s, "segment_free", segment.address, segment.size, segment.stream);
    drop(s, segment);
}

/* Places a segment beyond all others. After impossible totals there may be no addresses left. */
static void add_made_up(struct segments *s, uint64_t size)
{
    const struct segment *last = segments_below(s, UINT64_MAX);
    uint64_t address = round_up(MAX(last ? end_of(last) : 0, s->beyond));
    if (address > MADE_UP_LIMIT - size) return;
    add_segment(s, (struct segment){.address = address, .size = size, .is_made_up = true});
}

/* ---- changes of the total ---- */

/* Moves pieces that became empty to the empties, as many as may be moved. */
static void move_pieces(struct segments *s)
{
    for (s->moves += MOVES; s->moves; s->moves--) {
        size_t piece = tallies_zero(&s->uses);
        if (piece == TALLIES_NONE) return;
        tallies_watch(&s->uses, piece, false);
        add_empty(s, up_to(s, s->piece[piece].address));
    }
}

/* A search of the pieces that are empty, but not among the empties. */
struct search {
    const struct segments *segments;
    uint64_t excess;
    const struct extent *best;
    size_t looks;
};

static void look_at(void *context, size_t at)
{
    struct search *search = context;
    const struct extent *piece = &search->segments->piece[at];
    if (!search->best || empties_prefer(piece, search->best, search->excess)) search->best = piece;
    search->looks++;
}

/* Returns the best segment without a block to take `excess` bytes from; NULL if there is none. */
static struct segment *find_empty(struct segments *s, uint64_t excess)
{
    struct search search = {.segments = s, .excess = excess};
    struct extent found;
    if (empties_find(&s->empties, true, excess, &found)) return up_to(s, found.address);
    move_pieces(s);
    tallies_zeros(&s->uses, look_at, &search);
    s->moves += search.looks / LOOKS_PER_MOVE;
    while (empties_find(&s->empties, false, excess, &found)) {
        struct segment *segment = up_to(s, found.address);
        if (is_in_use(s, segment)) set_aside(s, segment);
        else
            return search.best && empties_prefer(search.best, &found, excess) ? up_to(s, search.best->address)
                                                                              : segment;
    }
    return search.best ? up_to(s, search.best->address) : NULL;
}

void segments_shrink(struct segments *s, uint64_t reserved)
{
    while (s->total > reserved) {
        uint64_t excess = s->total - reserved;
        const struct segment *found = find_empty(s, excess);
        if (!found) return;
        struct segment segment = *found;
        if (segment.size <= excess) {
            give_up(s, segment);
        } else {
            drop(s, segment);
            segment.size -= excess;
            segment.area = SEGMENT_GUESSED;
            insert(s, segment);
            tell(s, "segment_unmap", end_of(&segment), excess, segment.stream);
        }
    }
}

void segments_settle(struct segments *s, uint64_t reserved)
{
    uint64_t known = MIN(reserved, SEGMENTS_LIMIT);
    segments_shrink(s, known);
    if (s->total < known) add_made_up(s, known - s->total);
}

/* Adds a segment for a block that lies in none. */
static struct segment *place(struct segments *s, uint64_t address, uint64_t bytes, uint64_t reserved, uint64_t stream)
{
    uint64_t grown = reserved > s->total ? reserved - s->total : 0, size = grown, from = address;
    if (grown < bytes) {
        const struct segment *lower = up_to(s, address);
        uint64_t most = grown + s->spare;
        from = MAX(address / SEGMENT_GRAIN * SEGMENT_GRAIN, lower ? end_of(lower) : 0);
        size = segment_usual_size(bytes);
        if (from + size < address + bytes) size = round_up(address + bytes - from);
        if (size > most) {
            from = address;
            size = MAX(bytes, MIN(segment_usual_size(bytes), most));
        }
        segments_shrink(s, reserved > size ? reserved - size : 0);
    }
    const struct segment *next = above(s, address);
    if (next && next->address - from < size) size = next->address - from;
    return add_segment(s, (struct segment){.address = from, .size = size, .stream = stream});
}

/* ---- blocks ---- */

/* Adds to the number of blocks in the segment, and in the pieces that go on after it up to the one that `last` lies in.
 * Returns the last one of these. */
static struct segment *change_uses(struct segments *s, struct segment *segment, uint64_t last, int32_t number)
{
    if (is_piece(segment)) {
        const uint64_t *end = sorted_from(&s->ends, &segment->address);
        struct segment *to = up_to(s, MIN(last, *end));
        tallies_add(&s->uses, segment->piece, to->piece, number);
        return to;
    }
    if (!segment->live && number < 0) return segment;
    if (!segment->live) remove_empty(s, segment);
    segment->live += (uint32_t)number;
    if (!segment->live) add_empty(s, segment);
    return segment;
}

/* Extends a segment that is in use up to an address: maps the gaps behind it and absorbs the segments that follow. */
static void extend(struct segments *s, struct segment *segment, uint64_t end)
{
    if (end_of(segment) >= end) return;
    if (is_piece(segment)) set_aside(s, segment);
    while (end_of(segment) < end) {
        const struct segment *next = above(s, segment->address);
        uint64_t from = end_of(segment), to = end;
        bool meets = next && next->address < end;
        if (meets) to = next->address;
        if (to > from) tell(s, "segment_map", from, to - from, segment->stream);
        segment->size += to - from;
        s->total += to - from;
        if (meets) {
            const struct segment absorbed = *next;
            uint64_t live = is_piece(next) ? (uint64_t)tallies_value(&s->uses, next->piece) : next->live;
            drop(s, absorbed);
            segment = up_to(s, from - 1);
            segment->size += absorbed.size;
            s->total += absorbed.size;
            if (is_piece(segment)) tallies_add(&s->uses, segment->piece, segment->piece, (int64_t)live);
            else segment->live += (uint32_t)live;
        }
    }
    if (is_piece(segment)) s->piece[segment->piece].size = segment->size;
    note_end(s, segment);
}

void segments_give(struct segments *s, uint64_t address, uint64_t bytes, uint64_t reserved, uint64_t stream)
{
    reserved = MIN(reserved, SEGMENTS_LIMIT);
    struct segment *segment = find_segment(s, address);
    if (!segment) segment = place(s, address, bytes, reserved, stream);
    extend(s, change_uses(s, segment, address + bytes - 1, 1), address + bytes);
    segments_settle(s, reserved);
}

void segments_forget(struct segments *s, uint64_t address, uint64_t bytes)
{
    struct segment *segment = find_segment(s, address);
    if (segment) change_uses(s, segment, address + MAX(bytes, 1) - 1, -1);
}

bool segments_know(const struct segments *s, uint64_t address)
{
    const struct segment *segment = find_segment(s, address);
    return segment && segment->area;
}

bool segments_hold(struct segments *s, uint64_t address, uint64_t size, uint32_t area, uint64_t stream)
{
    for (;;) {
        const struct segment *last = up_to(s, address + size - 1);
        if (!last || end_of(last) <= address) break;
        if (is_in_use(s, last)) return false;
        give_up(s, *last);
    }
    insert(s, (struct segment){.address = address, .size = size, .area = area, .stream = stream});
    return true;
}

bool segments_release(struct segments *s, uint64_t address)
{
    const struct segment *segment = up_to(s, address);
    if (!segment || segment->address != address || !segment->area) return false;
    drop(s, *segment);
    return true;
}
