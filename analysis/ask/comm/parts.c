/* parts.c - turns the collectives of each rank into parts that can be matched, and unites those of all ranks.
 *
 * The key of a collective is its communicator and its sequence number. Where no number is recorded, its place in the
 * order of time among those of its communicator on the rank stands for it; the call's time counts, or the kernel's
 * where some call is missing. Filters mark parts after that, so that no filter changes what is matched. A message
 * between two ranks has its place among those of the same two ranks. Collectives without a communicator are counted by
 * operation.
 * A recorded number that falls to the lowest so far, or below it, begins an epoch: the communicator was made anew.
 * Several traces of one rank are several runs if their times are apart, as are traces of worlds of different size.
 */
#include "ask/comm/parts.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ask/choice.h"
#include "ask/comm/tracelens.h"
#include "ask/stages/at.h"
#include "ask/timeline.h"
#include "base/jobs.h"

/* ---- runs and clocks ---- */

/* A process with collectives. */
struct place {
    const struct process *process;
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

/* ---- one process ---- */

static void take_collective(struct comm_part *part, const struct collective *c)
{
    bool is_message = c->op == COLLECTIVE_SEND || c->op == COLLECTIVE_RECV;
    part->group = c->communicator;
    part->members = c->members;
    part->op_key = c->communicator == NAME_NONE ? c->op : 0;
    part->source = is_message ? c->source : UNKNOWN_NUMBER;
    part->peer = is_message ? c->peer : UNKNOWN_NUMBER;
    bool is_matched = is_message && c->source != UNKNOWN_NUMBER && c->peer != UNKNOWN_NUMBER;
    if (is_message && !is_matched) { /* nobody knows whom the message met, so it stays alone */
        part->source = part->rank;
        part->peer = c->op;
    }
    part->sequence = is_message ? UNKNOWN_NUMBER : c->sequence;
    part->op = c->op;
    part->name = c->name;
    part->datatype = c->datatype;
    part->size = !is_message ? c->size : is_matched ? 2 : UNKNOWN_NUMBER;
    part->elements_in = c->elements_in;
    part->elements_out = c->elements_out;
    part->bytes_in = c->bytes_in;
    part->bytes_out = c->bytes_out;
    part->call_start = c->call_start;
    part->start = c->start;
    part->end = c->end;
}

struct scope {
    const struct selection *chosen;
    const struct process *process;
    bool attributed;
    struct attribution attribution;
    struct choice choice;
    struct stage_finder finder;
    size_t *step; /* the profiler's steps by start, as indices in process->ranges */
    size_t steps;
};

static int by_range_start(const void *a, const void *b, void *process)
{
    const struct ranges *r = &((const struct process *)process)->ranges;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return r->start[x] != r->start[y] ? (r->start[x] < r->start[y] ? -1 : 1) : (x > y) - (x < y);
}

static void find_steps(struct scope *scope)
{
    const struct ranges *r = &scope->process->ranges;
    size_t capacity = 0;
    for (size_t i = 0; i < r->table.count; i++) {
        if (r->step[i] == NO_PLACE) continue;
        scope->step = mem_grow(scope->step, &capacity, scope->steps + 1, sizeof *scope->step);
        scope->step[scope->steps++] = i;
    }
    if (scope->steps) qsort_r(scope->step, scope->steps, sizeof *scope->step, by_range_start, (void *)scope->process);
}

/* Returns the number of the step that is open at `time`. Steps do not overlap. */
static int64_t step_at(const struct scope *scope, int64_t time)
{
    const struct ranges *r = &scope->process->ranges;
    size_t low = 0, high = scope->steps;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->start[scope->step[middle]] <= time) low = middle + 1;
        else high = middle;
    }
    bool inside = low && time < r->end[scope->step[low - 1]];
    return inside ? (int64_t)r->step[scope->step[low - 1]] : UNKNOWN_NUMBER;
}

static void scope_init(struct scope *scope, const struct selection *chosen, const struct process *process, bool stages)
{
    *scope = (struct scope){.chosen = chosen, .process = process};
    scope->attributed = stages || choice_needs_launches(chosen->options, process);
    if (scope->attributed) attribute(&scope->attribution, process, false);
    choice_init(&scope->choice, chosen, process, scope->attributed ? &scope->attribution : NULL);
    if (scope->attributed) stage_finder_init(&scope->finder, process, &scope->attribution);
    if (stages) find_steps(scope);
}

static void scope_free(struct scope *scope)
{
    if (scope->attributed) stage_finder_free(&scope->finder);
    choice_free(&scope->choice);
    if (scope->attributed) attribution_free(&scope->attribution);
    free(scope->step);
}

