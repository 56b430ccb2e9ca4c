/* rows.c - groups events as torch.profiler does. */
#include "ask/ops/rows.h"

#include <stdlib.h>
#include <string.h>

#include "ask/ops/addition.h"
#include "ask/ops/stacks.h"
#include "ask/ops/swept.h"
#include "ask/stages/order.h"
#include "model/frames.h"
#include "model/steps.h"

/* ---- keys of rows ---- */

/* Writes input shapes as torch shows them: [[2, 3], [], []]. A list of tensors becomes an empty list. */
static void flatten(const char *json, struct text *flat)
{
    bool is_list = false; /* the open item contains other lists */
    size_t item = 0;
    int depth = 0;
    for (const char *p = json; *p; p++) {
        if (*p == '[' && ++depth > 2) {
            is_list = true;
        } else if (*p == '[') {
            item = flat->length;
            text_puts(flat, "[");
        } else if (*p == ']' && depth-- <= 2) {
            if (is_list) {
                flat->length = item + 1;
                is_list = false;
            }
            text_puts(flat, "]");
        } else if (*p == ',' && depth <= 2) {
            text_puts(flat, ", ");
        } else if (depth <= 2 && *p > ' ') {
            text_add(flat, p, 1);
        }
    }
}

uint32_t op_flat_shapes(struct op_rows *rows, uint32_t shapes)
{
    struct names *names = &rows->chosen->model->names;
    uint32_t flat = map_get(&rows->flat_shapes, shapes);
    if (flat == MAP_NONE) {
        struct text text = {0};
        flatten(shapes == NAME_NONE ? "[]" : names_get(names, shapes)->text, &text);
        flat = names_add(names, text.data ? text.data : "", text.length);
        map_put(&rows->flat_shapes, shapes, flat);
        text_free(&text);
    }
    return flat;
}

/* Returns the first frames of a stack, one per line. */
uint32_t op_first_frames(struct op_rows *rows, uint32_t stack)
{
    struct names *names = &rows->chosen->model->names;
    uint32_t frames = stack == NAME_NONE ? NAME_NONE : map_get(&rows->frames, stack);
    if (frames == MAP_NONE) {
        struct text text = {0};
        size_t depth = stack_depth(names, stack), left = rows->chosen->options->group_ops.stack;
        for (size_t i = 0; i < depth && left; i++) {
            size_t before = text.length;
            text_puts(&text, before ? "\n" : "");
            frame_text(names_get(names, stack_frame(names, stack, i)), &text);
            bool hidden = text.data && op_frame_is_hidden(text.data + before);
            text.length = hidden ? before : text.length;
            left -= !hidden;
        }
        frames = names_add(names, text.data ? text.data : "", text.length);
        map_put(&rows->frames, stack, frames);
        text_free(&text);
    }
    return frames;
}

/* ---- rows ---- */

static bool is_earlier(const struct op_row *row, const struct addition *a)
{
    if (a->start != row->start) return a->start < row->start;
    return a->end != row->end ? a->end > row->end : a->order < row->order;
}

static void add_sums(struct op_sums *to, const struct op_sums *from)
{
    to->time = add_ns(to->time, from->time);
    to->device = add_ns(to->device, from->device);
    to->host_bytes = add_ns(to->host_bytes, from->host_bytes);
    to->device_bytes = add_ns(to->device_bytes, from->device_bytes);
}

size_t op_row_of(struct op_rows *rows, const struct addition *a)
{
    uint64_t flags = (uint64_t)(a->on_device | a->is_annotation << 1);
    uint32_t key = map_number(&rows->by_name, flags << 32 | a->name);
    key = map_number(&rows->by_shapes, (uint64_t)key << 32 | a->shapes);
    uint32_t place = map_number(&rows->by_stack, (uint64_t)key << 32 | a->stack);
    if (place == rows->count) {
        rows->row = mem_grow(rows->row, &rows->capacity, rows->count + 1, sizeof *rows->row);
        rows->row[rows->count++] = (struct op_row){.name = a->name,
                                                   .shapes = a->shapes,
                                                   .stack = a->stack,
                                                   .on_device = a->on_device,
                                                   .is_annotation = a->is_annotation};
    }
    return place;
}

