/* op_rows.c - groups events as torch.profiler does. */
#include "op_rows.h"

#include <stdlib.h>
#include <string.h>

#include "stacks.h"
#include "stages.h"
#include "steps.h"

/* ---- what rows are grouped by ---- */

/* As torch shows input shapes: [[2, 3], [], []]; a list of tensors is an empty list. */
static void flatten(const char *json, struct text *flat)
{
    bool is_list = false; /* what is open as an item holds other lists */
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

static uint32_t flat_shapes(struct op_rows *rows, uint32_t shapes)
{
    struct names *names = &rows->session->model.names;
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

/* The first frames of a stack, a line each. */
static uint32_t first_frames(struct op_rows *rows, uint32_t stack)
{
    struct names *names = &rows->session->model.names;
    uint32_t frames = stack == NAME_NONE ? NAME_NONE : map_get(&rows->frames, stack);
    if (frames == MAP_NONE) {
        struct text text = {0};
        size_t count = MIN(stack_depth(names, stack), rows->session->options.group_ops.stack);
        for (size_t i = 0; i < count; i++) {
            text_puts(&text, i ? "\n" : "");
            frame_text(names_get(names, stack_frame(names, stack, i)), &text);
        }
        frames = names_add(names, text.data ? text.data : "", text.length);
        map_put(&rows->frames, stack, frames);
        text_free(&text);
    }
    return frames;
}

/* ---- rows ---- */

static uint32_t number_of(struct map *map, uint64_t key)
{
    uint32_t number = map_get(map, key);
    if (number == MAP_NONE) {
        number = (uint32_t)map->count;
        map_put(map, key, number);
    }
    return number;
}

/* What an event adds to its row. */
struct addition {
    uint32_t name, shapes, stack;
    bool on_device, is_annotation, is_call, is_async;
    int64_t start, end;
    uint32_t order;
    uint64_t flops;
    struct op_sums own, all;
};

static bool is_earlier(const struct op_row *row, const struct addition *a)
{
    if (a->start != row->start) {
        return a->start < row->start;
    }
    return a->end != row->end ? a->end > row->end : a->order < row->order;
}

static void add_sums(struct op_sums *to, const struct op_sums *from)
{
    to->time = add_ns(to->time, from->time);
    to->device = add_ns(to->device, from->device);
    to->host_bytes = add_ns(to->host_bytes, from->host_bytes);
    to->device_bytes = add_ns(to->device_bytes, from->device_bytes);
}

static void add_to_row(struct op_rows *rows, const struct addition *a, size_t process)
{
    uint64_t flags = (uint64_t)(a->on_device | a->is_annotation << 1);
    uint32_t key = number_of(&rows->by_name, flags << 32 | a->name);
    key = number_of(&rows->by_shapes, (uint64_t)key << 32 | a->shapes);
    uint32_t place = number_of(&rows->by_stack, (uint64_t)key << 32 | a->stack);
    if (place == rows->count) {
        rows->row = mem_grow(rows->row, &rows->capacity, rows->count + 1, sizeof *rows->row);
        rows->row[rows->count++] = (struct op_row){.name = a->name,
                                                   .shapes = a->shapes,
                                                   .stack = a->stack,
                                                   .on_device = a->on_device,
                                                   .is_annotation = a->is_annotation,
                                                   .is_async = a->is_async,
                                                   .process = process,
                                                   .start = a->start,
                                                   .end = a->end,
                                                   .order = a->order};
    }
    struct op_row *row = &rows->row[place];
    if (row->process == process && is_earlier(row, a)) {
        row->start = a->start;
        row->end = a->end;
        row->order = a->order;
        row->is_async = a->is_async;
    }
    row->calls += a->is_call;
    row->flops += a->flops;
    add_sums(&row->own, &a->own);
    add_sums(&row->all, &a->all);
    rows->events++;
}

/* ---- stacks of backward operators ---- */

/* As torch does it, they are those of the forward operators. */
struct forward_stacks {
    struct map numbers; /* of threads and sequence numbers */
    struct map stack;
    uint32_t *backward; /* by event: the innermost backward operator it lies in, a place in events; NO_PLACE */
};

static const struct op_detail *detail_of(const struct op_events *e, size_t i)
{
    const struct spans *s = &e->process->spans;
    const struct op_event *event = &e->event[i];
    bool has = event->kind == OP_SPAN && s->class[event->place] == CLASS_OPERATOR && event->place < s->detail_capacity;
    return has ? &s->detail[event->place] : NULL;
}

static uint64_t forward_key(struct forward_stacks *f, uint32_t thread, int64_t sequence)
{
    return (uint64_t)number_of(&f->numbers, (uint64_t)sequence) << 32 | thread;
}

static void find_forward_stacks(struct forward_stacks *f, const struct op_events *e)
{
    f->backward = mem_zero(e->count, sizeof *f->backward);
    for (size_t i = 0; i < e->count; i++) {
        const struct op_detail *d = detail_of(e, i);
        f->backward[i] = d && d->scope == TFI_SCOPE_BACKWARD ? (uint32_t)i
                         : e->parent[i] != NO_PLACE          ? f->backward[e->parent[i]]
                                                             : NO_PLACE;
        if (d && f->backward[i] == NO_PLACE && d->stack != NAME_NONE) {
            uint64_t key = forward_key(f, e->event[i].thread, d->sequence);
            if (map_get(&f->stack, key) == MAP_NONE) {
                map_put(&f->stack, key, d->stack);
            }
        }
    }
}

static uint32_t stack_of(struct forward_stacks *f, const struct op_events *e, size_t i)
{
    const struct op_detail *d = detail_of(e, i);
    if (f->backward[i] != NO_PLACE) {
        const struct op_detail *backward = detail_of(e, f->backward[i]);
        uint32_t stack = map_get(&f->stack, forward_key(f, backward->forward_thread, backward->sequence));
        return stack == MAP_NONE ? NAME_NONE : stack;
    }
    return d ? d->stack : NAME_NONE;
}

static void forward_stacks_free(struct forward_stacks *f)
{
    map_free(&f->numbers);
    map_free(&f->stack);
    free(f->backward);
}

/* ---- one process ---- */

struct adding {
    struct op_rows *rows;
    struct op_events events;
    struct choice choice;
    struct attribution attribution;
    struct forward_stacks stacks;
    bool by_stage;
};

/* In a stage that --stage names, at its launch or that of its forward operator. */
static bool in_stage(const struct adding *a, uint32_t stage, int64_t time)
{
    const struct session *session = a->rows->session;
    for (; stage != NO_PLACE; stage = stage_around(&a->attribution, stage, time)) {
        if (session_wants_stage(session, model_name(&session->model, a->events.process->ranges.name[stage]))) {
            return true;
        }
    }
    return false;
}

static bool wants_event(const struct adding *a, const struct op_event *event)
{
    struct belonging at = {event->start, NO_PLACE, 0};
    if (event->kind == OP_STAGE) {
        at.stage = event->place;
    } else if (a->attribution.span && event->kind != OP_CALL) {
        at = a->attribution.span[event->place];
    } else if (a->attribution.span && a->events.process->calls.span[event->place] != NO_PLACE) {
        at = a->attribution.span[a->events.process->calls.span[event->place]];
    }
    return choice_moment(&a->choice, event->start, at.time) && (!a->by_stage || in_stage(a, at.stage, at.time));
}

/* A difference that stops at the largest number there is, as add_ns does. */
static int64_t less(int64_t a, int64_t b)
{
    int64_t difference;
    return __builtin_sub_overflow(a, b, &difference) ? (b < 0 ? INT64_MAX : INT64_MIN) : difference;
}

static void add_event(struct adding *a, size_t i)
{
    const struct op_events *e = &a->events;
    const struct op_event *event = &e->event[i];
    const struct op_detail *detail = detail_of(e, i);
    const struct group_ops *group = &a->rows->session->options.group_ops;
    const struct ranges *r = &e->process->ranges;
    bool is_stage = event->kind == OP_STAGE;
    struct addition addition = {.name = op_event_name(e, event),
                                .is_annotation = is_stage,
                                .is_call = !(is_stage && r->flags[event->place] & RANGE_CONTINUED),
                                .start = event->start,
                                .end = event->end,
                                .order = event->order,
                                .flops = detail ? detail->flops : 0,
                                .all = e->all[i]};
    const struct op_sums *all = &e->all[i], *children = &e->children[i];
    addition.own =
        (struct op_sums){less(all->time, children->time), less(all->device, children->device),
                         less(all->host_bytes, children->host_bytes), less(all->device_bytes, children->device_bytes)};
    if (op_event_is_async(e, event)) {
        addition.is_async = true;
        addition.own = (struct op_sums){0};
        addition.all.device = 0;
    }
    if (group->shapes) {
        uint32_t shapes = detail ? detail->shapes : NAME_NONE;
        const struct op_detail *given = is_stage ? range_inputs(e->process, event->place) : NULL;
        addition.shapes = flat_shapes(a->rows, given ? given->shapes : shapes);
    }
    if (group->stack) {
        addition.stack = first_frames(a->rows, stack_of(&a->stacks, e, i));
    }
    add_to_row(a->rows, &addition, (size_t)(e->process - a->rows->session->model.process));
}

/* A step's shadow on a device has the name that all steps have. */
static uint32_t any_step(struct op_rows *rows, uint32_t name)
{
    struct names *names = &rows->session->model.names;
    const struct name *text = names_get(names, name);
    uint64_t number;
    bool is_step = step_number((struct slice){text->text, text->length}, &number);
    return is_step ? names_add(names, ANY_STEP, strlen(ANY_STEP)) : name;
}

static void add_works(struct adding *a)
{
    const struct process *p = a->events.process;
    const struct works *w = &p->works;
    bool is_kineto = is_of_kineto(p);
    for (size_t i = 0; i < w->table.count; i++) {
        struct interval when = {w->start[i], w->end[i]};
        bool is_annotation = w->class[i] == CLASS_DEVICE_ANNOTATION;
        bool wanted = IS_WORK(w->class[i]) ? choice_work(&a->choice, i, &when)
                                           : is_kineto && a->choice.lane[w->lane[i]] &&
                                                 choice_moment(&a->choice, w->start[i], w->start[i]);
        if (!wanted || (a->by_stage &&
                        (is_annotation || !in_stage(a, a->attribution.work[i].stage, a->attribution.work[i].time)))) {
            continue;
        }
        struct addition addition = {.name = is_annotation ? any_step(a->rows, w->name[i]) : w->name[i],
                                    .on_device = true,
                                    .is_annotation = is_annotation,
                                    .is_call = true,
                                    .start = w->start[i],
                                    .end = w->end[i],
                                    .order = (uint32_t)(a->events.count + i)};
        addition.own.device = addition.all.device = when.end - when.start;
        addition.shapes = a->rows->session->options.group_ops.shapes ? flat_shapes(a->rows, NAME_NONE) : NAME_NONE;
        a->rows->has_device = true;
        add_to_row(a->rows, &addition, (size_t)(p - a->rows->session->model.process));
    }
}

/* What was allocated while nothing was open. */
static void add_loose_blocks(struct adding *a)
{
    static const char name[] = "[memory]";
    const struct process *p = a->events.process;
    const struct blocks *b = &p->blocks;
    for (size_t i = 0; i < b->table.count; i++) {
        if (!a->events.is_loose[i] || a->by_stage || !choice_moment(&a->choice, b->time[i], b->time[i])) {
            continue;
        }
        struct addition addition = {.name = names_add(&a->rows->session->model.names, name, sizeof name - 1),
                                    .is_call = true,
                                    .start = b->time[i],
                                    .end = b->time[i],
                                    .order = UINT32_MAX};
        addition.own.host_bytes = b->device[i] == DEVICE_HOST ? b->bytes[i] : 0;
        addition.own.device_bytes = b->device[i] >= 0 ? b->bytes[i] : 0;
        addition.all = addition.own;
        addition.shapes = a->rows->session->options.group_ops.shapes ? flat_shapes(a->rows, NAME_NONE) : NAME_NONE;
        add_to_row(a->rows, &addition, (size_t)(p - a->rows->session->model.process));
    }
}

/* What was allocated outside the stages --stage names: it is no operator's of theirs, though it was one's time. A profile
 * of torch's, which sees the threads it was told to see, has none of that either. */
static bool *blocks_outside(const struct adding *a, const struct process *process)
{
    size_t count = process->blocks.table.count;
    bool *outside = mem_zero(count, sizeof *outside);
    for (size_t i = 0; i < count; i++) {
        outside[i] = !in_stage(a, a->attribution.block[i].stage, a->attribution.block[i].time);
    }
    return outside;
}

void op_rows_add(struct op_rows *rows, const struct process *process)
{
    struct adding a = {.rows = rows};
    bool *outside = NULL;
    const struct options *options = &rows->session->options;
    a.by_stage = options->stage.count != 0;
    bool launches = process->works.table.count && !is_of_kineto(process);
    if (launches || is_filtered(rows->session)) {
        attribute(&a.attribution, process, true);
    }
    choice_init(&a.choice, rows->session, process, &a.attribution);
    a.events.process = process;
    if (a.by_stage) {
        outside = blocks_outside(&a, process);
    }
    op_events_init(&a.events, process, &a.attribution, outside, &rows->session->model.names);
    if (options->group_ops.stack) {
        find_forward_stacks(&a.stacks, &a.events);
    }
    for (size_t i = 0; i < a.events.count; i++) {
        const struct op_event *event = &a.events.event[i];
        if (!a.events.is_gone[i] && event->kind != OP_PYTHON && wants_event(&a, event)) {
            add_event(&a, i);
        }
    }
    add_works(&a);
    add_loose_blocks(&a);
    rows->has_memory |= process->blocks.table.count != 0;
    forward_stacks_free(&a.stacks);
    op_events_free(&a.events);
    choice_free(&a.choice);
    attribution_free(&a.attribution);
    free(outside);
}

static int by_first_event(const void *a, const void *b)
{
    const struct op_row *x = a, *y = b;
    if (x->process != y->process) {
        return x->process < y->process ? -1 : 1;
    }
    int nesting = outer_first(x->start, x->end, y->start, y->end);
    if (nesting) {
        return nesting;
    }
    return (x->order > y->order) - (x->order < y->order);
}

void op_rows_end(struct op_rows *rows)
{
    if (rows->count) {
        qsort(rows->row, rows->count, sizeof *rows->row, by_first_event);
    }
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
