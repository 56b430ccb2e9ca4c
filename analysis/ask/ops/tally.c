/* tally.c - adds up the events of a process in order of their start: those that it holds, and those in its file.
 *
 * Operators and blocks of a long run stay in the file; the process then holds stages and calls, and no device work.
 * A stack of a held event needs events before and behind its own, so only an answer with stacks keeps more than the open
 * events.
 */
#include <stdlib.h>
#include <string.h>

#include "ask/ops/needed_times.h"
#include "ask/ops/open_events.h"
#include "ask/ops/op_stacks.h"
#include "ask/ops/replayed.h"
#include "model/join.h"
#include "model/ranges/step_ranges.h"
#include "model/sweep/sweep.h"

struct tally {
    struct op_rows *rows;
    const struct process *process;
    struct op_events events;
    struct running running;
    const struct choice *choice;
    const struct attribution *attribution; /* all zero where nothing asks for it */
    struct op_stacks stacks;
    bool by_stage;           /* --stage is given */
    bool finds_stages;       /* it is, or rows->each is told them */
    struct sweep *sweep;     /* operators and blocks in the file; NULL: the process holds them */
    struct intervals needed; /* the times that it reads */
    bool takes_all;          /* no option or state leaves out any of these */
    uint8_t *hidden;         /* of these operators, by name: 0: not known yet, 1: shown, 2: hidden */
    size_t hiddens, hidden_capacity;
    /* The device work of host events. */
    struct bits launched; /* by entry: it launched work */
    struct map work_of;   /* index in `work`, by entry */
    struct op_work *work;
    size_t works, work_capacity;
    struct replayed_ops replayed;
};

/* ---- what is asked for ---- */

/* With --device and --stream only the calls count that launched work there. */
static bool wants_call(const struct tally *a, const struct op_event *event)
{
    const struct process *p = a->process;
    if (event->kind == OP_CALL) return choice_launched(a->choice, p->calls.span[event->place]);
    bool is_call = event->kind == OP_SPAN && p->spans.event_class[event->place] == CLASS_API;
    return !is_call || choice_launched(a->choice, event->place);
}

/* Returns the stage of an event, and when it was launched. Few calls have a span. */
static struct belonging event_at(const struct tally *a, const struct op_event *event)
{
    const struct belonging *span = a->attribution->span;
    struct belonging at = {event->start, event->kind == OP_STAGE ? event->place : NO_PLACE, VIA_NONE};
    uint32_t of = event->kind == OP_CALL ? a->process->calls.span[event->place] : event->place;
    if (event->kind == OP_STAGE) return at;
    if (span && of != NO_PLACE) return span[of];
    if (a->finds_stages) at.stage = stage_at(&a->attribution->finder, event->thread, event->start);
    return at;
}

static bool wants_event(const struct tally *a, const struct op_event *event, const struct belonging *at)
{
    return choice_moment(a->choice, event->start, at->time) && choice_in_stage(a->choice, at) && wants_call(a, event);
}

/* ---- device work ---- */

/* Gives a piece of device work to the entry that launched it, if --device and --stream choose it. */
static void give_work(struct tally *a, size_t i, uint32_t entry)
{
    const struct works *w = &a->process->works;
    if (!a->choice->lane[w->lane[i]]) return;
    uint32_t at = map_number(&a->work_of, entry);
    if (at == a->works) {
        a->work = mem_grow(a->work, &a->work_capacity, a->works + 1, sizeof *a->work);
        a->work[a->works++] = (struct op_work){0};
        bits_add(&a->launched, entry);
    }
    a->work[at].time = add_ns(a->work[at].time, w->end[i] - w->start[i]);
    a->work[at].us += running_us(&a->running, w->start[i], w->end[i]);
}