void op_row_add(struct op_rows *rows, size_t place, const struct addition *a, size_t process)
{
    struct op_row *row = &rows->row[place];
    if (!row->events || (row->process == process && is_earlier(row, a))) {
        row->process = process;
        row->start = a->start;
        row->end = a->end;
        row->order = a->order;
        row->is_async = a->is_async;
    }
    row->events++;
    row->calls += a->is_call;
    row->flops += a->flops;
    add_sums(&row->own, &a->own);
    add_sums(&row->all, &a->all);
    rows->events++;
}

void op_row_add_us(struct op_row *row, const struct op_us *us)
{
    row->us.all += us->all;
    row->us.own += us->own;
    row->us.device += us->device;
    row->us.own_device += us->own_device;
}

static void add_to_row(struct op_rows *rows, const struct addition *a, size_t process)
{
    size_t place = op_row_of(rows, a);
    op_row_add(rows, place, a, process);
    op_row_add_us(&rows->row[place], &a->us);
}

/* ---- one process ---- */

struct adding {
    struct op_rows *rows;
    struct op_events events;
    struct choice choice;
    struct attribution attribution;
    struct op_stacks stacks;
    bool by_stage;
};

/* True if --stage names `stage` or one around it that is open at `time`: the launch, or the forward operator. */
static bool in_stage(const struct adding *a, uint32_t stage, int64_t time)
{
    return stage_or_around(&a->choice.paths, stage, time) != NO_PLACE;
}

static bool wants_event(const struct adding *a, const struct op_event *event)
{
    struct belonging at = {event->start, NO_PLACE, 0};
    if (event->kind == OP_STAGE) at.stage = event->place;
    else if (a->attribution.span && event->kind != OP_CALL) at = a->attribution.span[event->place];
    else if (a->attribution.span && a->events.process->calls.span[event->place] != NO_PLACE)
        at = a->attribution.span[a->events.process->calls.span[event->place]];
    return choice_moment(&a->choice, event->start, at.time) && (!a->by_stage || in_stage(a, at.stage, at.time));
}

/* Subtracts with saturation, as add_ns adds. */
static int64_t less(int64_t a, int64_t b)
{
    int64_t difference;
    return __builtin_sub_overflow(a, b, &difference) ? (b < 0 ? INT64_MAX : INT64_MIN) : difference;
}

struct op_sums op_sums_less(const struct op_sums *all, const struct op_sums *children)
{
    return (struct op_sums){less(all->time, children->time), less(all->device, children->device),
                            less(all->host_bytes, children->host_bytes),
                            less(all->device_bytes, children->device_bytes)};
}

