/* tracelens_comm.c - answers comm by the rules of TraceLens's NcclAnalyser.
 *
 * A collective is a kernel whose name has one of TraceLens's words and that has a correlation id or an external id.
 * Its key is the process group's name and its place in the order of time on the rank. Without a name the group is
 * Unknown_Group. Sizes are known for the element types in its table. If no kernel has a group and each rank has one
 * stream, unnamed collectives are in the table too, without a bandwidth.
 */
#include <math.h>
#include <string.h>

#include "ask/comm/comm_reduction.h"
#include "commands/ranks/comm.h"
#include "compat/file_us.h"
#include "compat/tracelens.h"
#include "model/communication.h"

/* ---- one process ---- */

/* True for the name of a kernel that TraceLens takes for a collective; `known` remembers the answers. */
static bool communicates(struct map *known, const struct names *names, uint32_t number)
{
    uint32_t found = map_get(known, number);
    if (found == MAP_NONE) {
        const struct name *name = names_get(names, number);
        found = is_communication(name->text, name->length, true);
        map_put(known, number, found);
    }
    return found;
}

/* Multiplies as TraceLens does, by its table of types. */
static uint64_t bytes_of(uint64_t elements, unsigned bytes)
{
    uint64_t product;
    bool known = elements != UNKNOWN_COUNT && bytes && !__builtin_mul_overflow(elements, bytes, &product);
    return known ? product : UNKNOWN_COUNT;
}

/* Changes the part of a kernel to what TraceLens knows of it. */
static void change(struct comm_part *part, const struct process *p, size_t work, const struct names *names,
                   const struct collective *c)
{
    const struct works *w = &p->works;
    const char *type = names_get(names, c->datatype)->text, *kernel = names_get(names, w->name[work])->text;
    bool has_size = c->elements_in != UNKNOWN_COUNT && !c->is_annotated; /* TraceLens reads no annotations */
    unsigned bytes = has_size ? collective_type_bytes(type, true) : 0;
    bool is_described = c->name != w->name[work] && !c->is_annotated;
    part->members = NAME_NONE;
    part->op_key = 0;
    part->source = part->peer = part->sequence = UNKNOWN_NUMBER;
    part->size = c->size;
    part->name = is_described ? c->name : NAME_NONE;
    part->op = is_described || strcasestr(kernel, "cross_device_reduce") ? c->op : COLLECTIVE_OTHER;
    part->bytes_in = bytes_of(c->elements_in, bytes);
    part->bytes_out = bytes_of(c->elements_out, bytes);
    part->stream = p->lane[w->lane[work]].has_stream ? p->lane[w->lane[work]].stream : UNKNOWN_NUMBER;
    part->start = w->start[work];
    part->end = w->end[work];
    part->call_start = UNKNOWN_TIME;
    part->file_start_us = file_us(p, w->start[work]);
    part->file_duration_us = (double)(w->end[work] - w->start[work]) / 1000;
}

static void take_kernels(struct comm_taken *taken, const struct comm_scope *scope, const struct process *p)
{
    const struct works *w = &p->works;
    struct map known = {0};
    for (size_t i = 0; i < w->table.count; i++) {
        uint32_t place = map_get(&p->collectives.of_work, i);
        bool linked = w->correlation[i] != NO_ID || w->external[i] != NO_ID;
        if (place == MAP_NONE || !linked || !communicates(&known, taken->parts.names, w->name[i])) continue;
        const struct collective *c = &p->collectives.collective[place];
        struct collective one = *c;
        one.work = (uint32_t)i;
        struct comm_part part = comm_part_of(p, &one);
        change(&part, p, i, taken->parts.names, c);
        comm_take_part(taken, scope, &one, part);
    }
    map_free(&known);
}

static void *reduce_tracelens_comm(struct scope *scope)
{
    return comm_take(scope, take_kernels);
}

const struct reduction tracelens_collectives = {without_window, reduce_tracelens_comm, comm_taken_free, NULL};

/* ---- kinds ---- */

/* Kinds of collectives in TraceLens's tables. */
enum tracelens_kind {
    TRACELENS_UNKNOWN, /* in the first table if is_simple, else in none */
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

/* True if no kernel has a communicator and each rank's kernels are on one stream: unknown collectives count too. */
static bool is_simple(const struct comm_summary *s)
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

static int64_t wait_of(const struct comm_row *row, const struct comm_part *part)
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

/* Returns false if the collective is in none of TraceLens's tables. */
static bool fill_row(struct comm_row *row, const struct names *names, bool simple)
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

/* ---- the answer ---- */

static const char *unnamed(const struct comm_part *part)
{
    return part->op == COLLECTIVE_ALL_REDUCE ? "allreduce" : NULL;
}

static const char *ungrouped(const struct comm *comm)
{
    return comm->rows.simple ? "all" : "Unknown_Group";
}

void tracelens_comm(struct session *session)
{
    static const struct comm_rules rules = {fill_row, is_simple, wait_of};
    static const struct comm_words words = {&rules, unnamed, ungrouped,
                                            ", size or type, where TraceLens itself gives no answer"};
    comm_answer(session, &words);
}