/* In a Kineto trace the operator or the annotation with the work's external id launched it. */
static void give_by_external_id(struct tally *a)
{
    const struct process *p = a->process;
    const struct works *w = &p->works;
    struct map asked = {0}; /* numbers of external ids of work */
    for (size_t i = 0; i < w->table.count; i++)
        if (w->event_class[i] != CLASS_DEVICE_ANNOTATION) map_number(&asked, w->external[i]);
    uint32_t *span = no_places(asked.count);
    for (size_t i = 0; i < p->spans.table.count; i++) {
        bool has_id = p->spans.event_class[i] == CLASS_OPERATOR && p->spans.id[i] != NO_ID;
        uint32_t number = has_id ? map_get(&asked, p->spans.id[i]) : MAP_NONE;
        if (number != MAP_NONE) span[number] = (uint32_t)i;
    }
    for (size_t i = 0; i < w->table.count; i++) {
        if (w->event_class[i] == CLASS_DEVICE_ANNOTATION || is_of_capture(p, i)) continue;
        uint32_t op = span[map_get(&asked, w->external[i])];
        uint32_t stage = op == NO_PLACE ? map_get(&p->range_of_id, w->external[i]) : MAP_NONE;
        if (op != NO_PLACE) give_work(a, i, a->events.spans + op);
        else if (stage != MAP_NONE) give_work(a, i, stage);
    }
    free(span);
    map_free(&asked);
}

/* In a trace of ours the innermost operator around the launch launched it, or the stage if there is no operator. */
static void give_by_launch(struct tally *a)
{
    const struct works *w = &a->process->works;
    const struct attribution *of = a->attribution;
    for (size_t i = 0; i < w->table.count; i++) {
        if (w->event_class[i] == CLASS_DEVICE_ANNOTATION || w->event_class[i] == CLASS_SYNC) continue;
        if (of->op[i] != NO_PLACE) give_work(a, i, a->events.spans + of->op[i]);
        else if (of->work[i].via == (uint8_t)VIA_THREAD && of->work[i].stage != NO_PLACE)
            give_work(a, i, of->work[i].stage);
    }
}

/* Returns the name common to all steps for a step's shadow on a device; any other name unchanged. */
static uint32_t any_step(struct op_rows *rows, uint32_t name)
{
    struct names *names = &rows->chosen->model->names;
    const struct name *text = names_get(names, name);
    uint64_t number;
    bool is_step = step_number((struct slice){text->text, text->length}, &number);
    return is_step ? names_add(names, ANY_STEP, strlen(ANY_STEP)) : name;
}

static void take_work(struct tally *a, const struct op_event *event)
{
    const struct process *p = a->process;
    const struct works *w = &p->works;
    size_t i = event->place;
    struct interval when = {w->start[i], w->end[i]};
    bool is_annotation = w->event_class[i] == CLASS_DEVICE_ANNOTATION;
    bool wanted = IS_WORK(w->event_class[i]) ? choice_work(a->choice, i, &when)
                                             : a->events.is_kineto && a->choice->lane[w->lane[i]] &&
                                                   choice_moment(a->choice, w->start[i], w->start[i]);
    if (!wanted || (a->by_stage && (is_annotation || !choice_in_stage(a->choice, &a->attribution->work[i])))) return;
    struct addition addition = {.name = is_annotation ? any_step(a->rows, w->name[i]) : w->name[i],
                                .on_device = true,
                                .is_annotation = is_annotation,
                                .is_call = true,
                                .start = w->start[i],
                                .end = w->end[i],
                                .order = event->order};
    addition.own.device = addition.all.device = when.end - when.start;
    addition.us.device = addition.us.own_device = running_us(&a->running, when.start, when.end);
    addition.shapes = a->rows->chosen->options->group_ops.shapes ? op_flat_shapes(a->rows, NAME_NONE) : NAME_NONE;
    a->rows->has_device = true;
    size_t row = op_row_of(a->rows, &addition);
    op_row_add(a->rows, row, &addition, a->running.process);
    op_row_add_us(&a->rows->row[row], &addition.us);
    if (is_of_capture(p, i)) replayed_ops_add(&a->replayed, i, &addition, a->running.process);
}

/* ---- host events ---- */