/* Applies the filters, and finds the stage and the step. */
static bool is_chosen(const struct scope *scope, const struct collective *c, struct comm_part *part)
{
    struct interval when;
    struct belonging at = {0};
    bool chosen;
    if (c->work != NO_WORK) {
        chosen = choice_work(&scope->choice, c->work, &when);
        if (scope->attributed) at = scope->attribution.work[c->work];
    } else {
        int64_t begin = c->call_start != UNKNOWN_TIME ? c->call_start : c->start;
        chosen = choice_call(&scope->choice, begin, NO_PLACE);
        /* A moment earlier, as the work itself may be an annotation. */
        if (scope->attributed) at = (struct belonging){begin, stage_at(&scope->finder, c->thread, begin - 1), VIA_NONE};
    }
    part->step = scope->attributed ? step_at(scope, at.time) : UNKNOWN_NUMBER;
    return scope->attributed ? choice_stage_name(&scope->choice, &at, &part->stage) && chosen : chosen;
}

static void add_process(struct comm_summary *summary, const struct selection *chosen, const struct place *place,
                        bool stages)
{
    const struct process *p = place->process;
    struct scope scope;
    scope_init(&scope, chosen, p, stages);
    struct comm_part blank = {.run = place->run,
                              .rank = p->rank,
                              .clock = place->clock,
                              .axis = is_on_axis(p) ? 0 : place->clock + 1,
                              .stream = UNKNOWN_NUMBER,
                              .file_duration_us = -1};
    bool tracelens = chosen->options->rules == RULES_TRACELENS;
    for (size_t i = 0; i < p->collectives.count && !tracelens; i++) {
        struct comm_part part = blank;
        take_collective(&part, &p->collectives.collective[i]);
        part.is_chosen = is_chosen(&scope, &p->collectives.collective[i], &part);
        comm_add(summary, &part);
    }
    struct tracelens_kernels kernels = {.process = p, .names = summary->names};
    const struct collective *c;
    while (tracelens && tracelens_next(&kernels, &c)) {
        struct comm_part part = blank;
        struct collective one = *c;
        one.work = kernels.work;
        take_collective(&part, &one);
        tracelens_change(&part, &kernels, c);
        part.is_chosen = is_chosen(&scope, &one, &part);
        comm_add(summary, &part);
    }
    map_free(&kernels.communicates);
    scope_free(&scope);
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
    if (!order) order = (x->part.source > y->part.source) - (x->part.source < y->part.source);
    return order ? order : (x->part.peer > y->part.peer) - (x->part.peer < y->part.peer);
}

static int by_group(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    int order = same_order(x, y);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

static int by_time(const void *a, const void *b)
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
    qsort(n, count, sizeof *n, by_time);
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
    const struct selection *chosen;
    const struct place *place;
    bool stages;
    struct rank_task *task;
    size_t count;
    atomic_size_t next;
};

static void *summarise(void *argument)
{
    struct tasks *tasks = argument;
    size_t i;
    while ((i = atomic_fetch_add(&tasks->next, 1)) < tasks->count) {
        struct rank_task *task = &tasks->task[i];
        task->summary.names = &tasks->chosen->model->names;
        for (size_t k = task->first; k < task->end; k++)
            add_process(&task->summary, tasks->chosen, &tasks->place[k], tasks->stages);
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

unsigned comm_wants(const struct options *options)
{
    unsigned want = WANT_DEVICE | WANT_COLLECTIVES;
    bool by_launch = options->step.count || options->cycle.count || options->stage.count;
    return by_launch ? want | WANT_RANGES | WANT_LAUNCHES | WANT_OPERATORS : want;
}

void comm_collect(struct comm_job *job, const struct selection *chosen, bool stages)
{
    struct place *place = mem_zero(chosen->processes, sizeof *place);
    struct tasks tasks = {.chosen = chosen, .place = place, .stages = stages};
    size_t places = 0;
    *job = (struct comm_job){.summary.names = &chosen->model->names};
    for (size_t i = 0; i < chosen->processes; i++)
        if (chosen->process[i]->collectives.count)
            place[places++] = (struct place){.process = chosen->process[i], .index = i};
    if (places) qsort(place, places, sizeof *place, by_rank_and_time);
    job->runs = find_runs(place, places);
    job->clocks = find_clocks(place, places);
    for (size_t i = 0; i < places; i++) job->without_axis += !is_on_axis(place[i].process);
    tasks.task = mem_zero(places, sizeof *tasks.task);
    for (size_t i = 0; i < places; i++) {
        if (!i || place[i].process->rank != place[i - 1].process->rank) tasks.task[tasks.count++].first = i;
        tasks.task[tasks.count - 1].end = i + 1;
    }
    jobs_run(chosen->options->jobs, tasks.count, summarise, &tasks);
    for (size_t i = 0; i < tasks.count; i++) job->restarts += tasks.task[i].restarts;
    job->ranks = tasks.count;
    unite(tasks.task, tasks.count);
    if (tasks.count) job->summary = tasks.task[0].summary;
    free(tasks.task);
    free(place);
}

void comm_job_free(struct comm_job *job)
{
    comm_summary_free(&job->summary);
}
