/* hang_reduction.c - takes the collectives, groups and threads of one process for `hang`. */
#include "ask/hang/hang_reduction.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* ---- groups ---- */

/* Adds the group of a collective if it is new. `seen` has the groups by the hash of their names. */
static void add_communicator(struct hang_taken *taken, struct map *seen, const struct collective *c)
{
    bool is_message = c->op == COLLECTIVE_SEND || c->op == COLLECTIVE_RECV;
    uint64_t key = hash_numbers(hash_numbers(c->communicator, c->members), c->nccl_communicator);
    if (c->communicator == NAME_NONE || (is_message && c->nccl_communicator != NAME_NONE)) return;
    uint32_t at = map_get(seen, key);
    if (at == MAP_NONE) {
        map_put(seen, key, at = (uint32_t)taken->members);
        taken->member = mem_grow(taken->member, &taken->capacity, taken->members + 1, sizeof *taken->member);
        taken->member[taken->members++] =
            (struct hang_member){c->communicator, c->members, c->nccl_communicator, c->rank, c->size};
    }
    struct hang_member *member = &taken->member[at];
    if (member->number == UNKNOWN_NUMBER) member->number = c->rank;
    if (member->size == UNKNOWN_NUMBER) member->size = c->size;
}

/* A process is a member of the communicators that it made, also of those that it never used. */
static void take_communicators(struct hang_taken *taken, const struct process *p)
{
    for (size_t i = 0; i < p->communicators; i++) {
        const struct communicator *c = &p->communicator[i];
        taken->member = mem_grow(taken->member, &taken->capacity, taken->members + 1, sizeof *taken->member);
        taken->member[taken->members++] = (struct hang_member){c->name, NAME_NONE, c->name, c->rank, c->ranks};
    }
}

/* ---- threads ---- */

static struct hang_thread *thread_of(struct hang_taken *taken, struct map *place, uint32_t serial)
{
    uint32_t at = map_get(place, serial);
    return at == MAP_NONE ? NULL : &taken->thread[at];
}

static void add_thread(struct hang_taken *taken, struct map *place, const struct open_thread *open, bool has_slot)
{
    map_put(place, open->serial, (uint32_t)taken->threads);
    taken->thread[taken->threads++] = (struct hang_thread){.open = *open,
                                                           .has_slot = has_slot,
                                                           .last = UNKNOWN_TIME,
                                                           .entered = UNKNOWN_TIME,
                                                           .left = UNKNOWN_TIME,
                                                           .silent_since = UNKNOWN_TIME,
                                                           .raised = UNKNOWN_TIME};
}

/* A process without slots has ended, or its .live file is missing: its threads then have their records only. */
static void take_threads(struct hang_taken *taken, struct map *place, const struct process *p)
{
    taken->thread = mem_zero(p->opens + p->threads + p->silences, sizeof *taken->thread);
    for (size_t i = 0; i < p->opens; i++)
        if (map_get(place, p->open[i].serial) == MAP_NONE) add_thread(taken, place, &p->open[i], true);
    for (size_t i = 0; i < p->threads && !p->opens; i++) {
        const struct thread *thread = &p->thread[i];
        const struct open_thread open = {.serial = thread->serial,
                                         .tid = (uint32_t)thread->tid,
                                         .name = thread->name,
                                         .stage_start = UNKNOWN_TIME,
                                         .collective_start = UNKNOWN_TIME};
        add_thread(taken, place, &open, false);
    }
    for (size_t i = 0; i < p->threads; i++) {
        struct hang_thread *thread = thread_of(taken, place, p->thread[i].serial);
        if (thread && p->thread[i].has_time) thread->last = p->thread[i].last;
    }
}

/* The frames of a thread that has recorded something since they were read say nothing about where it is, except those
 * that abort() read: the other threads ran on until the process ended. Python threads without records become threads of
 * their own. */
static void take_silences(struct hang_taken *taken, struct map *place, const struct process *p)
{
    for (size_t i = 0; i < p->silences; i++) {
        const struct silence *s = &p->silence[i];
        if (s->reading == TFI_READING_RAISED) continue;
        struct hang_thread *thread = s->serial ? thread_of(taken, place, s->serial) : NULL;
        if (!s->serial && s->stack != NAME_NONE) {
            thread = &taken->thread[taken->threads++];
            *thread = (struct hang_thread){
                .open = {.tid = s->tid, .stage_start = UNKNOWN_TIME, .collective_start = UNKNOWN_TIME},
                .last = UNKNOWN_TIME,
                .entered = UNKNOWN_TIME,
                .left = UNKNOWN_TIME,
                .raised = UNKNOWN_TIME};
        }
        bool is_final = s->aborted && taken->has_aborted;
        if (!thread || (!is_final && thread->last != UNKNOWN_TIME && thread->last > s->time)) continue;
        thread->stack = s->stack;
        thread->silent_since = s->since;
    }
}

