/* nccl.c - loads NCCL's collectives from our traces, and finds the kernels that execute them.
 *
 * A kernel was launched inside the call of its collective, or inside the outermost ncclGroupEnd of the group that the
 * call is in. NCCL launches one kernel per communicator of a group. If a group has several communicators, their kernels
 * are assigned in the order of the launches, and only if there are as many kernels as communicators. A captured
 * collective runs with each replay of its graph, not when it is called (load_replays.c). A refused one never runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/load/load.h"
#include "model/nccl/nccl.h"

enum { NCCL_IN_PROGRESS = 7 };

/* ---- records ---- */

/* Returns torch's name of an element type, NULL if it has none. */
static const char *type_text(uint64_t type)
{
    static const char *const types[] = {"Char", "Byte",  "Int",    "UInt32",   "Long",          "UInt64",
                                        "Half", "Float", "Double", "BFloat16", "Float8_e4m3fn", "Float8_e5m2"};
    return type < ARRAY_SIZE(types) ? types[type] : NULL;
}

uint32_t nccl_communicator_name(struct load *load, uint64_t hash)
{
    char text[32];
    int length = snprintf(text, sizeof text, "0x%016llx", (unsigned long long)hash);
    return hash ? names_add(load->names, text, (size_t)length) : NAME_NONE;
}

static uint64_t of_all_ranks(const struct collective *c, uint64_t count)
{
    uint64_t all;
    return c->size > 0 && !__builtin_mul_overflow(count, (uint64_t)c->size, &all) ? all : UNKNOWN_COUNT;
}

/* Fills in the elements of both sides. `count` is the caller's: of the whole buffer, or of one rank's part. The count
 * of ncclAllToAllv is that of the whole buffer, because its parts differ. */
static void take_elements(struct collective *c, const char *name, uint64_t count)
{
    uint64_t all = strcmp(name, "ncclAllToAllv") == 0 ? count : of_all_ranks(c, count);
    bool is_root = c->rank == c->root;
    c->elements_in = c->elements_out = count;
    switch (c->op) {
    case COLLECTIVE_ALL_GATHER: c->elements_out = all; break;
    case COLLECTIVE_REDUCE_SCATTER: c->elements_in = all; break;
    case COLLECTIVE_ALL_TO_ALL: c->elements_in = c->elements_out = all; break;
    case COLLECTIVE_GATHER: c->elements_out = is_root ? all : 0; break;
    case COLLECTIVE_SCATTER: c->elements_in = is_root ? all : 0; break;
    case COLLECTIVE_SEND: c->elements_out = 0; break;
    case COLLECTIVE_RECV: c->elements_in = 0; break;
    default: break;
    }
}

void nccl_describe(struct load *load, struct collective *c, const char *function, const struct nccl_arguments *given)
{
    const char *text = type_text(given->type);
    c->name = names_add(load->names, function, strlen(function));
    c->op = (uint8_t)collective_op_of(function, strlen(function));
    c->communicator = c->nccl_communicator = nccl_communicator_name(load, given->communicator);
    if (c->communicator != NAME_NONE) c->sequence = (int64_t)(given->sequence & INT64_MAX);
    c->datatype = text ? names_add(load->names, text, strlen(text)) : NAME_NONE;
    c->size = given->ranks ? (int64_t)given->ranks : UNKNOWN_NUMBER;
    c->rank = given->rank >= 0 ? given->rank : UNKNOWN_NUMBER;
    collective_set_peer(c, given->peer);
    take_elements(c, function, given->count);
    if (text) collective_size(c, collective_type_bytes(text, false));
}

void load_collectives(struct load *load)
{
    const uint64_t *func = load_column(load, COL_collective_func), *time = load_column(load, COL_collective_time);
    const uint64_t *duration = load_column(load, COL_collective_duration);
    const uint64_t *communicator = load_column(load, COL_collective_communicator);
    const uint64_t *sequence = load_column(load, COL_collective_sequence);
    const uint64_t *count = load_column(load, COL_collective_count), *type = load_column(load, COL_collective_type);
    const uint64_t *peer = load_column(load, COL_collective_peer), *rank = load_column(load, COL_collective_rank);
    const uint64_t *ranks = load_column(load, COL_collective_ranks), *error = load_column(load, COL_collective_error);
    const uint64_t *flags = load_column(load, COL_collective_flags);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        if (error[i] && error[i] != NCCL_IN_PROGRESS) continue;
        uint32_t place = load_func(load, func[i]); /* this call may move process->func */
        const struct func *described = &load->process->func[place];
        struct collective *c = collectives_add(&load->process->collectives);
        nccl_describe(load, c, described->name,
                      &(struct nccl_arguments){.communicator = communicator[i],
                                               .sequence = sequence[i],
                                               .count = count[i],
                                               .type = type[i],
                                               .peer = (int32_t)peer[i],
                                               .rank = (int32_t)rank[i],
                                               .ranks = (uint32_t)ranks[i]});
        c->thread = load->piece->thread;
        c->is_captured = flags[i] & TFI_COLLECTIVE_CAPTURED;
        c->call_start = (int64_t)time[i]; /* ticks until the end of loading */
        c->call_end = load_end(time[i], duration[i]);
    }
}

/* ---- groups of calls ---- */

/* An edge of a group. */
struct edge {
    uint32_t thread;
    bool ends;
    int64_t start, end;
};

static int by_thread_and_start(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    return (x->start > y->start) - (x->start < y->start);
}

