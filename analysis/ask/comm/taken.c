/* taken.c - takes the collectives of one process, with the stage and the step of each. */
#include "ask/comm/taken.h"

#include <math.h>
#include <stdlib.h>

#include "ask/choice.h"
#include "ask/comm/tracelens.h"
#include "ask/stages/at.h"

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

struct scope {
    const struct selection *chosen;
    const struct process *process;
    bool attributed;
    struct attribution attribution;
    struct choice choice;
    struct stage_finder finder;
    struct step_list steps; /* of the profiler */
};

/* Returns the number of the step that is open at `time`. */
static int64_t step_at(const struct scope *scope, int64_t time)
{
    size_t at = step_list_at(&scope->steps, time);
    return at < scope->steps.count ? (int64_t)scope->process->ranges.step[scope->steps.range[at]] : UNKNOWN_NUMBER;
}

static void scope_init(struct scope *scope, const struct selection *chosen, const struct process *process, bool stages)
{
    *scope = (struct scope){.chosen = chosen, .process = process};
    scope->attributed = stages || choice_needs_launches(chosen->options, process);
    if (scope->attributed) attribute(&scope->attribution, process, 0);
    choice_init(&scope->choice, chosen, process, scope->attributed ? &scope->attribution : NULL);
    if (scope->attributed) stage_finder_init(&scope->finder, process, &scope->attribution);
    if (stages) step_list_init(&scope->steps, process);
}

static void scope_free(struct scope *scope)
{
    if (scope->attributed) stage_finder_free(&scope->finder);
    choice_free(&scope->choice);
    if (scope->attributed) attribution_free(&scope->attribution);
    step_list_free(&scope->steps);
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

static void take_parts(struct comm_taken *taken, struct scope *scope)
{
    const struct process *p = scope->process;
    const struct comm_part blank = {.rank = p->rank, .stream = UNKNOWN_NUMBER, .file_duration_us = -1};
    bool tracelens = scope->chosen->options->rules == RULES_TRACELENS;
    for (size_t i = 0; i < p->collectives.count && !tracelens; i++) {
        struct comm_part part = blank;
        take_collective(&part, &p->collectives.collective[i]);
        part.is_chosen = is_chosen(scope, &p->collectives.collective[i], &part);
        comm_add(&taken->parts, &part);
    }
    struct tracelens_kernels kernels = {.process = p, .names = taken->parts.names};
    const struct collective *c;
    while (tracelens && tracelens_next(&kernels, &c)) {
        struct comm_part part = blank;
        struct collective one = *c;
        one.work = kernels.work;
        take_collective(&part, &one);
        tracelens_change(&part, &kernels, c);
        part.is_chosen = is_chosen(scope, &one, &part);
        comm_add(&taken->parts, &part);
    }
    map_free(&kernels.communicates);
}

static void *take(const struct selection *chosen, const struct process *process, bool stages)
{
    struct comm_taken *taken = mem_zero(1, sizeof *taken);
    struct scope scope;
    taken->parts.names = &chosen->model->names;
    taken->has_collectives = process->collectives.count != 0;
    taken->replays = comm_replays(process, &chosen->model->names);
    if (!taken->has_collectives) return taken;
    scope_init(&scope, chosen, process, stages);
    take_parts(taken, &scope);
    if (stages) health_take(&taken->healths, &scope.steps);
    scope_free(&scope);
    comm_fit(&taken->parts);
    return taken;
}

static void *take_without_stages(const struct selection *chosen, const struct process *process)
{
    return take(chosen, process, false);
}

static void *take_with_stages(const struct selection *chosen, const struct process *process)
{
    return take(chosen, process, true);
}

static void free_taken(void *summary)
{
    struct comm_taken *taken = summary;
    comm_summary_free(&taken->parts);
    health_free(&taken->healths);
    free(taken);
}

static unsigned wants(const struct options *options)
{
    unsigned want = WANT_DEVICE | WANT_COLLECTIVES;
    bool by_launch = options->step.count || options->cycle.count || options->stage.count;
    return by_launch ? want | WANT_RANGES | WANT_LAUNCHES | WANT_OPERATORS : want;
}

static unsigned wants_with_stages(const struct options *options)
{
    return wants(options) | WANT_SAMPLES | WANT_RANGES | WANT_LAUNCHES | WANT_OPERATORS;
}

/* --from and --to count from the first record of all inputs. */
static bool stands_alone(const struct options *options)
{
    return isnan(options->from) && isnan(options->to);
}

const struct reduction comm_reduction = {wants, stands_alone, take_without_stages, free_taken};
const struct reduction stragglers_reduction = {wants_with_stages, stands_alone, take_with_stages, free_taken};
