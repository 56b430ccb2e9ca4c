/* grants.c - follows the memory that calls of CUDA give and take, and finds the pieces that an allocator uses.
 *
 * A piece is what cudaMalloc gave, or one mapping of cuMemMap. An allocator uses a piece if it gave out a block that lies
 * in it, or, of a mapping, in another mapping to the same reserved addresses. A piece where another one lies already
 * means that the call that freed the older one was not recorded: the older one has ended.
 */
#include "ask/ops/grants.h"

#include <stdlib.h>

#include "ask/ops/segments.h"
#include "base/sets/sorted_list.h"
#include "model/memory/kinds.h"

/* A range of addresses in use. Ranges of a set do not overlap. */
struct place {
    uint64_t address, bytes;
    uint32_t number; /* of a piece its grant; of reserved addresses their area; of a use its place in `block` */
};

struct user {
    int64_t device;
    uint64_t stream;
};

/* A block may lie in any number of pieces, and come and go. So `uses` has the last block at each address, and a piece that
 * ends looks there for its own. */
struct finding {
    struct grants *grants;
    const struct process *process;
    const uint32_t *block;             /* by time */
    struct sorted pieces, areas, uses; /* struct place */
    uint32_t *last_of_area;            /* from SEGMENT_MAPPED on: place in `block` + 1 of the last block; 0: none */
    size_t areas_known, area_capacity;
};

/* ---- ranges of addresses ---- */

static uint64_t end_of(const struct place *place)
{
    return place->address + place->bytes;
}

/* Returns the first range that ends above an address; NULL if there is none. */
static struct place *from(const struct sorted *places, uint64_t address)
{
    struct place *place = sorted_up_to(places, &address);
    return place && end_of(place) > address ? place : sorted_above(places, &address);
}

/* Returns the first range that has an address of a stretch; NULL if there is none. */
static struct place *within(const struct sorted *places, uint64_t address, uint64_t bytes)
{
    struct place *place = from(places, address);
    return place && place->address < address + bytes ? place : NULL;
}

static void drop(struct sorted *places, uint64_t address)
{
    sorted_remove(places, &address);
}

/* ---- pieces ---- */

static uint32_t add_grant(struct finding *f, struct grant grant)
{
    struct grants *g = f->grants;
    g->grant = mem_grow(g->grant, &g->capacity, g->count + 1, sizeof *g->grant);
    if (!grant.is_taken) grant.given = (uint32_t)g->count;
    g->grant[g->count] = grant;
    return (uint32_t)g->count++;
}

/* Removes the uses from a stretch of addresses; returns the last of their blocks + 1, 0 if there is none. */
static uint32_t take_uses(struct finding *f, uint64_t address, uint64_t bytes)
{
    uint32_t last = 0;
    for (const struct place *found; (found = within(&f->uses, address, bytes));) {
        const struct place use = *found;
        const struct place behind = {address + bytes, end_of(&use) - (address + bytes), use.number};
        drop(&f->uses, use.address);
        if (use.address < address)
            sorted_insert(&f->uses, &(struct place){use.address, address - use.address, use.number});
        if (end_of(&use) > behind.address) sorted_insert(&f->uses, &behind);
        last = MAX(last, use.number + 1);
    }
    return last;
}

/* Returns whose block has a place in `block`, which is one less than `last`; nobody's if that is 0. */
static struct user user_of(const struct finding *f, uint32_t last)
{
    const struct blocks *b = &f->process->blocks;
    if (!last) return (struct user){.device = DEVICE_OTHER};
    return (struct user){b->device[f->block[last - 1]], b->other[f->block[last - 1]]};
}

/* Notes whose allocator used a piece last, for the piece and its area. */
static void note_last_user(struct finding *f, const struct place *piece)
{
    struct grant *grant = &f->grants->grant[piece->number];
    const uint32_t last = take_uses(f, piece->address, piece->bytes);
    const struct user user = user_of(f, last);
    grant->device = user.device;
    grant->stream = user.stream;
    if (grant->area >= SEGMENT_MAPPED) {
        uint32_t *of_area = &f->last_of_area[grant->area - SEGMENT_MAPPED];
        *of_area = MAX(*of_area, last);
    }
}

static void take_back(struct finding *f, struct place piece, uint32_t row)
{
    struct grant grant = f->grants->grant[piece.number];
    grant.time = f->process->grants.time[row];
    grant.row = row;
    grant.is_taken = true;
    note_last_user(f, &piece);
    add_grant(f, grant);
    drop(&f->pieces, piece.address);
}

/* Takes back every piece that overlaps a range. */
static void take_back_all(struct finding *f, uint64_t address, uint64_t bytes, uint32_t row)
{
    for (const struct place *piece; (piece = within(&f->pieces, address, bytes));) take_back(f, *piece, row);
}