static struct edge *find_edges(const struct process *p, size_t *count)
{
    const struct calls *c = &p->calls;
    struct edge *edge = mem_zero(c->table.count, sizeof *edge);
    *count = 0;
    for (size_t i = 0; i < c->table.count; i++) {
        const struct func *func = &p->func[c->func[i]];
        bool begins = strcmp(func->name, "ncclGroupStart") == 0, ends = strcmp(func->name, "ncclGroupEnd") == 0;
        if (begins || ends) edge[(*count)++] = (struct edge){c->thread[i], ends, c->start[i], c->end[i]};
    }
    if (*count) qsort(edge, *count, sizeof *edge, by_thread_and_start);
    return edge;
}

static void find_groups(struct nccl_calls *j)
{
    size_t count, depth = 0;
    struct edge *edge = find_edges(j->process, &count);
    int64_t from = 0;
    for (size_t i = 0; i < count; i++) {
        if (i && edge[i].thread != edge[i - 1].thread) depth = 0;
        if (!edge[i].ends) {
            if (depth++ == 0) from = edge[i].start;
        } else if (depth && --depth == 0) {
            j->group = mem_grow(j->group, &j->group_capacity, j->groups + 1, sizeof *j->group);
            j->group[j->groups++] = (struct group_span){edge[i].thread, from, edge[i].start, edge[i].end};
        }
    }
    free(edge);
}

static int by_thread_and_call(const void *a, const void *b)
{
    const struct collective *x = a, *y = b;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    return (x->call_start > y->call_start) - (x->call_start < y->call_start);
}

/* ---- kernels ---- */

/* The span of the kernels of a collective, and the first of them. */
struct kernels {
    int64_t start, end;
    uint32_t first;
};

static struct kernels one_kernel(const struct process *p, uint32_t work)
{
    return (struct kernels){p->works.start[work], p->works.end[work], work};
}

static void attach(struct collective *c, struct kernels kernels)
{
    if (c->work == NO_WORK || kernels.start < c->start) {
        c->work = kernels.first;
        c->start = kernels.start;
    }
    c->end = MAX(c->end, kernels.end);
}

/* Attaches a kernel to the collective in whose call it was launched, or notes it for its group. */
static void place_kernel(const struct nccl_calls *calls, struct group_launches *launches, uint32_t work)
{
    const struct process *p = calls->process;
    uint64_t correlation = p->works.correlation[work];
    uint32_t span = correlation == NO_ID ? MAP_NONE : map_get(&calls->span_of, correlation);
    if (span == MAP_NONE) return;
    size_t call = nccl_call_at(calls, launches, p->spans.thread[span], p->spans.start[span], work);
    if (call != NO_CALL && !p->collectives.collective[call].is_captured)
        attach(&p->collectives.collective[call], one_kernel(p, work));
}

/* Returns the span of all kernels of a group. */
static struct kernels all_kernels(const struct process *p, const struct group_launch *launch, size_t count)
{
    struct kernels all = one_kernel(p, launch->id);
    for (size_t k = 1; k < count; k++) {
        struct kernels one = one_kernel(p, launch[k].id);
        if (one.start < all.start) all = (struct kernels){one.start, all.end, one.first};
        all.end = MAX(all.end, one.end);
    }
    return all;
}

/* Attaches the kernels of one group to its collectives. */
static void place_group(const struct nccl_calls *calls, const struct group_launch *launch, size_t kernels)
{
    const struct process *p = calls->process;
    struct collective *c = p->collectives.collective;
    struct kernels all = all_kernels(p, launch, kernels);
    struct map number_of = {0};
    size_t first, last;
    nccl_members(calls, launch->group, &first, &last);
    for (size_t i = first; i < last; i++)
        if (!c[i].is_captured) map_number(&number_of, nccl_rank_key(&c[i]));
    for (size_t i = first; i < last; i++) {
        if (c[i].is_captured) continue;
        uint32_t number = map_get(&number_of, nccl_rank_key(&c[i]));
        if (number_of.count == 1) attach(&c[i], all);
        else if (number_of.count == kernels) attach(&c[i], one_kernel(p, launch[number].id));
    }
    map_free(&number_of);
}

void load_collectives_end(struct load *load)
{
    struct process *p = load->process;
    struct nccl_calls calls = {.process = p};
    struct group_launches launches = {0};
    if (!p->collectives.count) return;
    for (size_t i = 0; i < p->collectives.count; i++) {
        struct collective *c = &p->collectives.collective[i];
        c->call_start = clock_ns(&p->clock, (uint64_t)c->call_start);
        c->call_end = clock_ns(&p->clock, (uint64_t)c->call_end);
    }
    qsort(p->collectives.collective, p->collectives.count, sizeof *p->collectives.collective, by_thread_and_call);
    for (size_t i = 0; i < p->spans.table.count; i++)
        if (p->spans.event_class[i] == CLASS_API) map_put(&calls.span_of, p->spans.id[i], (uint32_t)i);
    find_groups(&calls);
    for (size_t i = 0; i < p->works.table.count; i++)
        if (p->works.event_class[i] == CLASS_KERNEL) place_kernel(&calls, &launches, (uint32_t)i);
    group_launches_sort(&launches);
    for (size_t i = 0, next; i < launches.count; i = next) {
        next = group_launches_end(&launches, i);
        place_group(&calls, &launches.launch[i], next - i);
    }
    load_plans_end(load, &calls);
    load_replays(&calls);
    collectives_finish(&p->collectives);
    map_free(&calls.span_of);
    free(calls.group);
    free(launches.launch);
}
