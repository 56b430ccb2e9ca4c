/* tracelens.c - follows TraceLens's NcclAnalyser (commit 171dd74).
 *
 * A collective is a kernel whose name has one of TraceLens's words and that has a correlation id or an external id.
 * Its key is the process group's name and its place in the order of time on the rank. Without a name the group is
 * Unknown_Group. Sizes are known for the element types in its table. If no kernel has a group and each rank has one
 * stream, unnamed collectives are in the table too, without a bandwidth.
 */
#include "ask/comm/tracelens.h"

#include <math.h>
#include <string.h>

#include "ask/comm/rows.h"
#include "ask/timeline.h"

bool tracelens_next(struct tracelens_kernels *k, const struct collective **collective)
{
    const struct process *p = k->process;
    const struct works *w = &p->works;
    for (; k->next < w->table.count; k->next++) {
        size_t i = k->next;
        uint32_t place = map_get(&p->collectives.of_work, i);
        bool linked = w->correlation[i] != NO_ID || w->external[i] != NO_ID;
        if (place == MAP_NONE || !linked) continue;
        uint32_t known = map_get(&k->communicates, w->name[i]);
        if (known == MAP_NONE) {
            const struct name *name = names_get(k->names, w->name[i]);
            known = is_communication(name->text, name->length, true);
            map_put(&k->communicates, w->name[i], known);
        }
        if (!known) continue;
        *collective = &p->collectives.collective[place];
        k->work = (uint32_t)k->next++;
        return true;
    }
    return false;
}

/* Multiplies as TraceLens does, by its table of types. */
static uint64_t bytes_of(uint64_t elements, unsigned bytes)
{
    uint64_t product;
    bool known = elements != UNKNOWN_COUNT && bytes && !__builtin_mul_overflow(elements, bytes, &product);
    return known ? product : UNKNOWN_COUNT;
}

void tracelens_change(struct comm_part *part, const struct tracelens_kernels *k, const struct collective *c)
{
    const struct process *p = k->process;
    const struct works *w = &p->works;
    const char *type = names_get(k->names, c->datatype)->text, *kernel = names_get(k->names, w->name[k->work])->text;
    unsigned bytes = c->elements_in == UNKNOWN_COUNT ? 0 : collective_type_bytes(type, true);
    bool is_described = c->name != w->name[k->work];
    part->members = NAME_NONE;
    part->op_key = 0;
    part->source = part->peer = part->sequence = UNKNOWN_NUMBER;
    part->size = c->size;
    part->name = is_described ? c->name : NAME_NONE;
    part->op = is_described || strcasestr(kernel, "cross_device_reduce") ? c->op : COLLECTIVE_OTHER;
    part->bytes_in = bytes_of(c->elements_in, bytes);
    part->bytes_out = bytes_of(c->elements_out, bytes);
    part->stream = p->lane[w->lane[k->work]].has_stream ? p->lane[w->lane[k->work]].stream : UNKNOWN_NUMBER;
    part->start = w->start[k->work];
    part->end = w->end[k->work];
    part->call_start = UNKNOWN_TIME;
    part->file_start_us = file_us(p, w->start[k->work]);
    part->file_duration_us = (double)(w->end[k->work] - w->start[k->work]) / 1000;
}

/* Kinds of collectives in TraceLens's tables. */
enum tracelens_kind {
    TRACELENS_UNKNOWN, /* in the first table if tracelens_is_simple, else in none */
    TRACELENS_ALL_REDUCE,
    TRACELENS_REDUCE_SCATTER,
    TRACELENS_ALL_GATHER,
    TRACELENS_ALL_TO_ALL,
    TRACELENS_ALL_TO_ALL_V, /* in a table of its own */
};

static const struct {
    const char *name;
    enum tracelens_kind kind;
} kinds[] = {
    {"allreduce", TRACELENS_ALL_REDUCE},
    {"allreduce_coalesced", TRACELENS_ALL_REDUCE},
    {"reducescatter", TRACELENS_REDUCE_SCATTER},
    {"_reduce_scatter_base", TRACELENS_REDUCE_SCATTER},
    {"reduce_scatter_tensor_coalesced", TRACELENS_REDUCE_SCATTER},
    {"allgather", TRACELENS_ALL_GATHER},
    {"all_gather", TRACELENS_ALL_GATHER},
    {"_allgather_base", TRACELENS_ALL_GATHER},
    {"all_gather_into_tensor_coalesced", TRACELENS_ALL_GATHER},
    {"allgather_into_tensor_coalesced", TRACELENS_ALL_GATHER},
    {"all_to_all", TRACELENS_ALL_TO_ALL},
    {"all_to_allv", TRACELENS_ALL_TO_ALL_V},
};

static enum tracelens_kind kind_of(const struct comm_part *part, const struct names *names)
{
    if (part->name == NAME_NONE) return part->op == COLLECTIVE_ALL_REDUCE ? TRACELENS_ALL_REDUCE : TRACELENS_UNKNOWN;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (strcmp(names_get(names, part->name)->text, kinds[i].name) == 0) return kinds[i].kind;
    return TRACELENS_UNKNOWN;
}