static void take_event(struct tally *a, uint32_t entry, const struct op_event *event)
{
    const struct group_ops *group = &a->rows->chosen->options->group_ops;
    const struct process *p = a->process;
    const struct op_detail *detail = op_detail_of(&a->events, event);
    bool is_stage = event->kind == OP_STAGE;
    const struct belonging at = event_at(a, event);
    bool is_operator = !is_stage && event->kind != OP_PYTHON;
    bool wanted = (event->kind != OP_PYTHON || a->rows->with_python) && wants_event(a, event, &at);
    uint32_t new;
    struct addition *addition = running_new(&a->running, &new); /* field by field: it is large */
    addition->name = op_event_name(&a->events, event);
    addition->shapes = addition->modules = addition->stack = NAME_NONE;
    addition->on_device = false;
    addition->is_annotation = is_stage;
    addition->is_call = !(is_stage && p->ranges.flags[event->place] & RANGE_CONTINUED);
    addition->is_async = op_event_is_async(&a->events, event);
    addition->start = event->start;
    addition->end = event->end;
    addition->order = event->order;
    addition->flops = detail ? detail->flops : 0;
    const struct op_detail *given = is_stage ? range_inputs(p, event->place) : detail;
    if (wanted && group->shapes) addition->shapes = op_flat_shapes(a->rows, given ? given->shapes : NAME_NONE);
    if (wanted && group->modules && given) addition->modules = given->modules;
    if (wanted && group->stack)
        addition->stack = op_first_frames(a->rows, a->sweep ? NAME_NONE : op_stack_of(&a->stacks, entry));
    bool has_work = bits_have(&a->launched, entry);
    running_begin(&a->running, new, event->thread, wanted, has_work ? &a->work[map_get(&a->work_of, entry)] : NULL,
                  is_operator ? &at : NULL);
}

/* ---- memory ---- */

/* Blocks outside the stages that --stage names do not count for operators in those stages, even if they fall in an
 * operator's time. A torch profile, which sees only the threads it was told to see, lacks them too. */
static void take_block(struct tally *a, int64_t time, int64_t device, int64_t bytes, const struct belonging *at)
{
    struct running *r = &a->running;
    if (a->by_stage && !choice_in_stage(a->choice, at)) return;
    r->host += device == DEVICE_HOST ? (uint64_t)bytes : 0;
    r->device += device >= 0 ? (uint64_t)bytes : 0;
    if (!r->covering && choice_moment(a->choice, time, time)) running_add_loose(r, time, device, bytes);
}

static void take_held(struct tally *a, uint32_t entry, const struct op_event *event)
{
    const struct blocks *b = &a->process->blocks;
    size_t i = event->place;
    running_until(&a->running, event->start);
    if (event->kind == OP_WORK) take_work(a, event);
    else if (event->kind == OP_BLOCK)
        take_block(a, b->time[i], b->device[i], b->bytes[i], a->by_stage ? &a->attribution->block[i] : NULL);
    else take_event(a, entry, event);
}

/* ---- operators and blocks in the file ---- */

static struct belonging at_of(const struct tally *a, int64_t time, uint32_t thread)
{
    return (struct belonging){time, a->finds_stages ? stage_at(&a->attribution->finder, thread, time) : NO_PLACE,
                              VIA_NONE};
}

static bool is_hidden(struct tally *a, uint32_t name)
{
    if (name >= a->hiddens) {
        a->hidden = mem_grow(a->hidden, &a->hidden_capacity, name + 1, 1);
        memset(a->hidden + a->hiddens, 0, a->hidden_capacity - a->hiddens);
        a->hiddens = a->hidden_capacity;
    }
    if (!a->hidden[name]) a->hidden[name] = 1 + op_is_hidden(names_get(&a->rows->chosen->model->names, name)->text);
    return a->hidden[name] == 2;
}

static void take_op(struct tally *a, const struct swept_op *op)
{
    const struct group_ops *group = &a->rows->chosen->options->group_ops;
    if (is_hidden(a, op->name)) return;
    uint32_t new;
    struct addition *addition =
        running_new(&a->running, &new); /* field by field: a whole one is as much again to write */
    addition->name = op->name;
    addition->shapes = group->shapes ? op_flat_shapes(a->rows, op->shapes) : NAME_NONE;
    addition->modules = op->modules; /* read only if they are asked for */
    addition->stack = group->stack ? op_first_frames(a->rows, op->stack) : NAME_NONE;
    addition->is_call = true;
    addition->on_device = addition->is_annotation = addition->is_async = false;
    addition->start = op->start;
    addition->end = op->end;
    addition->order = a->events.spans + op->order;
    addition->flops = op->flops;
    bool wanted = a->takes_all;
    struct belonging at = {0};
    if (!wanted || a->finds_stages) at = at_of(a, op->start, op->thread);
    if (!wanted) wanted = choice_moment(a->choice, op->start, op->start) && choice_in_stage(a->choice, &at);
    running_begin(&a->running, new, op->thread, wanted, NULL, &at);
}

