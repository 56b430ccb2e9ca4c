/* parts.c - numbers the collectives of each rank, so that they can be matched, and unites those of all ranks.
 *
 * The key of a collective is its communicator and its sequence number. A collective without a recorded number gets its
 * place by time among those of its communicator on the rank. The time is that of the call, or of the kernel where some
 * call is missing. Filters mark parts after the numbering, so no filter changes what is matched. A message between two
 * ranks has its place among those of the same two ranks. Collectives without a communicator are counted by operation.
 * A recorded number that falls to the lowest so far, or below it, begins an epoch: the communicator was made anew.
 * A run of a call that was captured in a graph has the call's number and its own, and is none of these.
 * Several traces of one rank are several runs if their times are apart, as are traces of worlds of different size.
 */
#include "ask/comm/parts.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/jobs.h"

/* ---- runs and clocks ---- */

/* A process with collectives. */
struct place {
    const struct process *process;
    struct comm_summary *parts;
    size_t index; /* in the selection */
    uint32_t run, clock;
};

static int by_rank_and_time(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    const struct process *p = x->process, *q = y->process;
    if (p->rank != q->rank) return p->rank < q->rank ? -1 : 1;
    if (p->first != q->first) return p->first < q->first ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static int by_world_and_time(const void *a, const void *b)
{
    const struct place *x = *(const struct place *const *)a, *y = *(const struct place *const *)b;
    const struct process *p = x->process, *q = y->process;
    if (p->world != q->world) return p->world < q->world ? -1 : 1;
    if (p->first != q->first) return p->first < q->first ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static bool is_on_axis(const struct process *process)
{
    return process->clock.has_axis && process->has_time;
}

/* Numbers the runs: by the size of the world, and by time where some rank has several traces. */
static size_t find_runs(struct place *place, size_t count)
{
    struct place **order = mem_zero(count, sizeof *order);
    bool repeats = false;
    uint32_t run = 0;
    int64_t last = 0;
    for (size_t i = 0; i < count; i++) {
        const struct process *p = place[i].process;
        order[i] = &place[i];
        repeats |= i && p->rank == place[i - 1].process->rank && p->world == place[i - 1].process->world;
    }
    if (count) qsort(order, count, sizeof *order, by_world_and_time);
    for (size_t i = 0; i < count; i++) {
        const struct process *p = order[i]->process;
        bool other_world = i && p->world != order[i - 1]->process->world;
        bool apart = i && repeats && is_on_axis(p) && is_on_axis(order[i - 1]->process) && p->first > last;
        run += other_world || apart;
        last = !i || other_world || apart ? p->last : MAX(last, p->last);
        order[i]->run = run;
    }
    free(order);
    return count ? run + 1 : 0;
}

/* Numbers the clocks: a host has one, and a trace off the axis has its own. */
static size_t find_clocks(struct place *place, size_t count)
{
    struct names hosts;
    uint32_t clocks = 0;
    struct map clock_of = {0};
    names_init(&hosts);
    for (size_t i = 0; i < count; i++) {
        const struct process *p = place[i].process;
        const char *host = p->host ? p->host : "";
        uint32_t name = names_add(&hosts, host, strlen(host)), known = map_get(&clock_of, name);
        if (!is_on_axis(p) || known == MAP_NONE) {
            place[i].clock = clocks++;
            if (is_on_axis(p)) map_put(&clock_of, name, place[i].clock);
        } else {
            place[i].clock = known;
        }
    }
    map_free(&clock_of);
    names_free(&hosts);
    return clocks;
}

/* ---- numbers ---- */

/* A part while a rank's parts are numbered. */
struct numbered {
    const struct names *names;
    struct comm_part part;
    int64_t time;
    size_t place; /* in the order of the files */
};

static int same_order(const struct numbered *x, const struct numbered *y)
{
    int order = comm_group_order(x->names, &x->part, &y->part);
    if (!order) order = by_number(x->part.source, y->part.source);
    if (!order) order = by_number(x->part.peer, y->part.peer);
    if (!order) order = by_number((int64_t)x->part.alone, (int64_t)y->part.alone);
    return order ? order : by_number(x->part.replay > 0, y->part.replay > 0);
}

static int by_group(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    int order = same_order(x, y);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

static int parts_by_time(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    if (x->part.file_start_us != y->part.file_start_us) return x->part.file_start_us < y->part.file_start_us ? -1 : 1;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* Puts the parts of one communicator into the order of time. */
static void order_group(struct numbered *n, size_t count)
{
    bool called = true;
    for (size_t i = 0; i < count; i++) called &= n[i].part.call_start != UNKNOWN_TIME;
    for (size_t i = 0; i < count; i++) {
        const struct comm_part *part = &n[i].part;
        n[i].time = called || part->start == UNKNOWN_TIME ? part->call_start : part->start;
        if (part->file_duration_us >= 0) n[i].time = 0; /* only the file's own times count, then the place */
    }
    qsort(n, count, sizeof *n, parts_by_time);
}

static uint64_t number_group(struct numbered *n, size_t count)
{
    bool recorded = true;
    uint64_t restarts = 0;
    uint32_t epoch = 0, again = 0;
    int64_t least = 0;
    for (size_t i = 0; i < count; i++) recorded &= n[i].part.sequence != UNKNOWN_NUMBER;
    for (size_t i = 0; i < count; i++) {
        struct comm_part *part = &n[i].part;
        int64_t before = i ? n[i - 1].part.sequence : UNKNOWN_NUMBER;
        bool same = recorded && i && part->sequence == before;
        bool restart = recorded && i && !same && part->sequence <= least;
        epoch += restart;
        restarts += restart;
        again = same ? again + 1 : 0;
        least = !i || restart ? part->sequence : MIN(least, part->sequence);
        part->epoch = epoch;
        part->again = recorded ? again : 0;
        part->is_counted = !recorded;
        if (!recorded) part->sequence = (int64_t)i;
    }
    return restarts;
}

/* Gives each part of one rank its sequence number. */
static uint64_t number_all(struct comm_summary *s)
{
    struct numbered *n = mem_zero(s->count, sizeof *n);
    uint64_t restarts = 0;
    for (size_t i = 0; i < s->count; i++) n[i] = (struct numbered){.names = s->names, .part = s->part[i], .place = i};
    if (s->count) qsort(n, s->count, sizeof *n, by_group);
    for (size_t first = 0, end; first < s->count; first = end) {
        for (end = first + 1; end < s->count && same_order(&n[first], &n[end]) == 0;) end++;
        if (n[first].part.replay) continue;
        order_group(n + first, end - first);
        restarts += number_group(n + first, end - first);
    }
    for (size_t i = 0; i < s->count; i++) s->part[i] = n[i].part;
    free(n);
    return restarts;
}

/* ---- all ranks ---- */

struct rank_task {
    size_t first, end; /* its processes, in `place` */
    struct comm_summary summary;
    uint64_t restarts;
};

struct tasks {
    const struct place *place;
    struct rank_task *task;
    size_t count;
    atomic_size_t next;
};

/* Moves the parts of a process to the rank. */
static void add_process(struct comm_summary *summary, const struct place *place)
{
    bool on_axis = is_on_axis(place->process);
    for (size_t i = 0; i < place->parts->count; i++) {
        struct comm_part *part = &place->parts->part[i];
        part->run = place->run;
        part->clock = place->clock;
        part->axis = on_axis ? 0 : place->clock + 1;
    }
    comm_append(summary, place->parts);
}

static void *summarise(void *argument)
{
    struct tasks *tasks = argument;
    size_t i;
    while ((i = atomic_fetch_add(&tasks->next, 1)) < tasks->count) {
        struct rank_task *task = &tasks->task[i];
        task->summary.names = tasks->place[task->first].parts->names;
        for (size_t k = task->first; k < task->end; k++) add_process(&task->summary, &tasks->place[k]);
        task->restarts = number_all(&task->summary);
        comm_sort(&task->summary);
    }
    return NULL;
}

/* Unites the summaries in pairs, so that each part is moved log N times. */
static void unite(struct rank_task *task, size_t count)
{
    for (size_t step = 1; step < count; step *= 2)
        for (size_t i = 0; i + step < count; i += 2 * step) comm_merge(&task[i].summary, &task[i + step].summary);
}

/* Summarises each rank, whose processes are neighbours in `place`, and unites the ranks. */
static void summarise_ranks(struct comm_job *job, const struct place *place, size_t places, uint64_t jobs)
{
    struct tasks tasks = {.place = place};
    tasks.task = mem_zero(places, sizeof *tasks.task);
    for (size_t i = 0; i < places; i++) {
        if (!i || place[i].process->rank != place[i - 1].process->rank) tasks.task[tasks.count++].first = i;
        tasks.task[tasks.count - 1].end = i + 1;
    }
    jobs_run(jobs, tasks.count, summarise, &tasks);
    for (size_t i = 0; i < tasks.count; i++) job->restarts += tasks.task[i].restarts;
    job->ranks = tasks.count;
    unite(tasks.task, tasks.count);
    if (tasks.count) job->summary = tasks.task[0].summary;
    free(tasks.task);
}

void comm_collect(struct comm_job *job, const struct selection *chosen, void *const *taken)
{
    struct place *place = mem_zero(chosen->processes, sizeof *place);
    size_t places = 0;
    *job = (struct comm_job){.summary.names = &chosen->model->names};
    for (size_t i = 0; i < chosen->processes; i++) {
        struct comm_taken *of_process = taken[i];
        comm_replays_add(&job->replays, &of_process->replays);
        if (of_process->has_collectives)
            place[places++] = (struct place){.process = chosen->process[i], .parts = &of_process->parts, .index = i};
    }
    if (places) qsort(place, places, sizeof *place, by_rank_and_time);
    job->runs = find_runs(place, places);
    job->clocks = find_clocks(place, places);
    for (size_t i = 0; i < places; i++) job->without_axis += !is_on_axis(place[i].process);
    summarise_ranks(job, place, places, chosen->options->jobs);
    free(place);
}

void comm_job_free(struct comm_job *job)
{
    comm_summary_free(&job->summary);
}
