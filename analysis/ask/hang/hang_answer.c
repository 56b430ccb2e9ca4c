/* hang_answer.c - matches the collectives of all ranks, asks each group for what is unmatched, and finds who holds whom up. */
#include "ask/hang/hang_answer.h"

#include <stdlib.h>
#include <string.h>

#include "ask/hang/group.h"

/* ---- processes ---- */

/* A rank may have several processes, such as workers of a data loader: the one with most collectives stands for it. */
static void find_places(struct hang *hang)
{
    for (size_t i = 0; i < hang->chosen->processes; i++) {
        int64_t rank = hang->chosen->process[i]->rank;
        uint32_t other = rank < 0 ? MAP_NONE : map_get(&hang->place, (uint64_t)rank);
        if (rank < 0 ||
            (other != MAP_NONE && hang->taken[other]->comm->parts.count >= hang->taken[i]->comm->parts.count))
            continue;
        map_put(&hang->place, (uint64_t)rank, (uint32_t)i);
    }
}

/* A running process tells of everything up to the moment at which its trace was read. */
static void find_end(struct hang *hang)
{
    hang->end = UNKNOWN_TIME;
    for (size_t i = 0; i < hang->chosen->processes; i++) {
        const struct process *p = hang->chosen->process[i];
        if (!p->has_time) continue;
        bool runs = p->life == LIFE_RUNNING && p->is_life_known && p->clock.has_axis;
        hang->end = MAX(hang->end, hang_moment(hang, i, runs ? MAX(p->last, p->read_at) : p->last));
    }
}

/* ---- groups ---- */

/* A call of NCCL that has not returned has the number of its communicator only. The process group of that communicator
 * is known from earlier calls, of this rank or another one. */
static void name_groups(const struct hang *hang)
{
    struct map known = {0}; /* the first member with a process group, by communicator: its place in `list` */
    const struct hang_member **list = NULL;
    size_t count = 0, capacity = 0;
    for (size_t i = 0; i < hang->chosen->processes; i++) {
        for (size_t k = 0; k < hang->taken[i]->members; k++) {
            const struct hang_member *m = &hang->taken[i]->member[k];
            if (m->nccl_communicator == NAME_NONE || m->group == m->nccl_communicator) continue;
            if (map_get(&known, m->nccl_communicator) != MAP_NONE) continue;
            list = mem_grow(list, &capacity, count + 1, sizeof *list);
            list[count] = m;
            map_put(&known, m->nccl_communicator, (uint32_t)count++);
        }
    }
    for (size_t i = 0; i < hang->chosen->processes && count; i++) {
        struct comm_summary *parts = &hang->taken[i]->comm->parts;
        for (size_t k = 0; k < parts->count; k++) {
            uint32_t at = parts->part[k].group == NAME_NONE ? MAP_NONE : map_get(&known, parts->part[k].group);
            if (at == MAP_NONE) continue;
            parts->part[k].group = list[at]->group;
            parts->part[k].members = list[at]->members;
        }
        for (size_t k = 0; k < hang->taken[i]->members; k++) {
            struct hang_member *m = &hang->taken[i]->member[k];
            uint32_t at = m->group == m->nccl_communicator ? map_get(&known, m->group) : MAP_NONE;
            if (at == MAP_NONE) continue;
            m->members = list[at]->members;
            m->group = list[at]->group;
        }
    }
    map_free(&known);
    free(list);
}

