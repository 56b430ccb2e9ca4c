/* holders.c - groups blocks by stage and call stack, and follows what each group holds. */
#include "ask/memory/holders.h"

#include <stdlib.h>
#include <string.h>

#include "ask/stages/order.h"
#include "model/frames.h"

static int by_bytes(const void *a, const void *b, void *names)
{
    const struct holder *x = a, *y = b;
    if (x->unfreed_bytes != y->unfreed_bytes) return x->unfreed_bytes > y->unfreed_bytes ? -1 : 1;
    if (x->outliving_bytes != y->outliving_bytes) return x->outliving_bytes > y->outliving_bytes ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    if (x->pool != y->pool) return x->pool < y->pool ? -1 : 1;
    if (x->stage != y->stage) return names_order(names, x->stage, y->stage);
    return stack_order(names, x->stack, y->stack);
}

static void sort(struct holder *holder, size_t count, const struct memory_walk *changes)
{
    if (count) qsort_r(holder, count, sizeof *holder, by_bytes, changes->reading->names);
}

/* ---- groups ---- */

static uint32_t holder_of(struct holders *h, uint32_t stage, uint32_t stack, uint32_t pool)
{
    uint64_t key = ((uint64_t)stage << 32 | stack) * 0x9e3779b97f4a7c15u ^ pool;
    uint32_t at;
    for (; (at = map_get(&h->of, key)) != MAP_NONE; key += 0x632be59bd9b4e019u) {
        const struct holder *there = &h->holder[at];
        if (there->stage == stage && there->stack == stack && there->pool == pool) return at;
    }
    h->holder = mem_grow(h->holder, &h->capacity, h->count + 1, sizeof *h->holder);
    h->holder[h->count] = (struct holder){.stage = stage, .stack = stack, .pool = pool};
    map_put(&h->of, key, (uint32_t)h->count);
    return (uint32_t)h->count++;
}

static bool on_device(const struct choice *choice, const struct memory_walk *changes,
                      const struct memory_change *change)
{
    return list_has(&choice->options->device, changes->pool[change->pool].device);
}

void holders_free(struct holders *holders)
{
    free(holders->holder);
    map_free(&holders->of);
    *holders = (struct holders){0};
}

/* ---- leaks ---- */

/* Maps the id of a range in pieces to its whole. */
static void map_wholes(struct map *whole_of, const struct process *process)
{
    const struct wholes *w = &process->wholes;
    for (size_t i = 0; i < w->table.count; i++)
        if (w->pieces[i] > 1) map_put(whole_of, process->ranges.id[w->range[i]], (uint32_t)i);
}

/* Returns the end of the call that a piece of a range belongs to. */
static int64_t end_of(const struct process *process, const struct map *whole_of, uint32_t range)
{
    uint32_t whole = whole_of->count ? map_get(whole_of, process->ranges.id[range]) : MAP_NONE;
    return call_time(process, range, whole).end;
}

/* The block's own stage decides how long it may live, also where --stage names a stage around it. */
static void begin_block(struct holders *h, const struct choice *choice, const struct map *whole_of,
                        const struct memory_walk *changes, const struct memory_change *change)
{
    const struct belonging at = memory_change_at(changes->reading, choice, change);
    struct memory_live *live = &changes->live[change->live];
    uint32_t stage;
    if (!on_device(choice, changes, change) || !choice_stage_name(choice, &at, &stage) ||
        !choice_moment(choice, change->time, at.time))
        return;
    live->holder = holder_of(h, stage, change->stack, change->pool);
    live->until = at.stage == NO_PLACE ? INT64_MAX : end_of(choice->process, whole_of, at.stage);
    live->in_stage = at.stage != NO_PLACE;
    h->holder[live->holder].blocks++;
    h->holder[live->holder].bytes += (uint64_t)change->bytes;
}

static void outlive(struct holder *h, const struct memory_live *block)
{
    h->outliving_blocks++;
    h->outliving_bytes += (uint64_t)block->bytes;
}

static void end_block(struct holders *h, const struct memory_live *block, int64_t time)
{
    if (block->holder != NO_PLACE && block->in_stage && time > block->until) outlive(&h->holder[block->holder], block);
}

/* A block that is in use at the end. */
static void leave_block(struct holders *h, const struct memory_live *block)
{
    if (block->is_free || block->holder == NO_PLACE) return;
    struct holder *holder = &h->holder[block->holder];
    if (block->in_stage) outlive(holder, block);
    holder->unfreed_blocks++;
    holder->unfreed_bytes += (uint64_t)block->bytes;
}

void memory_leaks(struct holders *leaks, const struct choice *choice, struct memory_walk *changes)
{
    const struct memory_change *change;
    struct map whole_of = {0};
    size_t kept = 0;
    *leaks = (struct holders){0};
    map_wholes(&whole_of, choice->process);
    while ((change = memory_walk_next(changes)) != NULL) {
        if (change->has_gone) end_block(leaks, &change->gone, change->time);
        if (change->bytes > 0) begin_block(leaks, choice, &whole_of, changes, change);
    }
    for (size_t i = 0; i < changes->lives; i++) leave_block(leaks, &changes->live[i]);
    for (size_t i = 0; i < leaks->count; i++)
        if (leaks->holder[i].outliving_blocks || leaks->holder[i].unfreed_blocks)
            leaks->holder[kept++] = leaks->holder[i];
    leaks->count = kept;
    sort(leaks->holder, kept, changes);
    map_free(&whole_of);
}

/* ---- refused requests ---- */

/* The last change of a pool. */
struct last_change {
    uint64_t number; /* from 1 on; 0: none */
    uint64_t allocated;
};

