/* comm_reduction.c - takes the collectives of one process, with the stage and the step of each. */
#include "ask/comm/comm_reduction.h"

#include <math.h>
#include <stdlib.h>

#include "ask/comm/comm_saved.h"

static void take_collective(struct comm_part *part, const struct collective *c)
{
    bool is_message = c->op == COLLECTIVE_SEND || c->op == COLLECTIVE_RECV;
    part->group = c->communicator;
    part->members = c->members;
    part->op_key = c->communicator == NAME_NONE ? c->op : 0;
    bool is_matched = is_message && c->source != UNKNOWN_NUMBER && c->peer != UNKNOWN_NUMBER;
    part->source = is_matched ? c->source : UNKNOWN_NUMBER;
    part->peer = is_matched ? c->peer : UNKNOWN_NUMBER;
    if (is_message && !is_matched) part->alone = ((uint64_t)part->rank + 1) * NR_COLLECTIVE_OPS + c->op;
    part->sequence = is_message ? UNKNOWN_NUMBER : c->sequence;
    part->replay = part->sequence == UNKNOWN_NUMBER ? 0 : (int64_t)MIN(c->replay, (uint64_t)INT64_MAX);
    part->op = c->op;
    part->name = c->name;
    part->datatype = c->datatype;
    part->algorithm = c->algorithm;
    part->protocol = c->protocol;
    part->channels = c->channels;
    part->size = !is_message ? c->size : is_matched ? 2 : UNKNOWN_NUMBER;
    part->elements_in = c->elements_in;
    part->elements_out = c->elements_out;
    part->bytes_in = c->bytes_in;
    part->bytes_out = c->bytes_out;
    part->root = c->root;
    part->call_start = c->call_start;
    part->start = c->start;
    part->end = c->end;
}

struct comm_scope {
    const struct process *process;
    const struct choice *choice;
    const struct attribution *attribution; /* NULL: neither stages nor steps are asked for */
    struct step_list steps;                /* of the profiler */
};

/* Returns the number of the step that is open at `time`. */
static int64_t step_at(const struct comm_scope *scope, int64_t time)
{
    size_t at = step_list_at(&scope->steps, time);
    return at < scope->steps.count ? (int64_t)scope->process->ranges.step[scope->steps.range[at]] : UNKNOWN_NUMBER;
}

/* Applies the filters, and finds the stage and the step. */
static bool is_chosen(const struct comm_scope *scope, const struct collective *c, struct comm_part *part)
{
    const struct attribution *a = scope->attribution;
    struct interval when;
    struct belonging at = {0};
    bool chosen;
    if (c->work != NO_WORK) {
        chosen = choice_work(scope->choice, c->work, &when);
        if (a) at = a->work[c->work];
    } else {
        int64_t begin = c->call_start != UNKNOWN_TIME ? c->call_start : c->start;
        chosen = choice_call(scope->choice, begin, NO_PLACE);
        /* A moment earlier, as the work itself may be an annotation. */
        if (a) at = (struct belonging){begin, stage_at(&a->finder, c->thread, begin - 1), VIA_NONE};
    }
    part->step = a ? step_at(scope, at.time) : UNKNOWN_NUMBER;
    return a ? choice_stage_name(scope->choice, &at, &part->stage) && chosen : chosen;
}

struct comm_part comm_part_of(const struct process *process, const struct collective *collective)
{
    struct comm_part part = {.rank = process->rank, .stream = UNKNOWN_NUMBER, .file_duration_us = -1};
    take_collective(&part, collective);
    return part;
}

void comm_take_part(struct comm_taken *taken, const struct comm_scope *scope, const struct collective *collective,
                    struct comm_part part)
{
    part.is_chosen = is_chosen(scope, collective, &part);
    comm_add(&taken->parts, &part);
}

static void take_parts(struct comm_taken *taken, const struct comm_scope *scope, const struct process *process)
{
    for (size_t i = 0; i < process->collectives.count; i++) {
        const struct collective *c = &process->collectives.collective[i];
        comm_take_part(taken, scope, c, comm_part_of(process, c));
    }
}

static struct comm_taken *reduce_comm(struct scope *scope, bool stages, comm_taker *take_all)
{
    const struct process *process = scope->process;
    struct comm_taken *taken = mem_zero(1, sizeof *taken);
    struct comm_scope of = {.process = process, .choice = &scope->choice};
    taken->parts.names = &scope->chosen->model->names;
    taken->has_collectives = process->collectives.count != 0;
    taken->replays = comm_replays(process, &scope->chosen->model->names);
    if (!taken->has_collectives) return taken;
    if (stages || choice_needs_launches(of.choice->options, process)) of.attribution = scope_attribute(scope);
    if (stages) step_list_init(&of.steps, process);
    take_all(taken, &of, process);
    if (stages) health_take(&taken->healths, &of.steps);
    step_list_free(&of.steps);
    comm_fit(&taken->parts);
    return taken;
}

struct comm_taken *comm_take(struct scope *scope, comm_taker *take_all)
{
    return reduce_comm(scope, false, take_all);
}

static void *take_without_stages(struct scope *scope)
{
    return reduce_comm(scope, false, take_parts);
}

static void *take_with_stages(struct scope *scope)
{
    return reduce_comm(scope, true, take_parts);
}

void comm_taken_free(void *taken)
{
    struct comm_taken *of = taken;
    comm_summary_free(&of->parts);
    health_free(&of->healths);
    free(of);
}

/* The stage and step of a collective follow from these tables. */
static struct needs launch_needs(void)
{
    return (struct needs){.ranges = true, .launches = true, .operators = true, .stream = STREAM_HELD};
}

struct needs comm_needs(const struct options *options)
{
    bool by_launch = options->step.count || options->cycle.count || options->stage.count;
    struct needs needs = {.device = true, .collectives = true};
    return by_launch ? needs_union(needs, launch_needs()) : needs;
}

struct needs stragglers_needs(const struct options *options)
{
    return needs_union(needs_union(comm_needs(options), launch_needs()), (struct needs){.samples = true});
}

static void *restore_without_facts(struct names *names, int64_t rank, struct unpacking *from)
{
    return comm_restore(from, names, rank, false);
}

const struct reduction comm_reduction = {without_window, take_without_stages, comm_taken_free, restore_without_facts};
const struct reduction stragglers_reduction = {without_window, take_with_stages, comm_taken_free, NULL};
