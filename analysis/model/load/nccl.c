/* nccl.c - loads NCCL's collectives from our traces, and finds the kernels that execute them.
 *
 * A kernel was launched inside the call of its collective, or inside the outermost ncclGroupEnd of the group that the
 * call is in. NCCL launches one kernel per communicator of a group. If a group has several communicators, their kernels
 * are assigned in the order of the launches, and only if there are as many kernels as communicators. A captured
 * collective is not loaded: it runs with each replay of its graph, not when it is called. A refused one never runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/load/load.h"

enum { NCCL_IN_PROGRESS = 7 };

/* ---- records ---- */

/* Returns torch's name of an element type, NULL if it has none. */
static const char *type_text(uint64_t type)
{
    static const char *const types[] = {"Char", "Byte",  "Int",    "UInt32",   "Long",          "UInt64",
                                        "Half", "Float", "Double", "BFloat16", "Float8_e4m3fn", "Float8_e5m2"};
    return type < ARRAY_SIZE(types) ? types[type] : NULL;
}

static uint32_t communicator_name(struct load *load, uint64_t hash)
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

/* Fills in the elements of both sides. `count` is the caller's: of the whole buffer, or of one rank's part. */
static void take_elements(struct collective *c, uint64_t count)
{
    uint64_t all = of_all_ranks(c, count);
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

static void take_peer(struct collective *c, int64_t peer)
{
    if (c->op == COLLECTIVE_SEND || c->op == COLLECTIVE_RECV) {
        c->source = c->op == COLLECTIVE_SEND ? c->rank : peer;
        c->peer = c->op == COLLECTIVE_SEND ? peer : c->rank;
    } else if (peer >= 0) {
        c->root = peer;
    }
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
        uint64_t end;
        if ((error[i] && error[i] != NCCL_IN_PROGRESS) || flags[i] & TFI_COLLECTIVE_CAPTURED) continue;
        uint32_t place = load_func(load, func[i]); /* this call may move process->func */
        const struct func *described = &load->process->func[place];
        struct collective *c = collectives_add(&load->process->collectives);
        c->name = names_add(load->names, described->name, strlen(described->name));
        c->op = (uint8_t)collective_op_of(described->name, strlen(described->name));
        c->communicator = communicator_name(load, communicator[i]);
        if (c->communicator != NAME_NONE) c->sequence = (int64_t)(sequence[i] & INT64_MAX);
        const char *text = type_text(type[i]);
        c->datatype = text ? names_add(load->names, text, strlen(text)) : NAME_NONE;
        c->size = ranks[i] ? (int64_t)(uint32_t)ranks[i] : UNKNOWN_NUMBER;
        c->rank = (int32_t)rank[i] >= 0 ? (int32_t)rank[i] : UNKNOWN_NUMBER;
        take_peer(c, (int32_t)peer[i]);
        take_elements(c, count[i]);
        if (text) collective_size(c, collective_type_bytes(text, false));
        c->thread = load->piece->thread;
        c->call_start = (int64_t)time[i]; /* ticks until the end of loading */
        c->call_end = (int64_t)(__builtin_add_overflow(time[i], duration[i], &end) ? time[i] : end);
    }
}

/* ---- groups of calls ---- */

/* The outermost group of a thread: its members are called after `from` and before `to`, and launched until `until`. The
 * groups of a thread do not overlap, so all members together are no more than the collectives. */
struct group_span {
    uint32_t thread;
    int64_t from, to, until;
};

/* A kernel that the end of a group launched. */
struct group_launch {
    size_t group;
    int64_t time;
    uint32_t work;
};

struct joining {
    struct process *process;
    struct map span_of; /* index of the span, by correlation id */
    struct group_span *group;
    size_t groups, group_capacity;
    struct group_launch *launch;
    size_t launches, launch_capacity;
};

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

static void find_groups(struct joining *j)
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

/* ---- kernels ---- */

static int by_thread_and_call(const void *a, const void *b)
{
    const struct collective *x = a, *y = b;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    return (x->call_start > y->call_start) - (x->call_start < y->call_start);
}

/* Returns the index of the first collective that a thread called after `time`. */
static size_t first_after(const struct collectives *c, uint32_t thread, int64_t time)
{
    size_t low = 0, high = c->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct collective *at = &c->collective[middle];
        if (at->thread < thread || (at->thread == thread && at->call_start <= time)) low = middle + 1;
        else high = middle;
    }
    return low;
}

