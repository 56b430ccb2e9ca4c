/* summary.c - orders and merges summaries of collectives.
 *
 * Names are compared as texts: their numbers depend on the order in which threads read the files. Parts that agree in
 * everything that the order compares are equal in all that an answer shows, so their order does not matter.
 */
#include "ask/comm/summary.h"

#include <stdlib.h>
#include <string.h>

/* ---- the order ---- */

static int by_text(const struct names *names, uint32_t a, uint32_t b)
{
    if (a == b) return 0;
    const struct name *x = names_get(names, a), *y = names_get(names, b);
    int order = memcmp(x->text, y->text, MIN(x->length, y->length));
    return order ? order : by_number(x->length, y->length);
}

int comm_group_order(const struct names *names, const struct comm_part *a, const struct comm_part *b)
{
    int order = by_number(a->run, b->run);
    if (!order) order = by_text(names, a->group, b->group);
    if (!order) order = by_text(names, a->members, b->members);
    return order ? order : by_number(a->op_key, b->op_key);
}

int comm_key_order(const struct names *names, const struct comm_part *a, const struct comm_part *b)
{
    int order = comm_group_order(names, a, b);
    if (!order) order = by_number(a->source, b->source);
    if (!order) order = by_number(a->peer, b->peer);
    if (!order) order = by_number((int64_t)a->alone, (int64_t)b->alone);
    if (!order) order = by_number(a->epoch, b->epoch);
    if (!order) order = by_number(a->sequence, b->sequence);
    if (!order) order = by_number(a->replay, b->replay);
    return order ? order : by_number(a->again, b->again);
}

static int by_count(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int part_order(const struct names *names, const struct comm_part *a, const struct comm_part *b)
{
    int order = comm_key_order(names, a, b);
    if (!order) order = by_number(a->rank, b->rank);
    if (!order) order = by_number(a->start, b->start);
    if (!order) order = by_number(a->end, b->end);
    if (!order) order = by_number(a->call_start, b->call_start);
    if (!order) order = by_number(a->op, b->op);
    if (!order) order = by_text(names, a->name, b->name);
    if (!order) order = by_text(names, a->datatype, b->datatype);
    if (!order) order = by_text(names, a->stage, b->stage);
    if (!order) order = by_text(names, a->algorithm, b->algorithm);
    if (!order) order = by_text(names, a->protocol, b->protocol);
    if (!order) order = by_number(a->channels, b->channels);
    if (!order) order = by_number(a->step, b->step);
    if (!order) order = by_number(a->is_chosen, b->is_chosen);
    if (!order) order = by_number(a->clock, b->clock);
    if (!order) order = by_number(a->size, b->size);
    if (!order) order = by_count(a->bytes_in, b->bytes_in);
    return order ? order : by_count(a->bytes_out, b->bytes_out);
}

static int parts_in_order(const void *a, const void *b, void *names)
{
    return part_order(names, a, b);
}

/* ---- summaries ---- */

void comm_add(struct comm_summary *s, const struct comm_part *part)
{
    s->part = mem_grow(s->part, &s->capacity, s->count + 1, sizeof *s->part);
    s->part[s->count++] = *part;
}

void comm_fit(struct comm_summary *s)
{
    s->part = mem_resize(s->part, s->count, sizeof *s->part);
    s->capacity = s->count;
}

void comm_append(struct comm_summary *a, struct comm_summary *b)
{
    if (!a->count) {
        free(a->part);
        *a = *b;
    } else {
        a->part = mem_grow(a->part, &a->capacity, a->count + b->count, sizeof *a->part);
        if (b->count) memcpy(a->part + a->count, b->part, b->count * sizeof *b->part);
        a->count += b->count;
        free(b->part);
    }
    *b = (struct comm_summary){.names = b->names};
}

void comm_sort(struct comm_summary *s)
{
    if (s->count) qsort_r(s->part, s->count, sizeof *s->part, parts_in_order, (void *)s->names);
}

void comm_merge(struct comm_summary *a, struct comm_summary *b)
{
    struct comm_summary both = {.names = a->names ? a->names : b->names};
    size_t i = 0, k = 0;
    both.part = mem_grow(NULL, &both.capacity, a->count + b->count, sizeof *both.part);
    while (i < a->count || k < b->count) {
        bool from_a = k == b->count || (i < a->count && part_order(both.names, &a->part[i], &b->part[k]) <= 0);
        both.part[both.count++] = from_a ? a->part[i++] : b->part[k++];
    }
    comm_summary_free(a);
    comm_summary_free(b);
    *a = both;
}

void comm_summary_free(struct comm_summary *s)
{
    free(s->part);
    *s = (struct comm_summary){.names = s->names};
}

size_t comm_key_end(const struct comm_summary *s, size_t first)
{
    size_t end = first + 1;
    while (end < s->count && comm_key_order(s->names, &s->part[first], &s->part[end]) == 0) end++;
    return end;
}