/* The stage of blocks that --stage leaves out. They are known too, so each pool has one holder for them. */
#define OTHER_STAGES NO_PLACE

/* Follows what the holders have in use, change by change. */
struct following {
    struct holders holders;
    struct memory_walk *changes;
    const struct memory_change *next; /* NULL: none */
    uint64_t number;
    struct last_change *last; /* by pool */
    size_t pools, capacity;
};

/* Adds or takes away a block. */
static void hold(struct holders *h, uint32_t holder, int64_t bytes, int sign)
{
    if (holder == NO_PLACE) return;
    h->holder[holder].blocks += (uint64_t)sign;
    h->holder[holder].bytes += (uint64_t)(sign * bytes);
}

static void note_last(struct following *f, const struct memory_change *change)
{
    if (f->changes->pools > f->pools) {
        f->last = mem_grow(f->last, &f->capacity, f->changes->pools, sizeof *f->last);
        memset(f->last + f->pools, 0, (f->changes->pools - f->pools) * sizeof *f->last);
        f->pools = f->changes->pools;
    }
    f->last[change->pool] = (struct last_change){++f->number, change->allocated};
}

static void follow(struct following *f, const struct choice *choice, int64_t until)
{
    for (; f->next && f->next->time <= until; f->next = memory_walk_next(f->changes)) {
        const struct memory_change *change = f->next;
        note_last(f, change);
        if (change->has_gone) hold(&f->holders, change->gone.holder, change->gone.bytes, -1);
        if (change->bytes <= 0 || !on_device(choice, f->changes, change)) continue;
        const struct belonging at = memory_change_at(f->changes->reading, choice, change);
        struct memory_live *live = &f->changes->live[change->live];
        uint32_t stage;
        live->holder = choice_stage_name(choice, &at, &stage)
                           ? holder_of(&f->holders, stage, change->stack, change->pool)
                           : holder_of(&f->holders, OTHER_STAGES, NAME_NONE, change->pool);
        hold(&f->holders, live->holder, change->bytes, 1);
    }
}

static bool is_same_pool(const struct memory_pool *pool, int64_t device, uint32_t allocator)
{
    return pool->device == device && pool->allocator == allocator;
}

/* Returns the bytes that an allocator without totals had in use: the sum after the last change of that pool. */
static uint64_t in_use_of(const struct following *f, int64_t device, uint32_t allocator)
{
    struct last_change last = {0, 0};
    for (size_t i = 0; i < f->pools; i++)
        if (is_same_pool(&f->changes->pool[i], device, allocator) && f->last[i].number > last.number) last = f->last[i];
    return last.allocated;
}

static void take_refusal(struct refusal *refusal, const struct following *f, const struct process *process)
{
    const struct blocks *ooms = &process->ooms;
    uint32_t allocator = ooms->allocator[refusal->request];
    bool is_summed = is_cuda_block(allocator, ooms->allocated[refusal->request]);
    size_t capacity = 0;
    refusal->in_use = is_summed ? in_use_of(f, refusal->device, allocator) : ooms->allocated[refusal->request];
    for (size_t i = 0; i < f->holders.count; i++) {
        const struct holder *h = &f->holders.holder[i];
        if (!h->blocks || !is_same_pool(&f->changes->pool[h->pool], refusal->device, allocator)) continue;
        refusal->known += h->bytes;
        if (h->stage == OTHER_STAGES) continue;
        refusal->holder = mem_grow(refusal->holder, &capacity, refusal->holders + 1, sizeof *refusal->holder);
        refusal->holder[refusal->holders++] = *h;
    }
    sort(refusal->holder, refusal->holders, f->changes);
}

static int by_request(const void *a, const void *b, void *context)
{
    const int64_t *time = context;
    const struct refusal *x = a, *y = b;
    int order = by_number(time[x->request], time[y->request]);
    return order ? order : by_number((int64_t)x->request, (int64_t)y->request);
}

/* Keeps the last requests that the filters choose. */
static void find_refusals(struct refusals *r, const struct choice *choice)
{
    const struct process *p = choice->process;
    const struct blocks *b = &p->ooms;
    for (size_t i = 0; i < b->table.count; i++) {
        int64_t device = memory_request_device(p, i);
        if (!choice_moment(choice, b->time[i], b->time[i]) || !list_has(&choice->options->device, device)) continue;
        r->all++;
        size_t to = r->count;
        if (to < MOST_REFUSALS) r->count++;
        else
            for (size_t k = to = 0; k < MOST_REFUSALS; k++)
                to = b->time[r->refusal[k].request] < b->time[r->refusal[to].request] ? k : to;
        if (r->count == MOST_REFUSALS && r->all > MOST_REFUSALS && b->time[r->refusal[to].request] > b->time[i])
            continue;
        r->refusal[to] = (struct refusal){.request = i, .device = device};
    }
    if (r->count) qsort_r(r->refusal, r->count, sizeof *r->refusal, by_request, b->time);
}

void memory_refusals(struct refusals *refusals, const struct choice *choice, struct memory_walk *changes)
{
    const struct process *p = choice->process;
    struct following f = {.changes = changes};
    *refusals = (struct refusals){0};
    find_refusals(refusals, choice);
    if (!refusals->count) return;
    f.next = memory_walk_next(changes);
    for (size_t i = 0; i < refusals->count; i++) {
        follow(&f, choice, p->ooms.time[refusals->refusal[i].request]);
        take_refusal(&refusals->refusal[i], &f, p);
    }
    holders_free(&f.holders);
    free(f.last);
}

void refusals_free(struct refusals *refusals)
{
    for (size_t i = 0; i < refusals->count; i++) free(refusals->refusal[i].holder);
    *refusals = (struct refusals){0};
}