static void give_block(struct finding *f, uint32_t row)
{
    const struct blocks *b = &f->process->grants;
    uint64_t address = b->address[row], bytes = (uint64_t)b->bytes[row];
    uint32_t area = SEGMENT_WHOLE;
    if (b->kind[row] == BLOCK_MAPPED) {
        const struct place *reserved = within(&f->areas, address, 1);
        area = reserved ? reserved->number : SEGMENT_MAPPED;
    }
    take_back_all(f, address, bytes, row);
    take_uses(f, address, bytes);
    const struct grant grant = {
        .time = b->time[row], .address = address, .bytes = bytes, .device = DEVICE_OTHER, .row = row, .area = area};
    const struct place piece = {address, bytes, add_grant(f, grant)};
    sorted_insert(&f->pieces, &piece);
}

/* ---- reserved addresses ---- */

static uint32_t new_area(struct finding *f)
{
    f->last_of_area = mem_grow(f->last_of_area, &f->area_capacity, f->areas_known + 1, sizeof *f->last_of_area);
    f->last_of_area[f->areas_known] = 0;
    return (uint32_t)(SEGMENT_MAPPED + f->areas_known++);
}

static void reserve(struct finding *f, uint32_t row)
{
    const struct blocks *b = &f->process->grants;
    const struct place area = {b->address[row], (uint64_t)b->bytes[row], new_area(f)};
    for (const struct place *old; (old = within(&f->areas, area.address, area.bytes));) drop(&f->areas, old->address);
    sorted_insert(&f->areas, &area);
}

/* ---- the calls and the blocks ---- */

static void follow_call(struct finding *f, uint32_t row)
{
    const struct blocks *b = &f->process->grants;
    uint64_t address = b->address[row];
    bool gives = b->bytes[row] > 0;
    uint64_t bytes = gives ? (uint64_t)b->bytes[row] : b->other[row];
    if (!segments_can_hold(address, bytes)) return;
    if (b->kind[row] == BLOCK_RESERVED) {
        if (gives) reserve(f, row);
        else drop(&f->areas, address);
    } else if (gives) {
        give_block(f, row);
    } else if (b->kind[row] == BLOCK_MAPPED) {
        take_back_all(f, address, bytes, row);
    } else {
        const struct place *piece = within(&f->pieces, address, 1);
        if (piece && piece->address == address) take_back(f, *piece, row);
    }
}

/* Notes a block as the last one at its addresses. Those without a piece do not matter: a new piece begins unused. */
static void use(struct finding *f, size_t at)
{
    const struct blocks *b = &f->process->blocks;
    const size_t block = f->block[at];
    if (!f->pieces.count || b->bytes[block] <= 0 || b->device[block] < 0) return;
    const struct place place = {b->address[block], (uint64_t)b->bytes[block], (uint32_t)at};
    if (!segments_can_hold(place.address, place.bytes)) return;
    take_uses(f, place.address, place.bytes);
    sorted_insert(&f->uses, &place);
}

/* Gives each grant its device and stream. Mappings outside of known reservations share the first area: each has only its
 * own. */
static void settle_users(struct finding *f)
{
    struct grants *g = f->grants;
    for (const struct place *piece = from(&f->pieces, 0); piece; piece = sorted_above(&f->pieces, &piece->address))
        note_last_user(f, piece);
    for (size_t i = 0; i < g->count; i++) {
        struct grant *grant = &g->grant[i];
        struct user user = {g->grant[grant->given].device, g->grant[grant->given].stream};
        if (grant->area > SEGMENT_MAPPED) user = user_of(f, f->last_of_area[grant->area - SEGMENT_MAPPED]);
        grant->device = user.device;
        grant->stream = user.stream;
    }
}

static int grants_by_time(const void *a, const void *b, void *context)
{
    const struct blocks *blocks = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int order = by_number(blocks->time[x], blocks->time[y]);
    return order ? order : by_number(x, y);
}

void grants_find(struct grants *grants, const struct process *process, const uint32_t *block, size_t blocks,
                 int64_t until)
{
    const struct blocks *b = &process->grants;
    size_t rows = b->table.count, next = 0;
    uint32_t *row = mem_zero(rows + 1, sizeof *row);
    const struct sorted places = {.item = sizeof(struct place), .words = 1};
    struct finding f = {
        .grants = grants, .process = process, .block = block, .pieces = places, .areas = places, .uses = places};
    *grants = (struct grants){0};
    new_area(&f);
    for (size_t i = 0; i < rows; i++) row[i] = (uint32_t)i;
    if (rows) qsort_r(row, rows, sizeof *row, grants_by_time, (void *)b);
    for (size_t i = 0; i < rows && b->time[row[i]] <= until; i++) {
        while (next < blocks && process->blocks.time[block[next]] < b->time[row[i]]) use(&f, next++);
        follow_call(&f, row[i]);
    }
    while (next < blocks) use(&f, next++);
    settle_users(&f);
    free(row);
    sorted_free(&f.pieces);
    sorted_free(&f.areas);
    sorted_free(&f.uses);
    free(f.last_of_area);
}

void grants_free(struct grants *grants)
{
    free(grants->grant);
    *grants = (struct grants){0};
}
