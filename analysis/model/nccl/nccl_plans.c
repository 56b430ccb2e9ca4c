/* nccl_plans.c - joins what NCCL told its profiler plugin with the collectives: algorithm, protocol, channels and warps.
 *
 * NCCL enqueues a collective inside its call, or inside the end of its group, in the same thread. A plan inside a call is
 * that of the call. The plans of a group come in an order of NCCL's own, so they are assigned by communicator, operation,
 * bytes, root or peer, and rank; equal ones by their order. NCCL's number of a communicator is not ours: a plan of a call,
 * or of a group with one communicator, shows which is which. A plan in another thread is not joined, as with
 * communicators that do not block; nor are the sends and receives of an all-to-all, gather or scatter.
 */
#include <stdlib.h>
#include <string.h>

#include "model/load/load.h"
#include "model/nccl/nccl.h"

enum { MOST_CHANNELS = 255, MOST_WARPS = 255 }; /* NCCL's interface has a byte for each */

struct plan {
    uint32_t thread, algorithm, protocol, known; /* known: our name of the communicator; NAME_NONE: unknown */
    int64_t time;                                /* ticks until the end of loading */
    uint64_t communicator, bytes;                /* communicator: NCCL's number */
    int64_t peer, rank, channels, warps;
    uint8_t op;
};

/* ---- records ---- */

static int64_t number_up_to(uint64_t number, int64_t most)
{
    return number && number <= (uint64_t)most ? (int64_t)number : UNKNOWN_NUMBER;
}

void load_plans(struct load *load)
{
    const uint64_t *function = load_column(load, COL_nccl_plan_function), *time = load_column(load, COL_nccl_plan_time);
    const uint64_t *communicator = load_column(load, COL_nccl_plan_communicator);
    const uint64_t *bytes = load_column(load, COL_nccl_plan_bytes), *peer = load_column(load, COL_nccl_plan_peer);
    const uint64_t *algorithm = load_column(load, COL_nccl_plan_algorithm);
    const uint64_t *protocol = load_column(load, COL_nccl_plan_protocol);
    const uint64_t *rank = load_column(load, COL_nccl_plan_rank);
    const uint64_t *channels = load_column(load, COL_nccl_plan_channels);
    const uint64_t *warps = load_column(load, COL_nccl_plan_warps);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        const struct name *name = names_get(load->names, load_name(load, function[i]));
        load->plan = mem_grow(load->plan, &load->plan_capacity, load->plans + 1, sizeof *load->plan);
        load->plan[load->plans++] = (struct plan){.thread = load->piece->thread,
                                                  .algorithm = load_name(load, algorithm[i]),
                                                  .protocol = load_name(load, protocol[i]),
                                                  .time = (int64_t)time[i],
                                                  .communicator = communicator[i],
                                                  .bytes = bytes[i],
                                                  .peer = (int32_t)peer[i],
                                                  .rank = (int32_t)rank[i],
                                                  .channels = number_up_to(channels[i], MOST_CHANNELS),
                                                  .warps = number_up_to(warps[i], MOST_WARPS),
                                                  .op = (uint8_t)collective_op_of(name->text, name->length)};
    }
}

/* ---- calls ---- */

static void attach(struct collective *c, const struct plan *plan)
{
    c->algorithm = plan->algorithm;
    c->protocol = plan->protocol;
    c->channels = plan->channels;
    c->warps = plan->warps;
}

/* NCCL's communicators by ours. One process may hold several ranks of a communicator. */
static uint64_t key_of(const struct plan *plan)
{
    return plan->communicator ^ (uint64_t)plan->rank << 48;
}

static void learn(struct map *ours, const struct plan *plan, uint32_t communicator)
{
    if (plan->communicator && map_get(ours, key_of(plan)) == MAP_NONE) map_put(ours, key_of(plan), communicator);
}

/* Returns the one communicator of a group; NAME_NONE if there are several. */
static uint32_t only_communicator(const struct nccl_calls *calls, size_t group)
{
    const struct collective *c = calls->process->collectives.collective;
    size_t first, last;
    nccl_members(calls, group, &first, &last);
    for (size_t i = first + 1; i < last; i++)
        if (c[i].communicator != c[first].communicator) return NAME_NONE;
    return first < last ? c[first].communicator : NAME_NONE;
}

/* Attaches the plans inside calls, and lists those of groups in `grouped`. */
static void place_plans(const struct load *load, const struct nccl_calls *calls, struct map *ours,
                        struct group_launches *grouped)
{
    for (size_t i = 0; i < load->plans; i++) {
        struct plan *plan = &load->plan[i];
        size_t call = nccl_call_at(calls, grouped, plan->thread, plan->time, (uint32_t)i);
        struct collective *c = call == NO_CALL ? NULL : &calls->process->collectives.collective[call];
        if (!c || c->op != plan->op) continue;
        attach(c, plan);
        learn(ours, plan, c->communicator);
    }
    group_launches_sort(grouped);
    for (size_t i = 0, next; i < grouped->count; i = next) {
        uint32_t only = only_communicator(calls, grouped->launch[i].group);
        next = group_launches_end(grouped, i);
        for (size_t k = i; k < next; k++) {
            struct plan *plan = &load->plan[grouped->launch[k].id];
            plan->known = only;
            if (only != NAME_NONE) learn(ours, plan, only);
        }
    }
}