static void add_event(struct adding *a, size_t i)
{
    const struct op_events *e = &a->events;
    const struct op_event *event = &e->event[i];
    const struct op_detail *detail = op_detail_of(e, i);
    const struct group_ops *group = &a->rows->chosen->options->group_ops;
    const struct ranges *r = &e->process->ranges;
    bool is_stage = event->kind == OP_STAGE;
    struct addition addition = {.name = op_event_name(e, event),
                                .is_annotation = is_stage,
                                .is_call = !(is_stage && r->flags[event->place] & RANGE_CONTINUED),
                                .start = event->start,
                                .end = event->end,
                                .order = event->order,
                                .flops = detail ? detail->flops : 0,
                                .us = op_event_us(e, i)};
    struct op_sums children;
    addition.all = op_event_sums(e, i, &children);
    addition.own = op_sums_less(&addition.all, &children);
    if (op_event_is_async(e, event)) {
        addition.is_async = true;
        addition.own = (struct op_sums){0};
        addition.all.device = 0;
        addition.us = (struct op_us){.all = addition.us.all};
    }
    if (group->shapes) {
        uint32_t shapes = detail ? detail->shapes : NAME_NONE;
        const struct op_detail *given = is_stage ? range_inputs(e->process, event->place) : NULL;
        addition.shapes = op_flat_shapes(a->rows, given ? given->shapes : shapes);
    }
    if (group->stack) addition.stack = op_first_frames(a->rows, op_stack_of(&a->stacks, i));
    add_to_row(a->rows, &addition, (size_t)(e->process - a->rows->chosen->model->process));
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

static void add_work(struct adding *a, size_t i)
{
    const struct process *p = a->events.process;
    const struct works *w = &p->works;
    struct interval when = {w->start[i], w->end[i]};
    bool is_annotation = w->event_class[i] == CLASS_DEVICE_ANNOTATION;
    bool wanted = IS_WORK(w->event_class[i]) ? choice_work(&a->choice, i, &when)
                                             : is_of_kineto(p) && a->choice.lane[w->lane[i]] &&
                                                   choice_moment(&a->choice, w->start[i], w->start[i]);
    if (!wanted ||
        (a->by_stage && (is_annotation || !in_stage(a, a->attribution.work[i].stage, a->attribution.work[i].time))))
        return;
    struct addition addition = {.name = is_annotation ? any_step(a->rows, w->name[i]) : w->name[i],
                                .on_device = true,
                                .is_annotation = is_annotation,
                                .is_call = true,
                                .start = w->start[i],
                                .end = w->end[i],
                                .order = (uint32_t)(a->events.count + i)};
    addition.own.device = addition.all.device = when.end - when.start;
    addition.us.device = addition.us.own_device = op_elapsed_us(&a->events, when.start, when.end);
    addition.shapes = a->rows->chosen->options->group_ops.shapes ? op_flat_shapes(a->rows, NAME_NONE) : NAME_NONE;
    a->rows->has_device = true;
    add_to_row(a->rows, &addition, (size_t)(p - a->rows->chosen->model->process));
}

/* Adds a block that was allocated or freed while no event was open. */
static void add_loose_block(struct adding *a, size_t i)
{
    static const char name[] = "[memory]";
    const struct process *p = a->events.process;
    const struct blocks *b = &p->blocks;
    if (!a->events.is_loose[i] || a->by_stage || !choice_moment(&a->choice, b->time[i], b->time[i])) return;
    struct addition addition = {.name = names_add(&a->rows->chosen->model->names, name, sizeof name - 1),
                                .is_call = true,
                                .start = b->time[i],
                                .end = b->time[i],
                                .order = UINT32_MAX};
    addition.own.host_bytes = b->device[i] == DEVICE_HOST ? b->bytes[i] : 0;
    addition.own.device_bytes = b->device[i] >= 0 ? b->bytes[i] : 0;
    addition.all = addition.own;
    addition.shapes = a->rows->chosen->options->group_ops.shapes ? op_flat_shapes(a->rows, NAME_NONE) : NAME_NONE;
    add_to_row(a->rows, &addition, (size_t)(p - a->rows->chosen->model->process));
}

/* ---- torch's order of adding doubles ---- */

struct moment {
    int64_t start, end;
    uint32_t order, place;
    void (*add)(struct adding *a, size_t place);
};

struct moments {
    struct moment *moment;
    size_t count;
    bool sorted;
};

static int by_moment(const void *a, const void *b)
{
    const struct moment *x = a, *y = b;
    int nesting = outer_first(x->start, x->end, y->start, y->end);
    if (nesting) return nesting;
    return (x->order > y->order) - (x->order < y->order);
}

static void put_moment(struct moments *all, struct moment moment)
{
    all->sorted &= !all->count || by_moment(&all->moment[all->count - 1], &moment) <= 0;
    all->moment[all->count++] = moment;
}

static void add_all(struct adding *a)
{
    const struct op_events *e = &a->events;
    const struct works *w = &e->process->works;
    const struct blocks *b = &e->process->blocks;
    struct moments all = {mem_zero(e->count + w->table.count + b->table.count, sizeof *all.moment), 0, true};
    for (size_t i = 0; i < e->count; i++) {
        const struct op_event *event = &e->event[i];
        if (!e->is_gone[i] && (event->kind != OP_PYTHON || a->rows->with_python) && wants_event(a, event))
            put_moment(&all, (struct moment){event->start, event->end, event->order, (uint32_t)i, add_event});
    }
    for (size_t i = 0; i < w->table.count; i++)
        put_moment(&all, (struct moment){w->start[i], w->end[i], (uint32_t)(e->count + i), (uint32_t)i, add_work});
    for (size_t i = 0; i < b->table.count; i++)
        if (e->is_loose[i])
            put_moment(&all, (struct moment){b->time[i], b->time[i], UINT32_MAX, (uint32_t)i, add_loose_block});
    if (!all.sorted) qsort(all.moment, all.count, sizeof *all.moment, by_moment);
    for (size_t i = 0; i < all.count; i++) all.moment[i].add(a, all.moment[i].place);
    free(all.moment);
}

/* Marks blocks outside the stages that --stage names. They do not count for operators in those stages, even if they
 * fall in an operator's time. A torch profile, which sees only the threads it was told to see, lacks them too. */
static bool *blocks_outside(const struct adding *a, const struct process *process)
{
    size_t count = process->blocks.table.count;
    bool *outside = mem_zero(count, sizeof *outside);
    for (size_t i = 0; i < count; i++)
        outside[i] = !in_stage(a, a->attribution.block[i].stage, a->attribution.block[i].time);
    return outside;
}

void op_rows_add(struct op_rows *rows, const struct process *process)
{
    if (process->unheld.trace) {
        op_rows_sweep(rows, process);
        return;
    }
    struct adding a = {.rows = rows};
    bool *outside = NULL;
    const struct options *options = rows->chosen->options;
    a.by_stage = options->stage.count != 0;
    bool launches = process->works.table.count && !is_of_kineto(process);
    if (launches || is_filtered(options)) attribute(&a.attribution, process, true);
    choice_init(&a.choice, rows->chosen, process, &a.attribution);
    a.events.process = process;
    if (a.by_stage) outside = blocks_outside(&a, process);
    op_events_init(&a.events, process, &a.attribution, outside, &rows->chosen->model->names);
    if (options->group_ops.stack)
        op_stacks_init(&a.stacks, &a.events, &rows->chosen->model->names, options->group_ops.stack);
    add_all(&a);
    rows->has_memory |= process->blocks.table.count != 0;
    op_stacks_free(&a.stacks);
    op_events_free(&a.events);
    choice_free(&a.choice);
    attribution_free(&a.attribution);
    free(outside);
}

static int by_first_event(const void *a, const void *b)
{
    const struct op_row *x = a, *y = b;
    if (x->process != y->process) return x->process < y->process ? -1 : 1;
    int nesting = outer_first(x->start, x->end, y->start, y->end);
    if (nesting) return nesting;
    return (x->order > y->order) - (x->order < y->order);
}

void op_rows_end(struct op_rows *rows)
{
    size_t kept = 0;
    for (size_t i = 0; i < rows->count; i++)
        if (rows->row[i].events) rows->row[kept++] = rows->row[i];
    rows->count = kept;
    if (rows->count) qsort(rows->row, rows->count, sizeof *rows->row, by_first_event);
}

void op_rows_free(struct op_rows *rows)
{
    free(rows->row);
    map_free(&rows->by_name);
    map_free(&rows->by_shapes);
    map_free(&rows->by_stack);
    map_free(&rows->flat_shapes);
    map_free(&rows->frames);
}
