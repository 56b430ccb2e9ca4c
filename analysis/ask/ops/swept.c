/* swept.c - adds up operators and blocks while they are read in order of their start. */
#include "ask/ops/swept.h"

#include <stdlib.h>
#include <string.h>

#include "ask/ops/events.h"
#include "ask/ops/running.h"
#include "ask/stages/order.h"
#include "model/join.h"
#include "model/sweep/sweep.h"

struct sweeping {
    struct op_rows *rows;
    const struct process *process;
    struct running running;
    const struct choice *choice;
    const struct attribution *attribution; /* all zero without a filter */
    bool by_stage, takes_all;              /* takes_all: no option or state leaves events out */
    struct op_event *held;                 /* stages and calls, in order of start */
    size_t helds, next_held, held_capacity;
    uint8_t *hidden; /* by name: 0: not known yet, 1: shown, 2: hidden */
    size_t hiddens, hidden_capacity;
};

/* ---- what is asked for ---- */

/* True if a moment on a thread lies in a chosen stage; `stage` is known, or found if NO_PLACE. */
static bool in_stage(const struct sweeping *s, int64_t time, uint32_t thread, uint32_t stage)
{
    struct belonging at = {time, stage, VIA_NONE};
    if (s->by_stage && stage == NO_PLACE) at.stage = stage_at(&s->attribution->finder, thread, time);
    return choice_in_stage(s->choice, &at);
}

static bool is_wanted(const struct sweeping *s, int64_t time, uint32_t thread, uint32_t stage)
{
    return choice_moment(s->choice, time, time) && in_stage(s, time, thread, stage);
}

static bool is_hidden(struct sweeping *s, uint32_t name)
{
    if (name >= s->hiddens) {
        s->hidden = mem_grow(s->hidden, &s->hidden_capacity, name + 1, 1);
        memset(s->hidden + s->hiddens, 0, s->hidden_capacity - s->hiddens);
        s->hiddens = s->hidden_capacity;
    }
    if (!s->hidden[name]) s->hidden[name] = 1 + op_is_hidden(names_get(&s->rows->chosen->model->names, name)->text);
    return s->hidden[name] == 2;
}

static void begin_op(struct sweeping *s, const struct swept_op *op)
{
    const struct group_ops *group = &s->rows->chosen->options->group_ops;
    if (is_hidden(s, op->name)) return;
    uint32_t event;
    struct addition *a = running_new(&s->running, &event); /* field by field: a whole one is as much again to write */
    a->name = op->name;
    a->shapes = group->shapes ? op_flat_shapes(s->rows, op->shapes) : NAME_NONE;
    a->modules = op->modules; /* read only if they are asked for */
    a->stack = group->stack ? op_first_frames(s->rows, op->stack) : NAME_NONE;
    a->is_call = true;
    a->on_device = a->is_annotation = a->is_async = false;
    a->start = op->start;
    a->end = op->end;
    a->order = (uint32_t)s->process->ranges.table.count + op->order;
    a->flops = op->flops;
    bool wanted = s->takes_all || is_wanted(s, op->start, op->thread, NO_PLACE);
    running_begin(&s->running, event, op->thread, wanted, NULL);
}

static void begin_held(struct sweeping *s, const struct op_event *event)
{
    const struct group_ops *group = &s->rows->chosen->options->group_ops;
    const struct process *p = s->process;
    const struct ranges *r = &p->ranges;
    struct names *names = &s->rows->chosen->model->names;
    bool is_stage = event->kind == OP_STAGE;
    struct addition a = {.is_annotation = is_stage,
                         .is_call = !(is_stage && r->flags[event->place] & RANGE_CONTINUED),
                         .is_async = is_stage && r->flags[event->place] & TFI_RANGE_ASYNC,
                         .start = event->start,
                         .end = event->end,
                         .order = event->order};
    const char *function = is_stage ? "" : p->func[p->calls.func[event->place]].name;
    a.name = is_stage ? r->name[event->place] : names_add(names, function, strlen(function));
    const struct op_detail *given = is_stage ? range_inputs(p, event->place) : NULL;
    if (group->shapes) a.shapes = op_flat_shapes(s->rows, given ? given->shapes : NAME_NONE);
    if (group->modules && given) a.modules = given->modules;
    if (group->stack) a.stack = op_first_frames(s->rows, NAME_NONE);
    bool wanted = is_wanted(s, event->start, event->thread, is_stage ? event->place : NO_PLACE) &&
                  (is_stage || !s->choice->by_lane); /* a process with device work is never swept */
    uint32_t new;
    *running_new(&s->running, &new) = a;
    running_begin(&s->running, new, event->thread, wanted, NULL);
}

