/* ranks.c - finds the idle device time of a rank that waits for calls on files. */
#include "ask/io/ranks.h"

#include <stdlib.h>

static void add_all(struct intervals *set, const struct intervals *from)
{
    for (size_t i = 0; i < from->count; i++) intervals_add(set, from->interval[i].start, from->interval[i].end);
}

/* Sets `gaps` to the time between the intervals of a merged set. */
static void find_gaps(struct intervals *gaps, const struct intervals *set)
{
    for (size_t i = 1; i < set->count; i++) intervals_add(gaps, set->interval[i - 1].end, set->interval[i].start);
}

/* ---- late batches ---- */

/* A batch that a worker made. */
struct made {
    int64_t end, number, pid;
    uint32_t process, batch;
};

/* The batches of all workers of a rank. */
struct team {
    struct made *by_end;    /* sorted by end */
    struct made *by_number; /* sorted by worker, number and end */
    size_t count;
};

static int by_end(const void *a, const void *b)
{
    return by_number(((const struct made *)a)->end, ((const struct made *)b)->end);
}

static int by_worker(const void *a, const void *b)
{
    const struct made *x = a, *y = b;
    if (x->pid != y->pid) return by_number(x->pid, y->pid);
    return x->number != y->number ? by_number(x->number, y->number) : by_number(x->end, y->end);
}

static struct team team_of(const struct io_rank *rank)
{
    struct team team = {0};
    for (size_t i = 0; i < rank->processes; i++)
        team.count += rank->taken[i]->batches.by_worker ? rank->taken[i]->batches.mades : 0;
    if (!team.count) return team;
    team.by_end = mem_zero(team.count, sizeof *team.by_end);
    team.by_number = mem_zero(team.count, sizeof *team.by_number);
    for (size_t i = 0, n = 0; i < rank->processes; i++) {
        const struct io_taken *t = rank->taken[i];
        for (size_t k = 0; t->batches.by_worker && k < t->batches.mades; k++, n++) {
            const struct io_batch *batch = &t->batches.made[k];
            team.by_end[n] = (struct made){batch->end, batch->number, t->pid, (uint32_t)i, (uint32_t)k};
            team.by_number[n] = team.by_end[n];
        }
    }
    qsort(team.by_end, team.count, sizeof *team.by_end, by_end);
    qsort(team.by_number, team.count, sizeof *team.by_number, by_worker);
    return team;
}

/* Returns the last of sorted entries that is not above a key; NULL if all are. */
static const void *last_until(const void *sorted, size_t count, size_t size, const void *key,
                              int (*compare)(const void *, const void *))
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (compare((const char *)sorted + middle * size, key) <= 0) low = middle + 1;
        else high = middle;
    }
    return low ? (const char *)sorted + (low - 1) * size : NULL;
}

static int by_hand(const void *a, const void *b)
{
    return by_number(((const struct io_hand *)a)->end, ((const struct io_hand *)b)->end);
}

static int by_batch_end(const void *a, const void *b)
{
    return by_number(((const struct io_batch *)a)->end, ((const struct io_batch *)b)->end);
}

/* Returns what the loader of a process handed over in a wait; NULL: nothing that is known. */
static const struct io_hand *handed_in(const struct io_batches *b, const struct io_batch *wait)
{
    const struct io_hand *hand =
        last_until(b->hand, b->hands, sizeof *b->hand, &(struct io_hand){.end = wait->end}, by_hand);
    return hand && hand->end > wait->start ? hand : NULL;
}

/* Returns the batch that ended a wait; NULL: unknown. */
static const struct made *made_for(const struct team *team, const struct io_hand *hand, const struct io_batch *wait)
{
    if (!hand)
        return last_until(team->by_end, team->count, sizeof *team->by_end, &(struct made){.end = wait->end}, by_end);
    const struct made key = {.end = hand->end, .number = hand->number, .pid = hand->pid};
    const struct made *made = last_until(team->by_number, team->count, sizeof key, &key, by_worker);
    return made && made->pid == hand->pid && made->number == hand->number ? made : NULL;
}

static void add_late(struct io_rank *rank, struct io_late_wait late)
{
    rank->late = mem_grow(rank->late, &rank->late_capacity, rank->lates + 1, sizeof *rank->late);
    rank->late[rank->lates++] = late;
}

/* Finds the late batches of one process, and adds the time in which it waits for them to the windows. */
static void add_waits(struct io_rank *rank, size_t process, const struct team *team)
{
    const struct io_batches *b = &rank->taken[process]->batches;
    for (size_t i = 0; i < b->waits; i++) {
        const struct io_batch *wait = &b->wait[i];
        const struct io_hand *hand = handed_in(b, wait);
        const struct made *made = made_for(team, hand, wait);
        const struct io_batch *own =
            b->by_worker ? NULL : last_until(b->made, b->mades, sizeof *own, wait, by_batch_end);
        if (!team->count) intervals_add(&rank->shared, wait->start, wait->end);
        if (own && own->start >= wait->start) {
            add_late(rank, (struct io_late_wait){*wait, process, (size_t)(own - b->made), own->start});
        } else if (made && made->end > wait->start) {
            add_late(rank, (struct io_late_wait){*wait, made->process, made->batch, hand ? hand->start : -1});
            intervals_add(&rank->window[made->process], wait->start, made->end);
        }
    }
}

