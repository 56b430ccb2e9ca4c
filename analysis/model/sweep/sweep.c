/* sweep.c - merges the operators and blocks of a trace's chunks by time.
 *
 * A heap has the open chunks, by their next item. A chunk is opened before the first item that is not earlier than the
 * chunk's first moment. Another thread reads the chunks ahead, in that order.
 */
#include "model/sweep/sweep.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "model/load/load.h"

/* Traces that stay open; a run of more processes is held as before. */
enum { MOST_DESCRIPTORS = 512, AHEAD = 16 /* chunks */ };

struct place {
    int64_t first; /* nanoseconds */
    uint32_t piece;
    uint32_t op, block;
    uint32_t records; /* operators and blocks that are asked for */
};

/* An open chunk. Behind its operators and its blocks there is one of the time INT64_MAX, which no record has. */
struct open_chunk {
    int64_t time; /* of its next item; INT64_MAX: it has none */
    bool at_block;
    struct swept_op *op;
    size_t ops, op_capacity;
    struct swept_block *block;
    size_t blocks, block_capacity;
    const struct swept_op *next_op;
    const struct swept_block *next_block;
    struct open_chunk *next_free;
};

struct sweep {
    struct load load;
    struct clock clock; /* shares the readings of the process's */
    struct clock_stretch stretch;
    struct sweep_wants wants;
    struct place *place;
    size_t places, next; /* next: the next one to open */
    bool reads_ahead;
    pthread_t reader;
    pthread_mutex_t lock; /* of all that follows up to `unused` */
    pthread_cond_t changed;
    struct open_chunk *ready[AHEAD]; /* a ring: that of place `next` is at next % AHEAD */
    size_t read;                     /* places read so far */
    bool stops;
    struct open_chunk *unused;
    struct open_chunk **heap;
    size_t open, capacity;
    bool given;    /* the top's next item was given out */
    int64_t limit; /* items of the top that are earlier come before all others */
    uint64_t bad;
};

bool can_sweep(const struct process *p, const struct trace *trace, struct needs needs)
{
    return !p->works.table.count && !p->spans.table.count && !p->graphs.nodes && !p->blocks.table.count &&
           !p->tensors.uses && !p->in_file.has_others && !(needs.stream == STREAM_UNLINKED && p->in_file.is_linked) &&
           p->in_file.ops + p->in_file.blocks < UINT32_MAX / 2 && trace->fd < MOST_DESCRIPTORS;
}

/* ---- sorting a chunk ---- */

static int op_before(const void *a, const void *b)
{
    const struct swept_op *x = a, *y = b;
    int nesting = outer_first(x->start, x->end, y->start, y->end);
    return nesting ? nesting : by_number(x->order, y->order);
}

static int block_before(const void *a, const void *b)
{
    const struct swept_block *x = a, *y = b;
    return x->time != y->time ? by_number(x->time, y->time) : by_number(x->order, y->order);
}

/* Operators are recorded when they end, so that few are far from their place. Many moves are left to qsort. */
static void sort_ops(struct swept_op *op, size_t count)
{
    size_t moves = 16 * count;
    for (size_t i = 1; i < count; i++) {
        if (op[i - 1].start < op[i].start) continue;
        size_t to = i;
        for (; to && moves && op_before(&op[to - 1], &op[i]) > 0; to--) moves--;
        if (!moves) {
            qsort(op, count, sizeof *op, op_before);
            return;
        }
        if (to == i) continue;
        struct swept_op late = op[i];
        memmove(&op[to + 1], &op[to], (i - to) * sizeof *op);
        op[to] = late;
    }
}

/* Blocks of a chunk are in order already, unless a signal came in between or the file is damaged. */
static void sort_blocks(struct swept_block *block, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (block[i - 1].time <= block[i].time) continue;
        qsort(block, count, sizeof *block, block_before);
        return;
    }
}

/* ---- reading a chunk ---- */

static int64_t ns(struct sweep *s, uint64_t ticks)
{
    return clock_ns_near(&s->clock, &s->stretch, ticks);
}

