/* holders.c - groups blocks by stage and call stack, and follows what each group holds. */
#include "ask/memory/holders.h"

#include <stdlib.h>

#include "ask/stages/order.h"

static int by_bytes(const void *a, const void *b)
{
    const struct holder *x = a, *y = b;
    if (x->unfreed_bytes != y->unfreed_bytes) return x->unfreed_bytes > y->unfreed_bytes ? -1 : 1;
    if (x->outliving_bytes != y->outliving_bytes) return x->outliving_bytes > y->outliving_bytes ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    if (x->pool != y->pool) return x->pool < y->pool ? -1 : 1;
    if (x->stage != y->stage) return x->stage < y->stage ? -1 : 1;
    return by_number(x->stack, y->stack);
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

/* Finds the holder of each allocation; those that the filters leave out have none. */
static void find_holders(struct holders *h, const struct choice *choice, const struct memory_changes *c, bool all_times)
{
    const struct belonging *block = choice->attribution->block;
    const struct blocks *b = &c->process->blocks;
    *h = (struct holders){.of_change = no_places(c->count)};
    for (size_t i = 0; i < c->count; i++) {
        const struct memory_change *change = &c->change[i];
        const struct belonging *at = &block[change->block];
        uint32_t stage;
        if (change->bytes < 0 || !list_has(&choice->options->device, c->pool[change->pool].device) ||
            !choice_stage_name(choice, at, &stage) || (!all_times && !choice_moment(choice, change->time, at->time)))
            continue;
        h->of_change[i] = holder_of(h, stage, b->stack[change->block], change->pool);
    }
}

void holders_free(struct holders *holders)
{
    free(holders->holder);
    free(holders->of_change);
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
    return whole == MAP_NONE ? process->ranges.end[range] : process->wholes.end[whole];
}

static void add_leak(struct holder *h, const struct memory_changes *c, size_t i, bool in_stage, int64_t end)
{
    const struct memory_change *change = &c->change[i];
    uint64_t bytes = (uint64_t)change->bytes;
    bool unfreed = change->other == NO_PLACE;
    h->blocks++;
    h->bytes += bytes;
    if (in_stage && (unfreed || c->change[change->other].time > end)) {
        h->outliving_blocks++;
        h->outliving_bytes += bytes;
    }
    if (unfreed) {
        h->unfreed_blocks++;
        h->unfreed_bytes += bytes;
    }
}

/* The block's own stage decides how long it may live, also where --stage names a stage around it. */
void memory_leaks(struct holders *leaks, const struct choice *choice, const struct memory_changes *changes)
{
    const struct process *p = choice->process;
    const struct belonging *block = choice->attribution->block;
    struct map whole_of = {0};
    size_t kept = 0;
    find_holders(leaks, choice, changes, false);
    map_wholes(&whole_of, p);
    for (size_t i = 0; i < changes->count; i++) {
        if (leaks->of_change[i] == NO_PLACE) continue;
        uint32_t stage = block[changes->change[i].block].stage;
        int64_t end = stage == NO_PLACE ? INT64_MAX : end_of(p, &whole_of, stage);
        add_leak(&leaks->holder[leaks->of_change[i]], changes, i, stage != NO_PLACE, end);
    }
    for (size_t i = 0; i < leaks->count; i++)
        if (leaks->holder[i].outliving_blocks || leaks->holder[i].unfreed_blocks)
            leaks->holder[kept++] = leaks->holder[i];
    leaks->count = kept;
    if (kept) qsort(leaks->holder, kept, sizeof *leaks->holder, by_bytes);
    map_free(&whole_of);
}

/* ---- refused requests ---- */

/* Follows what the holders have in use, change by change. */
struct following {
    struct holders holders;
    const struct memory_changes *changes;
    size_t next;
};

/* Adds or takes away the block of an allocation. */
static void hold(struct holders *h, uint32_t allocation, int64_t bytes, int sign)
{
    uint32_t at = h->of_change[allocation];
    if (at == NO_PLACE) return;
    h->holder[at].blocks += (uint64_t)sign;
    h->holder[at].bytes += (uint64_t)(sign * bytes);
}

static void follow(struct following *f, int64_t until)
{
    const struct memory_changes *c = f->changes;
    for (; f->next < c->count && c->change[f->next].time <= until; f->next++) {
        const struct memory_change *change = &c->change[f->next];
        uint32_t gone = change->bytes < 0 ? change->other : change->ended;
        if (gone != NO_PLACE) hold(&f->holders, gone, c->change[gone].bytes, -1);
        if (change->bytes > 0) hold(&f->holders, (uint32_t)f->next, change->bytes, 1);
    }
}

static bool is_same_pool(const struct memory_pool *pool, int64_t device, uint32_t allocator)
{
    return pool->device == device && pool->allocator == allocator;
}

/* Returns the bytes that an allocator without totals had in use: the sum after the last change of that pool. */
static uint64_t in_use_of(const struct following *f, int64_t device, uint32_t allocator)
{
    for (size_t i = f->next; i-- > 0;)
        if (is_same_pool(&f->changes->pool[f->changes->change[i].pool], device, allocator))
            return f->changes->change[i].allocated;
    return 0;
}

static void take_refusal(struct refusal *refusal, const struct following *f, const struct process *process)
{
    const struct blocks *ooms = &process->ooms;
    uint32_t allocator = ooms->allocator[refusal->request];
    bool is_summed = is_cuda_block(ooms, refusal->request);
    size_t capacity = 0;
    refusal->in_use = is_summed ? in_use_of(f, refusal->device, allocator) : ooms->allocated[refusal->request];
    for (size_t i = 0; i < f->holders.count; i++) {
        const struct holder *h = &f->holders.holder[i];
        if (!h->blocks || !is_same_pool(&f->changes->pool[h->pool], refusal->device, allocator)) continue;
        refusal->holder = mem_grow(refusal->holder, &capacity, refusal->holders + 1, sizeof *refusal->holder);
        refusal->holder[refusal->holders++] = *h;
        refusal->known += h->bytes;
    }
    if (refusal->holders) qsort(refusal->holder, refusal->holders, sizeof *refusal->holder, by_bytes);
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
        int64_t device = memory_device(p, b, i);
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

void memory_refusals(struct refusals *refusals, const struct choice *choice, const struct memory_changes *changes)
{
    const struct process *p = choice->process;
    struct following f = {.changes = changes};
    *refusals = (struct refusals){0};
    find_refusals(refusals, choice);
    if (!refusals->count) return;
    find_holders(&f.holders, choice, changes, true);
    for (size_t i = 0; i < refusals->count; i++) {
        follow(&f, p->ooms.time[refusals->refusal[i].request]);
        take_refusal(&refusals->refusal[i], &f, p);
    }
    holders_free(&f.holders);
}

void refusals_free(struct refusals *refusals)
{
    for (size_t i = 0; i < refusals->count; i++) free(refusals->refusal[i].holder);
    *refusals = (struct refusals){0};
}