/* An exception that nothing caught ends the thread's program, unless the thread calls collectives after it, as in an
 * interactive session. Clean-up may make records and may hang: the traceback still says where the thread left. Called
 * after the other frames and the collectives are taken. */
static void take_exceptions(struct hang_taken *taken, struct map *place, const struct process *p)
{
    for (size_t i = 0; i < p->silences; i++) {
        const struct silence *s = &p->silence[i];
        struct hang_thread *thread = s->reading == TFI_READING_RAISED ? thread_of(taken, place, s->serial) : NULL;
        if (!thread || (thread->entered != UNKNOWN_TIME && thread->entered > s->time)) continue;
        thread->stack = s->stack;
        thread->raised = s->time;
        thread->exception = s->exception;
    }
}

/* A process that calls abort() may catch the signal and go on: it has ended by it if nothing follows the records that
 * abort() made, which takes up to a second. */
static bool has_aborted(const struct process *p)
{
    enum { LONGEST = 1000000000 }; /* nanoseconds */
    int64_t time = UNKNOWN_TIME;
    for (size_t i = 0; i < p->silences; i++)
        if (p->silence[i].aborted) time = MAX(time, p->silence[i].time);
    return time != UNKNOWN_TIME && p->life == LIFE_DEAD && add_ns(p->last, -time) < LONGEST;
}

static void take_collectives(struct hang_taken *taken, struct map *place, const struct process *p)
{
    struct map seen = {0};
    for (size_t i = 0; i < p->collectives.count; i++) {
        const struct collective *c = &p->collectives.collective[i];
        struct hang_thread *thread = thread_of(taken, place, c->thread);
        add_communicator(taken, &seen, c);
        if (!thread || c->replay || c->call_start == UNKNOWN_TIME) continue;
        if (thread->entered != UNKNOWN_TIME && thread->entered > c->call_start) continue;
        thread->entered = c->call_start;
        thread->left = c->call_end;
    }
    map_free(&seen);
}

/* ---- the process ---- */

/* True if records may be lost that tell of collectives: neither those of devices nor those of allocators do. */
static bool loses_collectives(const struct process *p)
{
    static const char *const harmless[] = {"device_", "events", "blocks"};
    for (size_t i = 0; i < p->loss_count; i++) {
        const struct loss *loss = &p->losses[i];
        bool matters = loss->lost || strcmp(loss->cause, "communicators") == 0;
        for (size_t k = 0; k < ARRAY_SIZE(harmless); k++)
            matters &= strncmp(loss->cause, harmless[k], strlen(harmless[k])) != 0;
        if (matters && loss->count) return true;
    }
    bool is_cut = p->life == LIFE_DEAD && !p->read_at; /* its last records were in the .live file */
    return is_cut || is_of_kineto(p);
}

static void *reduce_hang(struct scope *scope)
{
    const struct process *p = scope->process;
    struct hang_taken *taken = mem_zero(1, sizeof *taken);
    struct map place = {0};
    taken->comm = comm_reduction.take(scope);
    taken->is_partly_selected = selects_stages(p) || p->switchings > 0;
    taken->is_whole = !taken->is_partly_selected && !loses_collectives(p);
    taken->ended = p->ended ? string_format("%s", p->ended) : NULL;
    taken->has_aborted = has_aborted(p);
    take_threads(taken, &place, p);
    take_silences(taken, &place, p);
    take_collectives(taken, &place, p);
    take_exceptions(taken, &place, p);
    take_communicators(taken, p);
    map_free(&place);
    return taken;
}

static void free_taken(void *summary)
{
    struct hang_taken *taken = summary;
    comm_reduction.free(taken->comm);
    free(taken->thread);
    free(taken->member);
    free(taken->ended);
    free(taken);
}

struct needs hang_needs(const struct options *options)
{
    return needs_union(comm_needs(options), (struct needs){.open = true});
}

/* The command refuses all filters of events. */
static bool stands_alone(const struct options *options)
{
    (void)options;
    return true;
}

const struct reduction hang_reduction = {stands_alone, reduce_hang, free_taken, NULL};