static void read_ops(struct sweep *s, struct open_chunk *c, uint32_t order)
{
    struct load *load = &s->load;
    const uint64_t *name = load_column(load, COL_op_name), *time = load_column(load, COL_op_time);
    const uint64_t *duration = load_column(load, COL_op_duration), *flops = load_column(load, COL_op_flops);
    const uint64_t *shapes = s->wants.op_shapes ? load_column(load, COL_op_shapes) : NULL;
    const uint64_t *modules = s->wants.op_modules ? load_column(load, COL_op_modules) : NULL;
    const uint64_t *stack = s->wants.op_stacks ? load_column(load, COL_op_stack) : NULL;
    const uint64_t *scope = s->wants.op_scopes ? load_column(load, COL_op_scope) : NULL;
    uint32_t rows = load_rows(load);
    c->op = mem_grow(c->op, &c->op_capacity, c->ops + rows, sizeof *c->op);
    for (uint32_t i = 0; i < rows; i++) {
        struct swept_op *op = &c->op[c->ops];
        op->start = ns(s, time[i]);
        op->end = ns(s, (uint64_t)load_end(time[i], duration[i]));
        op->flops = flops[i];
        op->order = order + (uint32_t)c->ops;
        op->thread = load->piece->thread;
        op->name = i && name[i] == name[i - 1] ? op[-1].name : load_name(load, name[i]);
        op->shapes = shapes ? load_name(load, shapes[i]) : NAME_NONE;
        op->modules = modules ? load_name(load, modules[i]) : NAME_NONE;
        op->stack = stack ? load_stack(load, stack[i]) : NAME_NONE;
        op->scope = scope ? (uint32_t)scope[i] : 0;
        c->ops++;
    }
}

static void read_blocks(struct sweep *s, struct open_chunk *c, uint32_t order)
{
    struct load *load = &s->load;
    const uint64_t *time = load_column(load, COL_memory_time), *bytes = load_column(load, COL_memory_bytes);
    const uint64_t *device = load_column(load, COL_memory_device);
    bool places = s->wants.block_places;
    const uint64_t *allocator = places ? load_column(load, COL_memory_allocator) : NULL;
    const uint64_t *address = places ? load_column(load, COL_memory_address) : NULL;
    const uint64_t *allocated = places ? load_column(load, COL_memory_allocated) : NULL;
    const uint64_t *reserved = places ? load_column(load, COL_memory_reserved) : NULL;
    const uint64_t *stack = s->wants.block_stacks ? load_column(load, COL_memory_stack) : NULL;
    uint32_t rows = load_rows(load), name = NAME_NONE;
    uint8_t kind = BLOCK_NONE;
    c->block = mem_grow(c->block, &c->block_capacity, c->blocks + rows, sizeof *c->block);
    for (uint32_t i = 0; i < rows; i++) {
        struct swept_block *b = &c->block[c->blocks]; /* field by field: a whole one is written twice */
        b->time = ns(s, time[i]);
        b->bytes = (int64_t)bytes[i];
        b->device = (int64_t)device[i];
        b->order = order + (uint32_t)c->blocks;
        b->thread = load->piece->thread;
        c->blocks++;
        if (!places) continue;
        if (!i || allocator[i] != allocator[i - 1]) {
            name = load_name(load, allocator[i]);
            kind = load_block_kind(load, name);
        }
        b->address = address[i];
        b->allocated = allocated[i];
        b->reserved = reserved[i];
        b->other = 0;
        b->allocator = name;
        b->stack = stack ? load_stack(load, stack[i]) : NAME_NONE;
        b->kind = kind;
    }
}

/* Reads the operators and blocks of a chunk that the loading has read before. */
static void read_place(struct sweep *s, struct open_chunk *c, const struct place *place)
{
    struct load *load = &s->load;
    struct chunk chunk;
    load->piece = &load->trace->piece[place->piece];
    if (!reader_again(&load->reader, load->piece, &chunk)) {
        s->bad += place->records;
        return;
    }
    for (unsigned g = 0; g < chunk.groups; g++) {
        struct group *group = load->group = &chunk.group[g];
        bool is_op = group->number == TFI_KIND_op && s->wants.ops;
        bool is_block = group->number == TFI_KIND_memory && s->wants.blocks;
        if (!group->kind || !(is_op || is_block)) continue;
        if (!load_left_rows(load)) continue; /* the loading counted it */
        if (is_op) read_ops(s, c, place->op);
        else read_blocks(s, c, place->block);
        s->bad += group->damaged ? group->count : 0;
    }
    sort_ops(c->op, c->ops);
    sort_blocks(c->block, c->blocks);
}