static void take_swept(struct tally *a, const struct swept *swept)
{
    const struct swept_block *b = swept->block;
    running_until(&a->running, b ? b->time : swept->op->start);
    if (!b) {
        take_op(a, swept->op);
    } else {
        const struct belonging at = at_of(a, b->time, b->thread);
        take_block(a, b->time, b->device, b->bytes, &at);
    }
}

/* True if a held event comes before what the file has next. */
static bool is_before(const struct tally *a, const struct op_event *event, const struct swept *next)
{
    if (next->block) return event->start <= next->block->time;
    if (event->start != next->op->start) return event->start < next->op->start;
    int nesting = outer_first(event->start, event->end, next->op->start, next->op->end);
    return nesting ? nesting < 0 : event->order < a->events.spans + next->op->order;
}

/* ---- the walk ---- */

static void walk(struct tally *a)
{
    struct swept next;
    bool more = a->sweep && sweep_next(a->sweep, &next);
    for (size_t i = 0; i < a->events.count; i++) {
        uint32_t entry = a->events.sorted[i];
        const struct op_event event = op_event_of(&a->events, entry);
        for (; more && !is_before(a, &event, &next); more = sweep_next(a->sweep, &next)) take_swept(a, &next);
        take_held(a, entry, &event);
    }
    for (; more; more = sweep_next(a->sweep, &next)) take_swept(a, &next);
    running_end(&a->running);
}

static void tally_free(struct tally *a)
{
    op_stacks_free(&a->stacks);
    op_events_free(&a->events);
    running_free(&a->running);
    bits_free(&a->launched);
    map_free(&a->work_of);
    free(a->work);
    replayed_ops_free(&a->replayed);
    free(a->hidden);
    if (a->sweep) sweep_close(a->sweep);
    intervals_free(&a->needed);
}

static struct sweep *begin_sweep(struct tally *a)
{
    const struct process *process = a->process;
    const struct op_rows *rows = a->rows;
    const struct options *options = rows->chosen->options;
    a->needed = ops_needed_times(&a->events, rows->chosen);
    const struct sweep_wants wants = {.ops = true,
                                      .op_shapes = options->group_ops.shapes,
                                      .op_modules = options->group_ops.modules,
                                      .op_stacks = options->group_ops.stack != 0,
                                      .blocks = process->in_file.blocks != 0,
                                      .when = &a->needed};
    return sweep_open(process, &rows->chosen->model->names, wants, options->jobs != 1);
}

void op_rows_add(struct op_rows *rows, struct scope *scope)
{
    const struct process *process = scope->process;
    static const struct attribution none;
    struct tally a = {.rows = rows, .process = process, .choice = &scope->choice, .attribution = &none};
    struct names *names = &rows->chosen->model->names;
    const struct options *options = rows->chosen->options;
    bool is_kineto = is_of_kineto(process);
    scope_left_rows(scope, &rows->left);
    if (!rows->device_word) rows->device_word = process->device_word;
    a.by_stage = options->stage.count != 0;
    a.finds_stages = a.by_stage || rows->each;
    a.takes_all = !is_filtered(options) && !a.choice->warmup.count && !a.choice->off.count;
    if ((process->works.table.count && !is_kineto) || is_filtered(options) || rows->each)
        a.attribution = scope_attribute(scope);
    a.replayed = (struct replayed_ops){.rows = rows, .process = process};
    replayed_ops_count(rows, process);
    running_init(&a.running, rows, process);
    op_events_init(&a.events, process, names);
    if (process->works.table.count && is_kineto) give_by_external_id(&a);
    else if (process->works.table.count) give_by_launch(&a);
    if (process->in_file.trace) a.sweep = begin_sweep(&a);
    else if (options->group_ops.stack) op_stacks_init(&a.stacks, &a.events, names, options->group_ops.stack);
    walk(&a);
    rows->has_memory |= process->blocks.table.count || process->in_file.blocks;
    tally_free(&a);
}