static size_t group_after(const struct joining *j, uint32_t thread, int64_t time)
{
    size_t low = 0, high = j->groups;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct group_span *at = &j->group[middle];
        if (at->thread < thread || (at->thread == thread && at->to <= time)) low = middle + 1;
        else high = middle;
    }
    return low;
}

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
static void place_kernel(struct joining *j, uint32_t work)
{
    struct process *p = j->process;
    uint64_t correlation = p->works.correlation[work];
    uint32_t span = correlation == NO_ID ? MAP_NONE : map_get(&j->span_of, correlation);
    if (span == MAP_NONE) return;
    uint32_t thread = p->spans.thread[span];
    int64_t time = p->spans.start[span];
    size_t after = first_after(&p->collectives, thread, time), group = group_after(j, thread, time);
    struct collective *c = after ? &p->collectives.collective[after - 1] : NULL;
    if (c && c->thread == thread && time <= c->call_end) {
        attach(c, one_kernel(p, work));
    } else if (group && j->group[group - 1].thread == thread && time <= j->group[group - 1].until) {
        j->launch = mem_grow(j->launch, &j->launch_capacity, j->launches + 1, sizeof *j->launch);
        j->launch[j->launches++] = (struct group_launch){group - 1, time, work};
    }
}

static int by_group_and_time(const void *a, const void *b)
{
    const struct group_launch *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    return (x->time > y->time) - (x->time < y->time);
}

/* Returns the span of all kernels of a group. */
static struct kernels all_kernels(const struct process *p, const struct group_launch *launch, size_t count)
{
    struct kernels all = one_kernel(p, launch->work);
    for (size_t k = 1; k < count; k++) {
        struct kernels one = one_kernel(p, launch[k].work);
        if (one.start < all.start) all = (struct kernels){one.start, all.end, one.first};
        all.end = MAX(all.end, one.end);
    }
    return all;
}

/* A process may hold several ranks of a communicator. */
static uint64_t key_of(const struct collective *c)
{
    return (uint64_t)c->communicator << 32 | (uint32_t)c->rank;
}

/* Attaches the kernels of one group to its collectives. */
static void place_group(struct joining *j, const struct group_launch *launch, size_t kernels)
{
    const struct group_span *group = &j->group[launch->group];
    struct collectives *c = &j->process->collectives;
    struct kernels all = all_kernels(j->process, launch, kernels);
    size_t first = first_after(c, group->thread, group->from), last = first_after(c, group->thread, group->to);
    struct map number_of = {0};
    uint32_t communicators = 0;
    for (size_t i = first; i < last; i++)
        if (map_get(&number_of, key_of(&c->collective[i])) == MAP_NONE)
            map_put(&number_of, key_of(&c->collective[i]), communicators++);
    for (size_t i = first; i < last; i++) {
        uint32_t number = map_get(&number_of, key_of(&c->collective[i]));
        if (communicators == 1) attach(&c->collective[i], all);
        else if (communicators == kernels) attach(&c->collective[i], one_kernel(j->process, launch[number].work));
    }
    map_free(&number_of);
}

void load_collectives_end(struct load *load)
{
    struct process *p = load->process;
    struct joining j = {.process = p};
    if (!p->collectives.count) return;
    for (size_t i = 0; i < p->collectives.count; i++) {
        struct collective *c = &p->collectives.collective[i];
        c->call_start = clock_ns(&p->clock, (uint64_t)c->call_start);
        c->call_end = clock_ns(&p->clock, (uint64_t)c->call_end);
    }
    qsort(p->collectives.collective, p->collectives.count, sizeof *p->collectives.collective, by_thread_and_call);
    for (size_t i = 0; i < p->spans.table.count; i++)
        if (p->spans.event_class[i] == CLASS_API) map_put(&j.span_of, p->spans.id[i], (uint32_t)i);
    find_groups(&j);
    for (size_t i = 0; i < p->works.table.count; i++)
        if (p->works.event_class[i] == CLASS_KERNEL) place_kernel(&j, (uint32_t)i);
    if (j.launches) qsort(j.launch, j.launches, sizeof *j.launch, by_group_and_time);
    for (size_t i = 0, next; i < j.launches; i = next) {
        for (next = i + 1; next < j.launches && j.launch[next].group == j.launch[i].group;) next++;
        place_group(&j, &j.launch[i], next - i);
    }
    collectives_finish(&p->collectives);
    map_free(&j.span_of);
    free(j.group);
    free(j.launch);
}