/* Reads a chunk, and ends its items. */
static void fill(struct sweep *s, struct open_chunk *c, const struct place *place)
{
    c->ops = c->blocks = 0;
    read_place(s, c, place);
    c->op = mem_grow(c->op, &c->op_capacity, c->ops + 1, sizeof *c->op);
    c->op[c->ops].start = INT64_MAX;
    c->block = mem_grow(c->block, &c->block_capacity, c->blocks + 1, sizeof *c->block);
    c->block[c->blocks].time = INT64_MAX;
    c->next_op = c->op;
    c->next_block = c->block;
}

/* ---- reading ahead ---- */

static void release(struct sweep *s, struct open_chunk *chunk)
{
    mem_hold(&s->lock);
    chunk->next_free = s->unused;
    s->unused = chunk;
    mem_release(&s->lock);
}

static struct open_chunk *read_next(struct sweep *s, size_t place)
{
    mem_hold(&s->lock);
    struct open_chunk *chunk = s->unused;
    s->unused = chunk ? chunk->next_free : NULL;
    mem_release(&s->lock);
    if (!chunk) chunk = mem_zero(1, sizeof *chunk);
    fill(s, chunk, &s->place[place]);
    return chunk;
}

static void *read_ahead(void *argument)
{
    struct sweep *s = argument;
    for (size_t place = 0; place < s->places; place++) {
        struct open_chunk *chunk = read_next(s, place);
        mem_hold(&s->lock);
        while (s->read - s->next == AHEAD && !s->stops) pthread_cond_wait(&s->changed, &s->lock);
        bool stops = s->stops;
        if (!stops) s->ready[s->read++ % AHEAD] = chunk;
        if (s->read - s->next == 1) pthread_cond_signal(&s->changed); /* the other thread may wait for it */
        mem_release(&s->lock);
        if (stops) {
            release(s, chunk);
            break;
        }
    }
    return NULL;
}

/* Waits for the chunk of the next place. */
static struct open_chunk *take_ready(struct sweep *s)
{
    mem_hold(&s->lock);
    while (s->read == s->next) pthread_cond_wait(&s->changed, &s->lock);
    struct open_chunk *chunk = s->ready[s->next % AHEAD];
    s->next++;
    if (s->read - s->next == AHEAD / 2) pthread_cond_signal(&s->changed); /* the reader waits while the ring is full */
    mem_release(&s->lock);
    return chunk;
}

static void stop_reading(struct sweep *s)
{
    if (!s->reads_ahead) return;
    mem_hold(&s->lock);
    s->stops = true;
    pthread_cond_signal(&s->changed);
    mem_release(&s->lock);
    pthread_join(s->reader, NULL);
    while (s->next < s->read) release(s, s->ready[s->next++ % AHEAD]);
}

/* ---- the heap of open chunks ---- */

/* Finds the time of the chunk's next item. */
static void find_next_time(struct open_chunk *c)
{
    int64_t op = c->next_op->start, block = c->next_block->time;
    c->at_block = block < op;
    c->time = MIN(block, op);
}

static bool is_before(const struct open_chunk *x, const struct open_chunk *y)
{
    if (x->time != y->time) return x->time < y->time;
    if (x->at_block != y->at_block) return y->at_block;
    return (x->at_block ? block_before(x->next_block, y->next_block) : op_before(x->next_op, y->next_op)) < 0;
}

static void sink(struct sweep *s, size_t at)
{
    struct open_chunk *chunk = s->heap[at];
    for (size_t child; (child = 2 * at + 1) < s->open; at = child) {
        child += child + 1 < s->open && is_before(s->heap[child + 1], s->heap[child]);
        if (!is_before(s->heap[child], chunk)) break;
        s->heap[at] = s->heap[child];
    }
    s->heap[at] = chunk;
}

static void rise(struct sweep *s, size_t at)
{
    struct open_chunk *chunk = s->heap[at];
    for (; at && is_before(chunk, s->heap[(at - 1) / 2]); at = (at - 1) / 2) s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = chunk;
}

/* Opens the next place. */
static void open_place(struct sweep *s)
{
    struct open_chunk *chunk = s->reads_ahead ? take_ready(s) : read_next(s, s->next++);
    find_next_time(chunk);
    if (chunk->time == INT64_MAX) {
        release(s, chunk);
        return;
    }
    s->heap = mem_grow(s->heap, &s->capacity, s->open + 1, sizeof *s->heap);
    s->heap[s->open++] = chunk;
    rise(s, s->open - 1);
}