bool tracelens_is_simple(const struct comm_summary *s)
{
    struct map stream_of = {0};
    bool simple = true;
    for (size_t i = 0; i < s->count && simple; i++) {
        const struct comm_part *part = &s->part[i];
        uint32_t stream = (uint32_t)part->stream & INT32_MAX, known = map_get(&stream_of, (uint64_t)part->rank);
        simple = part->group == NAME_NONE && (part->stream < 0 || known == MAP_NONE || known == stream);
        if (part->stream >= 0) map_put(&stream_of, (uint64_t)part->rank, stream);
    }
    map_free(&stream_of);
    return simple;
}

/* ---- one row ---- */

static int64_t ns_of(double us)
{
    return llround(us * 1000);
}

static double latest_start(const struct comm_row *row)
{
    double latest = row->part->file_start_us;
    for (size_t i = 1; i < row->parts; i++) latest = MAX(latest, row->part[i].file_start_us);
    return latest;
}

int64_t tracelens_wait(const struct comm_row *row, const struct comm_part *part)
{
    if (row->transfer == UNKNOWN_TIME) return UNKNOWN_TIME; /* all_to_allv */
    return ns_of(latest_start(row) - part->file_start_us);
}

static bool agree(const struct comm_part *a, const struct comm_part *b, bool sizes)
{
    bool same_sizes = a->elements_in == b->elements_in && a->elements_out == b->elements_out;
    return a->name == b->name && a->size == b->size && a->datatype == b->datatype && (same_sizes || !sizes);
}

/* The times of both tables. */
static void take_times(struct comm_row *row, double *shortest, double *wall)
{
    double first = row->part->file_start_us, latest = latest_start(row), longest = 0;
    double first_end = INFINITY, last_end = -INFINITY;
    *shortest = INFINITY;
    row->last = row->part->rank;
    for (size_t i = 0; i < row->parts; i++) {
        const struct comm_part *part = &row->part[i];
        double end = part->file_start_us + part->file_duration_us;
        first = MIN(first, part->file_start_us);
        if (end > last_end) row->slowest = part->rank;
        first_end = MIN(first_end, end);
        last_end = MAX(last_end, end);
        *shortest = MIN(*shortest, part->file_duration_us);
        longest = MAX(longest, part->file_duration_us);
    }
    for (size_t i = row->parts; i-- > 0;)
        if (row->part[i].file_start_us == latest) row->last = row->part[i].rank;
    row->skew = ns_of(latest - first);
    row->end_skew = ns_of(last_end - first_end);
    row->duration = ns_of(longest);
    *wall = last_end - first;
}

/* The table of all_to_allv: ranks send different amounts, so the whole of it is set against the whole time. */
static void take_sum(struct comm_row *row, double wall)
{
    double megabytes = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < row->parts; i++) {
        bool known = row->part[i].bytes_in != UNKNOWN_COUNT && bytes != UNKNOWN_COUNT;
        megabytes += known ? (double)row->part[i].bytes_in / (1 << 20) : NAN;
        bytes = known ? bytes + row->part[i].bytes_in : UNKNOWN_COUNT;
    }
    row->bytes = bytes;
    row->duration = ns_of(wall);
    if (wall > 0) row->algorithm_gb = megabytes / 1024 / (wall / 1e6);
}

bool tracelens_row(struct comm_row *row, const struct names *names, bool simple)
{
    static const enum collective_op ops[] = {[TRACELENS_ALL_REDUCE] = COLLECTIVE_ALL_REDUCE,
                                             [TRACELENS_REDUCE_SCATTER] = COLLECTIVE_REDUCE_SCATTER,
                                             [TRACELENS_ALL_GATHER] = COLLECTIVE_ALL_GATHER,
                                             [TRACELENS_ALL_TO_ALL] = COLLECTIVE_ALL_TO_ALL};
    enum tracelens_kind kind = kind_of(row->part, names);
    double shortest, wall;
    if (kind == TRACELENS_UNKNOWN && !simple) return false;
    row->ranks = row->parts;
    for (size_t i = 1; i < row->parts; i++)
        row->mismatch |= !simple && !agree(row->part, &row->part[i], kind != TRACELENS_ALL_TO_ALL_V);
    take_times(row, &shortest, &wall);
    if (kind == TRACELENS_ALL_TO_ALL_V) {
        take_sum(row, wall);
        return true;
    }
    row->transfer = ns_of(shortest);
    if (kind == TRACELENS_UNKNOWN || row->part->bytes_in == UNKNOWN_COUNT || row->part->bytes_out == UNKNOWN_COUNT)
        return true;
    row->bytes = kind == TRACELENS_ALL_GATHER ? row->part->bytes_out : row->part->bytes_in;
    if (shortest > 0) row->algorithm_gb = (double)row->bytes / (1 << 20) / 1024 / (shortest / 1e6);
    row->bus_gb = row->algorithm_gb * collective_bus_factor(ops[kind], row->part->size);
    return true;
}
