/* batches.c - collects the batches of one process and adds up their calls on files. */
#include "ask/io/batches.h"

#include <stdlib.h>

#include "ask/io/io_choice.h"

/* ---- collecting ---- */

void io_batches_made(struct io_batches *b, struct io_batch batch)
{
    b->made = mem_grow(b->made, &b->made_capacity, b->mades + 1, sizeof *b->made);
    b->made[b->mades++] = batch;
}

void io_batches_wait(struct io_batches *b, int64_t start, int64_t end)
{
    b->wait = mem_grow(b->wait, &b->wait_capacity, b->waits + 1, sizeof *b->wait);
    b->wait[b->waits++] = (struct io_batch){start, end, -1};
}

void io_batches_hand(struct io_batches *b, struct io_hand hand)
{
    b->hand = mem_grow(b->hand, &b->hand_capacity, b->hands + 1, sizeof *b->hand);
    b->hand[b->hands++] = hand;
}

static int by_end(const void *a, const void *b)
{
    return by_number(((const struct io_batch *)a)->end, ((const struct io_batch *)b)->end);
}

static int by_hand(const void *a, const void *b)
{
    return by_number(((const struct io_hand *)a)->end, ((const struct io_hand *)b)->end);
}

/* ---- calls of batches ---- */

/* Returns the batch in which a call began; NO_PLACE if there is none. Batches of one process follow each other. */
static uint32_t batch_at(const struct io_batches *b, int64_t time)
{
    size_t low = 0, high = b->mades;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (b->made[middle].end <= time) low = middle + 1;
        else high = middle;
    }
    return low < b->mades && b->made[low].start <= time ? (uint32_t)low : NO_PLACE;
}

static uint32_t batch_of(const struct io_batches *b, const struct io_scope *scope, size_t call)
{
    const struct ios *ios = &scope->process->ios;
    if (!b->by_worker && map_get(&scope->waiting, ios->thread[call]) == MAP_NONE) return NO_PLACE;
    uint32_t batch = batch_at(b, ios->start[call]);
    return batch != NO_PLACE && io_scope_has(scope, ios->thread[call], ios->start[call]) ? batch : NO_PLACE;
}

static int longest_first(const void *a, const void *b)
{
    return by_number(((const struct io_kept *)b)->total, ((const struct io_kept *)a)->total);
}

static int by_batch(const void *a, const void *b)
{
    return by_number(((const struct io_kept *)a)->batch, ((const struct io_kept *)b)->batch);
}

/* Adds up the calls of all batches, and keeps those whose calls took longest. */
static void keep_longest(struct io_batches *b, const struct io_scope *scope)
{
    const struct ios *ios = &scope->process->ios;
    size_t most = MAX((size_t)BATCHES_KEPT, scope->chosen->options->top);
    b->kept = mem_zero(b->mades, sizeof *b->kept);
    for (b->kepts = 0; b->kepts < b->mades; b->kepts++) b->kept[b->kepts].batch = (uint32_t)b->kepts;
    for (size_t i = 0; i < ios->table.count; i++) {
        uint32_t batch = batch_of(b, scope, i);
        if (batch == NO_PLACE) continue;
        b->kept[batch].calls += ios_calls(ios, i);
        b->kept[batch].bytes += ios_bytes(ios, i);
        b->kept[batch].total = add_ns(b->kept[batch].total, ios_time(ios, i));
    }
    if (b->kepts <= most) return;
    qsort(b->kept, b->kepts, sizeof *b->kept, longest_first);
    b->kepts = most;
    b->kept = mem_resize(b->kept, most, sizeof *b->kept);
    qsort(b->kept, most, sizeof *b->kept, by_batch);
}

const struct io_kept *io_batches_kept(const struct io_batches *b, size_t batch)
{
    const struct io_kept key = {.batch = (uint32_t)batch};
    return b->kepts ? bsearch(&key, b->kept, b->kepts, sizeof *b->kept, by_batch) : NULL;
}

static int by_batch_and_time(const void *a, const void *b)
{
    const struct io_read *x = a, *y = b;
    if (x->batch != y->batch) return by_number(x->batch, y->batch);
    return x->total != y->total ? by_number(y->total, x->total) : by_number(x->order, y->order);
}

static void add_read(struct io_batches *b, struct map *place, uint32_t batch, const struct ios *ios, size_t call)
{
    uint64_t key = (uint64_t)batch << 32 | ios->path[call];
    uint32_t at = map_get(place, key);
    if (at == MAP_NONE) {
        map_put(place, key, at = (uint32_t)b->reads);
        b->read = mem_grow(b->read, &b->read_capacity, b->reads + 1, sizeof *b->read);
        b->read[b->reads++] = (struct io_read){.batch = batch, .path = ios->path[call], .order = at};
    }
    b->read[at].calls += ios_calls(ios, call);
    b->read[at].bytes += ios_bytes(ios, call);
    b->read[at].total = add_ns(b->read[at].total, ios_time(ios, call));
}

/* Keeps the longest reads of each batch. */
static void cut_reads(struct io_batches *b)
{
    size_t left = 0, kept = 0;
    if (b->reads) qsort(b->read, b->reads, sizeof *b->read, by_batch_and_time);
    for (size_t i = 0, end; i < b->reads; i = end) {
        for (end = i + 1; end < b->reads && b->read[end].batch == b->read[i].batch; end++) continue;
        while (b->kept[kept].batch != b->read[i].batch) kept++;
        b->kept[kept].files = end - i;
        b->kept[kept].read = left;
        b->kept[kept].reads = MIN(end - i, (size_t)FILES_KEPT);
        for (size_t k = 0; k < b->kept[kept].reads; k++) b->read[left++] = b->read[i + k];
    }
    b->reads = left;
    if (left) b->read = mem_resize(b->read, b->read_capacity = left, sizeof *b->read);
}

static void collect_reads(struct io_batches *b, const struct io_scope *scope)
{
    const struct ios *ios = &scope->process->ios;
    struct map place = {0};
    for (size_t i = 0; i < ios->table.count; i++) {
        enum io_kind kind = ios->of_name[ios->function[i]].kind;
        uint32_t batch = kind == IO_READ || kind == IO_COPY ? batch_of(b, scope, i) : NO_PLACE;
        if (batch != NO_PLACE && io_batches_kept(b, batch)) add_read(b, &place, batch, ios, i);
    }
    map_free(&place);
    cut_reads(b);
}

void io_batches_settle(struct io_batches *b, const struct io_scope *scope)
{
    if (b->waits) qsort(b->wait, b->waits, sizeof *b->wait, by_end);
    if (b->hands) qsort(b->hand, b->hands, sizeof *b->hand, by_hand);
    if (b->mades) qsort(b->made, b->mades, sizeof *b->made, by_end);
    if (!b->mades || scope->chosen->options->layout != LAYOUT_BATCHES) return;
    keep_longest(b, scope);
    collect_reads(b, scope);
}

void io_batches_free(struct io_batches *b)
{
    free(b->made);
    free(b->wait);
    free(b->hand);
    free(b->kept);
    free(b->read);
    *b = (struct io_batches){0};
}