/* Steps behind the item that was given out. */
static void step(struct open_chunk *top)
{
    if (top->at_block) top->next_block++;
    else top->next_op++;
    find_next_time(top);
}

/* Returns the time of the first item that is not in the top: in another open chunk, or in the next place. */
static int64_t first_elsewhere(const struct sweep *s)
{
    int64_t first = s->next < s->places ? s->place[s->next].first : INT64_MAX;
    for (size_t i = 1; i < MIN(s->open, 3); i++) first = MIN(first, s->heap[i]->time);
    return first;
}

static struct swept item_of(const struct open_chunk *top)
{
    return (struct swept){.op = top->at_block ? NULL : top->next_op, .block = top->at_block ? top->next_block : NULL};
}

/* Gives the next item of any chunk. The top has stepped behind the one before. */
static __attribute__((noinline)) bool give_of_all(struct sweep *s, struct swept *swept)
{
    if (s->given && s->heap[0]->time == INT64_MAX) {
        release(s, s->heap[0]);
        s->heap[0] = s->heap[--s->open];
    }
    if (s->given && s->open) sink(s, 0);
    s->given = false;
    while (s->next < s->places && (!s->open || s->place[s->next].first <= s->heap[0]->time)) open_place(s);
    if (!s->open) return false;
    s->limit = first_elsewhere(s);
    *swept = item_of(s->heap[0]);
    return s->given = true;
}

/* ---- times ---- */

static bool lies_in(const struct intervals *when, int64_t first, int64_t last)
{
    size_t at = intervals_after(when, first);
    return at < when->count && when->interval[at].start <= last;
}

void sweep_widen(const struct process *process, struct intervals *when)
{
    const struct tables_in_file *u = &process->in_file;
    struct clock clock = process->clock; /* shares its readings */
    struct intervals chunks = {0};
    for (size_t i = 0; i < u->count; i++) {
        int64_t first = clock_ns(&clock, u->piece[i].first), last = clock_ns(&clock, u->piece[i].last);
        if (lies_in(when, first, last)) intervals_add_merging(&chunks, first, add_ns(last, 1));
    }
    intervals_merge(&chunks);
    struct intervals both = intervals_union(when, &chunks);
    intervals_free(&chunks);
    intervals_free(when);
    *when = both;
}

/* ---- interface ---- */

static int by_first(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->first != y->first ? by_number(x->first, y->first) : by_number(x->piece, y->piece);
}

struct sweep *sweep_open(const struct process *process, struct names *names, struct sweep_wants wants, bool ahead)
{
    const struct tables_in_file *u = &process->in_file;
    struct sweep *s = mem_zero(1, sizeof *s);
    s->load.trace = s->load.reader.trace = u->trace;
    s->load.names = names;
    s->load.needs = u->needs;
    s->load.reader.decoder.skips_order = true;
    s->clock = process->clock;
    s->wants = wants;
    s->place = mem_zero(u->count, sizeof *s->place);
    for (size_t i = 0; i < u->count; i++) {
        const struct chunk_in_file *p = &u->piece[i];
        uint32_t records = (wants.ops ? ops_in_chunk(u, i) : 0) + (wants.blocks ? blocks_in_chunk(u, i) : 0);
        int64_t first = ns(s, p->first);
        if (!records || (wants.when && !lies_in(wants.when, first, ns(s, p->last)))) continue;
        s->place[s->places++] = (struct place){first, p->piece, p->op, p->block, records};
    }
    qsort(s->place, s->places, sizeof *s->place, by_first);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->reads_ahead = ahead && pthread_create(&s->reader, NULL, read_ahead, s) == 0;
    return s;
}

bool sweep_next(struct sweep *s, struct swept *swept)
{
    if (s->given) step(s->heap[0]);
    if (!s->given || s->heap[0]->time >= s->limit) return give_of_all(s, swept);
    *swept = item_of(s->heap[0]);
    return true;
}

void sweep_close(struct sweep *s)
{
    stop_reading(s);
    s->load.trace->unread += s->bad;
    for (size_t i = 0; i < s->open; i++) release(s, s->heap[i]);
    for (struct open_chunk *next, *at = s->unused; at; at = next) {
        next = at->next_free;
        free(at->op);
        free(at->block);
        free(at);
    }
    load_free(&s->load);
    free(s->heap);
    free(s->place);
    free(s);
}