/* ---- memory ---- */

/* Blocks outside the stages that --stage names do not count for operators in those stages. */
static void take_block(struct sweeping *s, const struct swept_block *b)
{
    bool counts = in_stage(s, b->time, b->thread, NO_PLACE);
    struct running *r = &s->running;
    r->host += counts && b->device == DEVICE_HOST ? (uint64_t)b->bytes : 0;
    r->device += counts && b->device >= 0 ? (uint64_t)b->bytes : 0;
    if (!r->covering && counts && choice_moment(s->choice, b->time, b->time))
        running_add_loose(r, b->time, b->device, b->bytes);
}

/* ---- the sweep ---- */

static int held_before(const void *a, const void *b)
{
    const struct op_event *x = a, *y = b;
    int nesting = outer_first(x->start, x->end, y->start, y->end);
    return nesting ? nesting : by_number(x->order, y->order);
}

static void hold(struct sweeping *s, struct op_event event)
{
    s->held = mem_grow(s->held, &s->held_capacity, s->helds + 1, sizeof *s->held);
    s->held[s->helds++] = event;
}

/* Collects the stages and calls, which the process holds. */
static void collect(struct sweeping *s)
{
    const struct process *p = s->process;
    const struct ranges *r = &p->ranges;
    const struct calls *c = &p->calls;
    uint32_t behind = (uint32_t)(r->table.count + p->unheld.ops);
    for (uint32_t i = 0; i < r->table.count; i++)
        if (is_stage(r, i)) hold(s, (struct op_event){r->start[i], r->end[i], r->thread[i], i, i, OP_STAGE});
    for (uint32_t i = 0; i < c->table.count; i++)
        if (is_device_call(&p->func[c->func[i]]))
            hold(s, (struct op_event){c->start[i], c->end[i], c->thread[i], behind + i, i, OP_CALL});
    if (s->helds) qsort(s->held, s->helds, sizeof *s->held, held_before);
}

/* True if the next held event comes before what the file has next. */
static bool is_held_next(const struct sweeping *s, const struct swept *next, bool more)
{
    if (s->next_held == s->helds) return false;
    const struct op_event *held = &s->held[s->next_held];
    if (!more) return true;
    if (held->start > (next->block ? next->block->time : next->op->start)) return false;
    if (next->block) return held->start <= next->block->time;
    int nesting = outer_first(held->start, held->end, next->op->start, next->op->end);
    return nesting ? nesting < 0 : held->order < s->process->ranges.table.count + next->op->order;
}

static void walk(struct sweeping *s, struct sweep *sweep)
{
    struct swept next = {0};
    bool more = sweep_next(sweep, &next);
    while (more || s->next_held < s->helds) {
        if (is_held_next(s, &next, more)) {
            const struct op_event *held = &s->held[s->next_held++];
            running_until(&s->running, held->start);
            begin_held(s, held);
            continue;
        }
        running_until(&s->running, next.op ? next.op->start : next.block->time);
        if (next.op) begin_op(s, next.op);
        else take_block(s, next.block);
        more = sweep_next(sweep, &next);
    }
    running_end(&s->running);
}

static void sweeping_free(struct sweeping *s)
{
    running_free(&s->running);
    free(s->held);
    free(s->hidden);
}

void op_rows_sweep(struct op_rows *rows, struct scope *scope)
{
    const struct process *process = scope->process;
    const struct options *options = rows->chosen->options;
    struct sweep_wants wants = {.ops = true,
                                .op_shapes = options->group_ops.shapes,
                                .op_modules = options->group_ops.modules,
                                .op_stacks = options->group_ops.stack != 0,
                                .blocks = process->unheld.blocks != 0};
    struct sweeping s = {.rows = rows,
                         .process = process,
                         .choice = &scope->choice,
                         .attribution = &scope->attribution,
                         .by_stage = options->stage.count != 0};
    running_init(&s.running, rows, process);
    if (is_filtered(options)) scope_attribute(scope);
    s.takes_all = !is_filtered(options) && !s.choice->warmup.count && !s.choice->off.count;
    collect(&s);
    struct sweep *sweep = sweep_open(process, &rows->chosen->model->names, wants, options->jobs != 1);
    walk(&s, sweep);
    sweep_close(sweep);
    rows->has_memory |= process->unheld.blocks != 0;
    sweeping_free(&s);
}
