/* grants.c - follows the memory that calls of CUDA give and take, and finds the pieces that an allocator uses.
 *
 * A piece is what cudaMalloc gave, or one mapping of cuMemMap. An allocator uses a piece if it gave out a block that lies
 * in it, or, of a mapping, in another mapping to the same reserved addresses. A piece where another one lies already
 * means that the call that freed the older one was not recorded: the older one has ended.
 */
#include "ask/ops/grants.h"

#include <stdlib.h>
#include <string.h>

#include "ask/ops/segments.h"
#include "model/memory/kinds.h"

/* Ranges of addresses in use, sorted, without overlaps. */
struct place {
    uint64_t address, bytes;
    uint32_t number; /* of a piece its grant; of reserved addresses their area */
};

struct places {
    struct place *place;
    size_t count, capacity;
};

struct user {
    int64_t device;
    uint64_t stream;
};

struct finding {
    struct grants *grants;
    const struct process *process;
    struct places pieces, areas;
    struct user *user_of_area; /* from SEGMENT_MAPPED on */
    size_t areas_known, area_capacity;
};

/* ---- ranges of addresses ---- */

/* Returns the index of the first range that ends above an address. */
static size_t from(const struct places *p, uint64_t address)
{
    size_t low = 0, high = p->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->place[middle].address + p->place[middle].bytes <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Returns the range that an address lies in; NULL if there is none. */
static const struct place *place_of(const struct places *p, uint64_t address)
{
    size_t at = from(p, address);
    return at < p->count && p->place[at].address <= address ? &p->place[at] : NULL;
}

static void insert(struct places *p, struct place place)
{
    size_t at = from(p, place.address);
    p->place = mem_grow(p->place, &p->capacity, p->count + 1, sizeof *p->place);
    memmove(&p->place[at + 1], &p->place[at], (p->count - at) * sizeof *p->place);
    p->place[at] = place;
    p->count++;
}

static void drop(struct places *p, size_t at)
{
    p->count--;
    memmove(&p->place[at], &p->place[at + 1], (p->count - at) * sizeof *p->place);
}

/* ---- pieces ---- */

static uint32_t add(struct finding *f, struct grant grant)
{
    struct grants *g = f->grants;
    g->grant = mem_grow(g->grant, &g->capacity, g->count + 1, sizeof *g->grant);
    if (!grant.is_taken) grant.given = (uint32_t)g->count;
    g->grant[g->count] = grant;
    return (uint32_t)g->count++;
}

static void take_back(struct finding *f, size_t at, uint32_t row)
{
    struct grant grant = f->grants->grant[f->pieces.place[at].number];
    grant.time = f->process->grants.time[row];
    grant.row = row;
    grant.is_taken = true;
    add(f, grant);
    drop(&f->pieces, at);
}

/* Takes back every piece that overlaps a range. */
static void take_back_all(struct finding *f, uint64_t address, uint64_t bytes, uint32_t row)
{
    size_t at = from(&f->pieces, address);
    while (at < f->pieces.count && f->pieces.place[at].address < address + bytes) take_back(f, at, row);
}

static void give(struct finding *f, uint32_t row)
{
    const struct blocks *b = &f->process->grants;
    uint64_t address = b->address[row], bytes = (uint64_t)b->bytes[row];
    uint32_t area = SEGMENT_WHOLE;
    if (b->kind[row] == BLOCK_MAPPED) {
        const struct place *reserved = place_of(&f->areas, address);
        area = reserved ? reserved->number : SEGMENT_MAPPED;
    }
    take_back_all(f, address, bytes, row);
    const struct grant grant = {
        .time = b->time[row], .address = address, .bytes = bytes, .device = DEVICE_OTHER, .row = row, .area = area};
    insert(&f->pieces, (struct place){address, bytes, add(f, grant)});
}

/* ---- reserved addresses ---- */

static uint32_t new_area(struct finding *f)
{
    f->user_of_area = mem_grow(f->user_of_area, &f->area_capacity, f->areas_known + 1, sizeof *f->user_of_area);
    f->user_of_area[f->areas_known] = (struct user){.device = DEVICE_OTHER};
    return (uint32_t)(SEGMENT_MAPPED + f->areas_known++);
}

static void reserve(struct finding *f, uint32_t row)
{
    const struct blocks *b = &f->process->grants;
    uint64_t address = b->address[row], bytes = (uint64_t)b->bytes[row];
    size_t at = from(&f->areas, address);
    while (at < f->areas.count && f->areas.place[at].address < address + bytes) drop(&f->areas, at);
    insert(&f->areas, (struct place){address, bytes, new_area(f)});
}

static void unreserve(struct finding *f, uint64_t address)
{
    size_t at = from(&f->areas, address);
    if (at < f->areas.count && f->areas.place[at].address == address) drop(&f->areas, at);
}

/* ---- the calls and the blocks ---- */

static void take(struct finding *f, uint32_t row)
{
    const struct blocks *b = &f->process->grants;
    uint64_t address = b->address[row];
    bool gives = b->bytes[row] > 0;
    uint64_t bytes = gives ? (uint64_t)b->bytes[row] : b->other[row];
    if (!segments_can_hold(address, bytes)) return;
    if (b->kind[row] == BLOCK_RESERVED) {
        if (gives) reserve(f, row);
        else unreserve(f, address);
    } else if (gives) {
        give(f, row);
    } else if (b->kind[row] == BLOCK_MAPPED) {
        take_back_all(f, address, bytes, row);
    } else {
        size_t at = from(&f->pieces, address);
        if (at < f->pieces.count && f->pieces.place[at].address == address) take_back(f, at, row);
    }
}

/* Notes whose allocator uses the pieces that a block lies in, and for which stream. */
static void use(struct finding *f, size_t block)
{
    const struct blocks *b = &f->process->blocks;
    if (b->bytes[block] <= 0 || b->device[block] < 0) return;
    uint64_t address = b->address[block], bytes = (uint64_t)b->bytes[block];
    if (!segments_can_hold(address, bytes)) return;
    for (size_t at = from(&f->pieces, address); at < f->pieces.count && f->pieces.place[at].address < address + bytes;
         at++) {
        struct grant *grant = &f->grants->grant[f->pieces.place[at].number];
        const struct user user = {b->device[block], b->other[block]};
        grant->device = user.device;
        grant->stream = user.stream;
        if (grant->area >= SEGMENT_MAPPED) f->user_of_area[grant->area - SEGMENT_MAPPED] = user;
    }
}

/* Gives each grant its device and stream. Mappings outside of known reservations share the first area: each has only its
 * own. */
static void settle_users(struct finding *f)
{
    struct grants *g = f->grants;
    for (size_t i = 0; i < g->count; i++) {
        struct grant *grant = &g->grant[i];
        struct user user = {g->grant[grant->given].device, g->grant[grant->given].stream};
        if (grant->area > SEGMENT_MAPPED) user = f->user_of_area[grant->area - SEGMENT_MAPPED];
        grant->device = user.device;
        grant->stream = user.stream;
    }
}

static int by_time(const void *a, const void *b, void *context)
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
    struct finding f = {.grants = grants, .process = process};
    *grants = (struct grants){0};
    new_area(&f);
    for (size_t i = 0; i < rows; i++) row[i] = (uint32_t)i;
    if (rows) qsort_r(row, rows, sizeof *row, by_time, (void *)b);
    for (size_t i = 0; i < rows && b->time[row[i]] <= until; i++) {
        while (next < blocks && process->blocks.time[block[next]] < b->time[row[i]]) use(&f, block[next++]);
        take(&f, row[i]);
    }
    while (next < blocks) use(&f, block[next++]);
    settle_users(&f);
    free(row);
    free(f.pieces.place);
    free(f.areas.place);
    free(f.user_of_area);
}

void grants_free(struct grants *grants)
{
    free(grants->grant);
    *grants = (struct grants){0};
}