static int by_key(const void *a, const void *b)
{
    const struct hang_place *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

static struct hang_places find_members(const struct hang *hang)
{
    struct hang_places places = {0};
    size_t capacity = 0;
    for (size_t i = 0; i < hang->chosen->processes; i++) {
        for (size_t k = 0; k < hang->taken[i]->members; k++) {
            const struct hang_member *m = &hang->taken[i]->member[k];
            places.place = mem_grow(places.place, &capacity, places.count + 1, sizeof *places.place);
            places.place[places.count++] =
                (struct hang_place){hang_group_key(m->group, m->members), i, m->number, m->size};
        }
    }
    if (places.count) qsort(places.place, places.count, sizeof *places.place, by_key);
    return places;
}

static void find_unmatched(struct hang *hang)
{
    const struct comm_summary *s = &hang->job.summary;
    struct hang_places places = find_members(hang);
    for (size_t first = 0, end; first < s->count; first = end) {
        for (end = first + 1; end < s->count && comm_group_order(s->names, &s->part[first], &s->part[end]) == 0;) end++;
        if (s->part[first].group != NAME_NONE) hang_group(hang, &places, first, end);
    }
    free(places.place);
}

/* ---- who holds whom up ---- */

bool hang_is_inside(const struct hang_thread *t)
{
    enum { SLACK = 1000000 }; /* the records that frameworks write around the call, in nanoseconds */
    if (!t || t->entered == UNKNOWN_TIME) return false;
    if (t->left == UNKNOWN_TIME || (t->has_slot && t->open.calls)) return true;
    return t->last != UNKNOWN_TIME && t->last <= add_ns(t->left, SLACK);
}

/* Returns the collective that a thread called last; NULL if it called none, or one that has ended. */
const struct comm_part *hang_last_part(const struct hang *hang, int64_t rank, const struct hang_thread *t)
{
    uint32_t at = t->entered == UNKNOWN_TIME ? MAP_NONE : map_get(&hang->part_of, hang_call_key(rank, t->entered));
    if (at == MAP_NONE || hang->job.summary.part[at].end != UNKNOWN_TIME) return NULL;
    return &hang->job.summary.part[at];
}

/* True if a rank waits for its last collective. A host that enqueued one of NCCL waits only while it is in a call. */
static bool is_held(const struct hang *hang, int64_t rank)
{
    size_t place = hang_place(hang, rank);
    const struct hang_thread *t = place == SIZE_MAX ? NULL : hang_main_thread(hang->taken[place]);
    const struct comm_part *part = t ? hang_last_part(hang, rank, t) : NULL;
    if (!part || !hang_is_inside(t)) return false;
    bool is_of_nccl = strncmp(names_get(hang->job.summary.names, part->name)->text, "nccl", 4) == 0;
    return !is_of_nccl || (t->has_slot && t->open.calls);
}

/* True if a process is gone while others run: it waits for nothing. */
static bool is_gone(const struct hang *hang, int64_t rank, bool running)
{
    size_t place = hang_place(hang, rank);
    const struct process *p = place == SIZE_MAX ? NULL : hang->chosen->process[place];
    return running && p && p->life != LIFE_RUNNING && p->is_life_known;
}

static void find_held(struct hang *hang)
{
    bool running = false;
    for (size_t i = 0; i < hang->chosen->processes; i++)
        running |= hang->chosen->process[i]->life == LIFE_RUNNING && hang->chosen->process[i]->is_life_known;
    size_t first = 0;
    for (size_t i = 0; i < hang->count; i++) {
        struct hang_unmatched *u = &hang->unmatched[i];
        u->is_first = u->differs || u->all_came;
        for (size_t k = 0; k < u->ranks; k++) {
            struct hang_rank *r = &u->rank[k];
            bool waits = r->role == HANG_MISSING && !is_gone(hang, r->rank, running) && is_held(hang, r->rank);
            if (waits) r->role = HANG_HELD;
            u->is_first |= r->role == HANG_MISSING || r->role == HANG_GONE;
            u->holds |= r->role == HANG_HELD;
        }
        first += u->is_first;
    }
    for (size_t i = 0; i < hang->count && !first; i++) hang->unmatched[i].is_first = true; /* they wait in a circle */
}

static int by_cause(const void *a, const void *b)
{
    const struct hang_unmatched *x = a, *y = b;
    if (x->is_first != y->is_first) return x->is_first ? -1 : 1;
    if (x->holds != y->holds) return x->holds ? 1 : -1;
    if (x->since != y->since) return x->since < y->since ? -1 : 1;
    return (x->part > y->part) - (x->part < y->part);
}

static void find_open(struct hang *hang)
{
    for (size_t i = 0; i < hang->chosen->processes; i++) {
        const struct hang_taken *taken = hang->taken[i];
        int64_t rank = hang->chosen->process[i]->rank;
        for (size_t k = 0; k < taken->threads && hang_place(hang, rank) == i; k++)
            map_put(&hang->open, hang_call_key(rank, taken->thread[k].open.collective_start), 1);
    }
}

void hang_find(struct hang *hang, const struct selection *chosen, void *const *taken)
{
    *hang = (struct hang){.chosen = chosen, .taken = (struct hang_taken *const *)taken};
    void **parts = mem_zero(chosen->processes, sizeof *parts);
    one_clock_find(&hang->clock, chosen);
    find_places(hang);
    find_open(hang);
    find_end(hang);
    name_groups(hang);
    for (size_t i = 0; i < chosen->processes; i++) parts[i] = hang->taken[i]->comm;
    comm_collect(&hang->job, chosen, parts);
    find_unmatched(hang);
    for (size_t i = 0; i < hang->job.summary.count; i++) {
        const struct comm_part *part = &hang->job.summary.part[i];
        if (!part->replay) map_put(&hang->part_of, hang_call_key(part->rank, part->call_start), (uint32_t)i);
    }
    find_held(hang);
    if (hang->count) qsort(hang->unmatched, hang->count, sizeof *hang->unmatched, by_cause);
    free(parts);
}

const struct hang_rank *hang_rank_in(const struct hang_unmatched *u, int64_t rank)
{
    size_t low = 0, high = u->ranks;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (u->rank[middle].rank < rank) low = middle + 1;
        else high = middle;
    }
    return low < u->ranks && u->rank[low].rank == rank ? &u->rank[low] : NULL;
}

void hang_free(struct hang *hang)
{
    for (size_t i = 0; i < hang->count; i++) free(hang->unmatched[i].rank);
    for (size_t i = 0; i < hang->copies; i++) free(hang->copy[i]);
    free(hang->copy);
    free(hang->unmatched);
    map_free(&hang->place);
    map_free(&hang->part_of);
    map_free(&hang->open);
    map_free(&hang->unmatched_of);
    comm_job_free(&hang->job);
    one_clock_free(&hang->clock);
    *hang = (struct hang){0};
}