/* ---- groups ---- */

/* The values that a plan shares with its collective, by which the two are joined. */
struct common {
    size_t group, place; /* place: of the plan in `grouped`, or of the collective */
    uint32_t communicator;
    uint8_t op;
    uint64_t bytes;
    int64_t peer, rank;
};

static int in_common(const struct common *x, const struct common *y)
{
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->communicator != y->communicator) return x->communicator < y->communicator ? -1 : 1;
    if (x->op != y->op) return x->op < y->op ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    if (x->peer != y->peer) return x->peer < y->peer ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static int by_common_and_place(const void *a, const void *b)
{
    const struct common *x = a, *y = b;
    int order = in_common(x, y);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

/* Returns the root or the peer, for the operations that have one. */
static int64_t peer_of(uint8_t op, int64_t root, int64_t source, int64_t peer)
{
    switch (op) {
    case COLLECTIVE_BROADCAST:
    case COLLECTIVE_REDUCE: return root;
    case COLLECTIVE_SEND: return peer;
    case COLLECTIVE_RECV: return source;
    default: return UNKNOWN_NUMBER;
    }
}

/* Returns the bytes that the caller passed: the smaller side of a collective, the only one of a message. */
static uint64_t caller_bytes(const struct collective *c)
{
    uint64_t in = c->bytes_in == UNKNOWN_COUNT ? 0 : c->bytes_in,
             out = c->bytes_out == UNKNOWN_COUNT ? 0 : c->bytes_out;
    return in && out ? MIN(in, out) : MAX(in, out);
}

static struct common of_plan(const struct plan *p, size_t group, size_t place)
{
    return (struct common){.group = group,
                           .place = place,
                           .communicator = p->known,
                           .op = p->op,
                           .bytes = p->bytes,
                           .peer = peer_of(p->op, p->peer, p->peer, p->peer),
                           .rank = p->rank};
}

static struct common of_collective(const struct collective *c, size_t group, size_t place)
{
    return (struct common){.group = group,
                           .place = place,
                           .communicator = c->communicator,
                           .op = c->op,
                           .bytes = caller_bytes(c),
                           .peer = peer_of(c->op, c->root, c->source, c->peer),
                           .rank = c->rank};
}

struct commons {
    struct common *common;
    size_t count, capacity;
};

static void add_common(struct commons *all, struct common one)
{
    all->common = mem_grow(all->common, &all->capacity, all->count + 1, sizeof *all->common);
    all->common[all->count++] = one;
}

static void sort(struct commons *all)
{
    if (all->count) qsort(all->common, all->count, sizeof *all->common, by_common_and_place);
}

/* Attaches the plans of groups: the k-th plan to the k-th collective with which it has everything in common. */
static void place_groups(const struct load *load, const struct nccl_calls *calls, const struct map *ours,
                         const struct group_launches *grouped)
{
    struct collective *c = calls->process->collectives.collective;
    struct commons plans = {0}, members = {0};
    for (size_t i = 0, next; i < grouped->count; i = next) {
        size_t group = grouped->launch[i].group, first, last;
        next = group_launches_end(grouped, i);
        for (size_t k = i; k < next; k++) {
            struct plan *plan = &load->plan[grouped->launch[k].id];
            uint32_t known = plan->known == NAME_NONE ? map_get(ours, key_of(plan)) : plan->known;
            plan->known = known == MAP_NONE ? NAME_NONE : known;
            add_common(&plans, of_plan(plan, group, k));
        }
        nccl_members(calls, group, &first, &last);
        for (size_t k = first; k < last; k++) add_common(&members, of_collective(&c[k], group, k));
    }
    sort(&plans);
    sort(&members);
    for (size_t i = 0, k = 0; i < plans.count && k < members.count;) {
        const struct common *plan = &plans.common[i], *member = &members.common[k];
        int order = in_common(plan, member);
        if (order == 0) attach(&c[member->place], &load->plan[grouped->launch[plan->place].id]);
        i += order <= 0;
        k += order >= 0;
    }
    free(plans.common);
    free(members.common);
}

void load_plans_end(struct load *load, const struct nccl_calls *calls)
{
    struct map ours = {0};
    struct group_launches grouped = {0};
    for (size_t i = 0; i < load->plans; i++)
        load->plan[i].time = clock_ns(&load->process->clock, (uint64_t)load->plan[i].time);
    place_plans(load, calls, &ours, &grouped);
    place_groups(load, calls, &ours, &grouped);
    map_free(&ours);
    free(grouped.launch);
}