/* Leaves the idle part of a set. All sets together are as long as the waits, and each one costs the logarithm of the
 * rank's idle time for each of its intervals. */
static void leave_idle(struct intervals *set, const struct intervals *idle)
{
    intervals_merge(set);
    struct intervals common = intervals_common(set, idle);
    intervals_free(set);
    *set = common;
}

static enum io_role role_of(const struct io_taken *t, bool has_batches)
{
    bool is_own = has_batches || t->batches.waits;
    for (size_t i = 0; i < t->rows; i++) is_own |= t->row[i].waited.count != 0;
    return t->batches.by_worker ? IO_WORKER : is_own ? IO_OWN : IO_HELPER;
}

static void find_windows(struct io_rank *rank)
{
    struct team team = team_of(rank);
    for (size_t i = 0; i < rank->processes; i++) {
        rank->role[i] = role_of(rank->taken[i], team.count != 0);
        add_waits(rank, i, &team);
    }
    for (size_t i = 0; i < rank->processes; i++) {
        if (rank->window[i].count) leave_idle(&rank->window[i], &rank->idle);
        measure_init(&rank->waiting[i], &rank->window[i]);
    }
    leave_idle(&rank->shared, &rank->idle);
    measure_init(&rank->sharing, &rank->shared);
    free(team.by_end);
    free(team.by_number);
}

/* ---- a rank ---- */

void io_rank_init(struct io_rank *rank, struct io_taken **taken, size_t processes)
{
    *rank = (struct io_rank){.rank = taken[0]->rank, .taken = taken, .processes = processes};
    for (size_t i = 0; i < processes; i++) {
        add_all(&rank->device, &taken[i]->device);
        add_all(&rank->asked, &taken[i]->asked);
    }
    intervals_merge(&rank->device);
    intervals_merge(&rank->asked);
    rank->has_device = rank->device.count != 0;
    for (size_t i = 0; i < processes; i++)
        add_all(&rank->compute, rank->has_device ? &taken[i]->device : &taken[i]->compute);
    intervals_merge(&rank->compute);
    rank->computed = intervals_total(&rank->compute);
    find_gaps(&rank->idle, &rank->device);
    measure_init(&rank->computing, &rank->compute);
    measure_init(&rank->idling, &rank->idle);
    rank->role = mem_zero(processes, sizeof *rank->role);
    rank->window = mem_zero(processes, sizeof *rank->window);
    rank->waiting = mem_zero(processes, sizeof *rank->waiting);
    find_windows(rank);
}

void io_rank_free(struct io_rank *rank)
{
    for (size_t i = 0; i < rank->processes; i++) {
        intervals_free(&rank->window[i]);
        measure_free(&rank->waiting[i]);
    }
    free(rank->role);
    free(rank->late);
    free(rank->window);
    measure_free(&rank->sharing);
    intervals_free(&rank->shared);
    free(rank->waiting);
    measure_free(&rank->computing);
    measure_free(&rank->idling);
    intervals_free(&rank->device);
    intervals_free(&rank->compute);
    intervals_free(&rank->idle);
    intervals_free(&rank->asked);
    *rank = (struct io_rank){0};
}

int64_t io_rank_idle(const struct io_rank *rank, size_t process, const struct io_row *row)
{
    switch (rank->role[process]) {
    case IO_WORKER: return measure_overlap(&rank->waiting[process], &row->when);
    case IO_HELPER: return measure_overlap(&rank->sharing, &row->when);
    default: return measure_overlap(&rank->idling, &row->waited);
    }
}

/* Adds the times of a process's calls that count by its role. */
static void add_calls(struct intervals *set, const struct io_taken *t, enum io_role role)
{
    for (size_t i = 0; i < t->rows; i++) add_all(set, role == IO_OWN ? &t->row[i].waited : &t->row[i].when);
}

int64_t io_rank_idle_time(const struct io_rank *rank, size_t from, size_t count)
{
    struct intervals of_role[] = {[IO_OWN] = {0}, [IO_WORKER] = {0}, [IO_HELPER] = {0}}, all = {0};
    int64_t total;
    for (size_t i = from; i < from + count; i++) {
        enum io_role role = rank->role[i];
        struct intervals calls = {0};
        if (role == IO_WORKER && count > 1) { /* each worker has a window of its own */
            add_calls(&calls, rank->taken[i], role);
            intervals_merge(&calls);
            struct intervals idle = intervals_common(&calls, &rank->window[i]);
            add_all(&all, &idle);
            intervals_free(&idle);
            intervals_free(&calls);
        } else {
            add_calls(&of_role[role], rank->taken[i], role);
        }
    }
    for (unsigned role = 0; role < 3; role++) intervals_merge(&of_role[role]);
    if (count == 1) {
        const struct io_row row = {.when = of_role[rank->role[from]], .waited = of_role[rank->role[from]]};
        total = io_rank_idle(rank, from, &row);
    } else {
        struct intervals own = intervals_common(&of_role[IO_OWN], &rank->idle);
        struct intervals helped = intervals_common(&of_role[IO_HELPER], &rank->shared);
        add_all(&all, &own);
        add_all(&all, &helped);
        intervals_merge(&all);
        total = intervals_total(&all);
        intervals_free(&own);
        intervals_free(&helped);
    }
    for (unsigned role = 0; role < 3; role++) intervals_free(&of_role[role]);
    intervals_free(&all);
    return total;
}
