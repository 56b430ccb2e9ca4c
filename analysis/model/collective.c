/* collective.c - collects the collectives of a process, and reads the operation and the element type from
 * names (include/collectives.def).
 *
 * A name is searched up to LONGEST_NAME bytes. No kernel has a longer one; a damaged trace may.
 */
#include "model/collective.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_NAME = 1 << 20 };

const struct collective_kind collective_kinds[NR_COLLECTIVE_OPS] = {
#define COLLECTIVE(id, name, bus, whole, meets) [COLLECTIVE_##id] = {name, BUS_##bus, WHOLE_##whole, meets},
#include "collectives.def"
};

double collective_bus_factor(enum collective_op op, int64_t ranks)
{
    double n = (double)ranks;
    switch (collective_kinds[op].bus) {
    case BUS_TWICE: return ranks > 0 ? 2 * (n - 1) / n : NAN;
    case BUS_SHARE: return ranks > 0 ? (n - 1) / n : NAN;
    default: return 1;
    }
}

/* ---- entries ---- */

struct collective *collectives_add(struct collectives *c)
{
    c->collective = mem_grow(c->collective, &c->capacity, c->count + 1, sizeof *c->collective);
    struct collective *added = &c->collective[c->count++];
    *added = (struct collective){.sequence = UNKNOWN_NUMBER,
                                 .elements_in = UNKNOWN_COUNT,
                                 .elements_out = UNKNOWN_COUNT,
                                 .bytes_in = UNKNOWN_COUNT,
                                 .bytes_out = UNKNOWN_COUNT,
                                 .root = UNKNOWN_NUMBER,
                                 .source = UNKNOWN_NUMBER,
                                 .peer = UNKNOWN_NUMBER,
                                 .size = UNKNOWN_NUMBER,
                                 .rank = UNKNOWN_NUMBER,
                                 .call_start = UNKNOWN_TIME,
                                 .call_end = UNKNOWN_TIME,
                                 .start = UNKNOWN_TIME,
                                 .end = UNKNOWN_TIME,
                                 .channels = UNKNOWN_NUMBER,
                                 .warps = UNKNOWN_NUMBER,
                                 .link = NO_LINK,
                                 .work = NO_WORK};
    return added;
}

void collective_size(struct collective *c, unsigned bytes_of_element)
{
    uint64_t bytes;
    if (!bytes_of_element) return;
    if (c->elements_in != UNKNOWN_COUNT && !__builtin_mul_overflow(c->elements_in, bytes_of_element, &bytes))
        c->bytes_in = bytes;
    if (c->elements_out != UNKNOWN_COUNT && !__builtin_mul_overflow(c->elements_out, bytes_of_element, &bytes))
        c->bytes_out = bytes;
}

void collectives_move(struct collectives *c, int64_t by)
{
    for (size_t i = 0; i < c->count; i++) {
        int64_t *times[] = {&c->collective[i].call_start, &c->collective[i].call_end, &c->collective[i].start,
                            &c->collective[i].end};
        for (size_t k = 0; k < ARRAY_SIZE(times); k++)
            if (*times[k] != UNKNOWN_TIME) *times[k] = add_ns(*times[k], by);
    }
}

static void take_name(uint32_t *to, uint32_t from)
{
    if (!*to) *to = from;
}

static void take_number(int64_t *to, int64_t from)
{
    if (*to == UNKNOWN_NUMBER) *to = from;
}

static void take_count(uint64_t *to, uint64_t from)
{
    if (*to == UNKNOWN_COUNT) *to = from;
}

static void take_start(int64_t *to, int64_t from)
{
    if (*to == UNKNOWN_TIME || (from != UNKNOWN_TIME && from < *to)) *to = from;
}

