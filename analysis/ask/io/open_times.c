/* open_times.c - finds when the chosen stages of a rank are open. */
#include "ask/io/open_times.h"

#include <stdlib.h>

#include "ask/choice.h"
#include "ask/stages/order.h"

struct all_times {
    struct map place; /* index in `times`, by rank */
    struct open_times **times;
    size_t count, capacity;
};

static void free_all(void *data)
{
    struct all_times *all = data;
    for (size_t i = 0; i < all->count; i++) {
        measure_free(&all->times[i]->in_open);
        intervals_free(&all->times[i]->open);
        free(all->times[i]);
    }
    free(all->times);
    map_free(&all->place);
    free(all);
}

/* Replaces `set` by the part of it that lies in `other`. */
static void cut(struct intervals *set, const struct intervals *other)
{
    struct intervals common = intervals_common(set, other);
    intervals_free(set);
    *set = common;
}

static void add_process(struct open_times *times, const struct selection *chosen, const struct process *process)
{
    const struct ranges *r = &process->ranges;
    bool by_stage = chosen->options->stage.count != 0;
    struct choice choice;
    struct intervals open = {0};
    choice_init(&choice, chosen, process);
    if (!by_stage) intervals_add(&open, INT64_MIN / 4, INT64_MAX / 4);
    for (size_t i = 0; by_stage && i < r->table.count; i++)
        if (is_stage(r, i) && selection_wants(chosen, r->name[i])) intervals_add(&open, r->start[i], r->end[i]);
    intervals_merge(&open);
    if (choice.by_step) cut(&open, &choice.steps);
    if (choice.by_cycle) cut(&open, &choice.cycles);
    for (size_t i = 0; i < open.count; i++) intervals_add(&times->open, open.interval[i].start, open.interval[i].end);
    intervals_free(&open);
    choice_free(&choice);
}

static struct open_times *find_open_times(const struct selection *chosen, int64_t rank)
{
    struct open_times *times = mem_zero(1, sizeof *times);
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct process *p = chosen->process[i];
        if (p->rank != rank || !has_stages(p)) continue;
        times->has_stages = true;
        add_process(times, chosen, p);
    }
    intervals_merge(&times->open);
    measure_init(&times->in_open, &times->open);
    return times;
}

const struct open_times *open_times_of(const struct selection *chosen, int64_t rank)
{
    struct shared_once *once = chosen->open_stages;
    mem_hold(&once->lock);
    if (!once->data) {
        once->data = mem_zero(1, sizeof(struct all_times));
        once->free = free_all;
    }
    struct all_times *all = once->data;
    uint32_t at = map_get(&all->place, (uint64_t)rank);
    if (at == MAP_NONE) {
        struct open_times *times = find_open_times(chosen, rank);
        at = (uint32_t)all->count;
        all->times = mem_grow(all->times, &all->capacity, all->count + 1, sizeof(struct open_times *));
        all->times[all->count++] = times;
        map_put(&all->place, (uint64_t)rank, at);
    }
    const struct open_times *found = all->times[at];
    mem_release(&once->lock);
    return found;
}