/* Adds the knowledge of `part` to its collective, which keeps its own. The spans grow. */
static void join_collective_parts(struct collective *to, const struct collective *part)
{
    if (to->op == COLLECTIVE_OTHER && part->op != COLLECTIVE_OTHER) {
        to->op = part->op;
        to->name = part->name;
    }
    take_name(&to->communicator, part->communicator);
    take_name(&to->members, part->members);
    take_name(&to->description, part->description);
    take_name(&to->datatype, part->datatype);
    take_name(&to->algorithm, part->algorithm);
    take_name(&to->protocol, part->protocol);
    take_name(&to->thread, part->thread);
    take_number(&to->channels, part->channels);
    take_number(&to->warps, part->warps);
    take_number(&to->sequence, part->sequence);
    take_number(&to->root, part->root);
    take_number(&to->source, part->source);
    take_number(&to->peer, part->peer);
    take_number(&to->size, part->size);
    take_number(&to->rank, part->rank);
    take_count(&to->elements_in, part->elements_in);
    take_count(&to->elements_out, part->elements_out);
    take_count(&to->bytes_in, part->bytes_in);
    take_count(&to->bytes_out, part->bytes_out);
    if (part->work != NO_WORK && (to->work == NO_WORK || part->start < to->start)) to->work = part->work;
    take_start(&to->call_start, part->call_start);
    take_start(&to->start, part->start);
    to->call_end = MAX(to->call_end, part->call_end);
    to->end = MAX(to->end, part->end);
}

void collectives_finish(struct collectives *c)
{
    struct map of_link = {0}, of_work = {0};
    size_t kept = 0;
    for (size_t i = 0; i < c->count; i++) {
        struct collective *part = &c->collective[i];
        uint32_t at = part->link == NO_LINK ? MAP_NONE : map_get(&of_link, part->link), work = part->work;
        if (at == MAP_NONE) {
            at = (uint32_t)kept++;
            c->collective[at] = *part;
            if (part->link != NO_LINK) map_put(&of_link, part->link, at);
        } else {
            join_collective_parts(&c->collective[at], part);
        }
        if (work != NO_WORK) map_put(&of_work, work, at);
    }
    c->count = kept;
    map_free(&of_link);
    map_free(&c->of_work);
    c->of_work = of_work;
}

void collectives_free(struct collectives *c)
{
    free(c->collective);
    map_free(&c->of_work);
    *c = (struct collectives){0};
}

/* ---- names ---- */

static const struct {
    const char *word;
    enum collective_op op;
} words[] = {
#define COLLECTIVE_WORD(word, id) {word, COLLECTIVE_##id},
#include "collectives.def"
};

static const struct {
    const char *name;
    unsigned bytes;
    bool tracelens;
} types[] = {
#define COLLECTIVE_TYPE(name, bytes, tracelens) {name, bytes, tracelens},
#include "collectives.def"
};

enum collective_op collective_op_of(const char *name, size_t length)
{
    char *plain = mem_zero(MIN(length, (size_t)LONGEST_NAME) + 1, 1);
    size_t kept = 0, found = 0;
    for (size_t i = 0; i < length && i < LONGEST_NAME; i++)
        if (name[i] != '_' && name[i]) plain[kept++] = (char)tolower((unsigned char)name[i]);
    while (found < ARRAY_SIZE(words) && !strstr(plain, words[found].word)) found++;
    free(plain);
    return found < ARRAY_SIZE(words) ? words[found].op : COLLECTIVE_OTHER;
}

unsigned collective_type_bytes(const char *type, bool tracelens)
{
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (strcmp(type, types[i].name) == 0 && (!tracelens || types[i].tracelens)) return types[i].bytes;
    return 0;
}

void collective_set_peer(struct collective *c, int64_t peer)
{
    if (c->op == COLLECTIVE_SEND || c->op == COLLECTIVE_RECV) {
        c->source = c->op == COLLECTIVE_SEND ? c->rank : peer;
        c->peer = c->op == COLLECTIVE_SEND ? peer : c->rank;
    } else if (peer >= 0) {
        c->root = peer;
    }
}
