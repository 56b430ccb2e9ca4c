/* captured_ops.c - collects the operators around captured calls. */
#include "model/replays/captured_ops.h"

#include <stdlib.h>
#include <string.h>

#include "model/frames.h"

enum { DEEPEST = 4096, CHAIN = 64, MOST_FRAMES = 64, MOST_MODULES = 64 };
static const char of_module[] = "nn.Module: ";

struct open_call {
    uint32_t span, op;        /* op: its entry; NO_PLACE: none yet */
    uint32_t outer[3];        /* place + 1 of the nearest one below it, by enum open_kind */
    uint32_t level;           /* of an operator: how many are around it */
    uint32_t frames, modules; /* of a Python function: of what runs in it; NO_PLACE: not made yet */
    uint8_t kind;
};
enum open_kind { OPEN_OPERATOR, OPEN_PYTHON, OPEN_MODULE };

uint32_t captured_name(const struct captured_stack *s, uint32_t name)
{
    if (s->names == s->to || name == NAME_NONE) return name;
    struct name text = names_copy(s->names, name);
    return names_add(s->to, text.text, text.length);
}

/* The text of a stack has numbers of names. */
static uint32_t moved_frames(const struct captured_stack *s, uint32_t stack)
{
    if (s->names == s->to || stack == NAME_NONE) return stack;
    uint32_t frame[MOST_FRAMES];
    size_t depth = MIN(stack_depth(s->names, stack), MOST_FRAMES);
    for (size_t i = 0; i < depth; i++) frame[i] = captured_name(s, stack_frame(s->names, stack, i));
    return stack_add(s->to, frame, depth);
}

static void close_ended(struct captured_stack *s, int64_t time)
{
    while (s->depth && s->process->spans.end[s->open[s->depth - 1].span] <= time) s->depth--;
}

static enum open_kind kind_of(const struct captured_stack *s, uint32_t span)
{
    if (s->process->spans.event_class[span] == CLASS_OPERATOR) return OPEN_OPERATOR;
    const char *name = names_copy(s->names, s->process->spans.name[span]).text;
    return strncmp(name, of_module, sizeof of_module - 1) == 0 ? OPEN_MODULE : OPEN_PYTHON;
}

/* Returns the place + 1 of the innermost open call of a kind up to a place + 1; 0: there is none. */
static uint32_t place_of_kind(const struct captured_stack *s, uint32_t place, enum open_kind kind)
{
    if (!place) return 0;
    return s->open[place - 1].kind == (uint8_t)kind ? place : s->open[place - 1].outer[kind];
}

void captured_stack_open(struct captured_stack *s, uint32_t span)
{
    struct open_call call = {.span = span, .op = NO_PLACE, .frames = NO_PLACE, .modules = NO_PLACE};
    close_ended(s, s->process->spans.start[span]);
    if (s->depth >= DEEPEST) return;
    call.kind = (uint8_t)kind_of(s, span);
    for (int kind = 0; kind < 3; kind++) call.outer[kind] = place_of_kind(s, (uint32_t)s->depth, (enum open_kind)kind);
    call.level = call.outer[OPEN_OPERATOR] ? s->open[call.outer[OPEN_OPERATOR] - 1].level + 1 : 0;
    s->open = mem_grow(s->open, &s->capacity, s->depth + 1, sizeof *s->open);
    s->open[s->depth++] = call;
}

/* Returns the place + 1 of the Python function around a call; 0: there is none. A module is one too. */
static uint32_t around(const struct open_call *call)
{
    return MAX(call->outer[OPEN_PYTHON], call->outer[OPEN_MODULE]);
}

/* Returns the Python frames around what runs in the function at a place + 1, the innermost first. */
static uint32_t frames_of(struct captured_stack *s, uint32_t place)
{
    uint32_t frame[MOST_FRAMES];
    size_t count = 0;
    if (!place) return NAME_NONE;
    struct open_call *inner = &s->open[place - 1];
    if (inner->frames != NO_PLACE) return inner->frames;
    for (; place && count < MOST_FRAMES; place = around(&s->open[place - 1]))
        frame[count++] = captured_name(s, s->process->spans.name[s->open[place - 1].span]);
    inner->frames = stack_add(s->to, frame, count);
    return inner->frames;
}

/* Returns the path of the module at a place + 1: the names of the modules around it, joined with dots. */
static uint32_t modules_of(struct captured_stack *s, uint32_t place)
{
    uint32_t outer[MOST_MODULES];
    size_t count = 0;
    if (!place) return NAME_NONE;
    struct open_call *inner = &s->open[place - 1];
    if (inner->modules != NO_PLACE) return inner->modules;
    for (; place && count < MOST_MODULES; place = s->open[place - 1].outer[OPEN_MODULE])
        outer[count++] = s->process->spans.name[s->open[place - 1].span];
    struct text path = {0};
    for (size_t i = count; i--;) {
        struct name name = names_copy(s->names, outer[i]);
        size_t skip = sizeof of_module - 1;
        text_format(&path, "%s%.*s", path.length ? "." : "", (int)(name.length - skip), name.text + skip);
    }
    inner->modules = names_add(s->to, path.data, path.length);
    text_free(&path);
    return inner->modules;
}

static uint32_t add_operator(struct captured_stack *s, uint32_t place, uint32_t parent, struct captured_ops *ops)
{
    const struct open_call *open = &s->open[place - 1];
    struct captured_op op = {.name = captured_name(s, s->process->spans.name[open->span]), .parent = parent};
    op.detail = *op_details_of(&s->process->spans.details, open->span);
    uint32_t *const names[] = {&op.detail.shapes, &op.detail.types, &op.detail.concrete, &op.detail.strides,
                               &op.detail.modules};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) *names[i] = captured_name(s, *names[i]);
    op.detail.stack = op.detail.stack == NAME_NONE ? frames_of(s, around(open)) : moved_frames(s, op.detail.stack);
    if (op.detail.modules == NAME_NONE) op.detail.modules = modules_of(s, open->outer[OPEN_MODULE]);
    ops->op = mem_grow(ops->op, &ops->capacity, ops->count + 1, sizeof *ops->op);
    ops->op[ops->count] = op;
    return (uint32_t)ops->count++;
}

uint32_t captured_stack_operator(struct captured_stack *s, int64_t time, struct captured_ops *ops)
{
    uint32_t missing[DEEPEST];
    size_t count = 0;
    close_ended(s, time);
    uint32_t innermost = place_of_kind(s, (uint32_t)s->depth, OPEN_OPERATOR);
    for (uint32_t at = innermost; at && s->open[at - 1].op == NO_PLACE; at = s->open[at - 1].outer[OPEN_OPERATOR])
        missing[count++] = at;
    while (count--) {
        struct open_call *open = &s->open[missing[count] - 1];
        uint32_t outer = open->level % CHAIN ? open->outer[OPEN_OPERATOR] : 0;
        open->op = add_operator(s, missing[count], outer ? s->open[outer - 1].op : NO_PLACE, ops);
    }
    return innermost ? s->open[innermost - 1].op : NO_PLACE;
}

uint32_t captured_op_name(const struct captured_ops *ops, uint32_t op)
{
    return op == NO_PLACE ? NAME_NONE : ops->op[op].name;
}

void captured_ops_agree(struct captured_ops *ops, uint32_t mine, uint32_t other, struct map *seen)
{
    while (mine != NO_PLACE && mine != other && map_get(seen, (uint64_t)mine << 32 | other) == MAP_NONE) {
        struct captured_op *op = &ops->op[mine];
        const struct op_detail *of = &ops->op[other].detail;
        map_put(seen, (uint64_t)mine << 32 | other, 1);
        uint32_t *const names[] = {&op->detail.shapes,  &op->detail.types,   &op->detail.concrete,
                                   &op->detail.strides, &op->detail.modules, &op->detail.stack};
        const uint32_t others[] = {of->shapes, of->types, of->concrete, of->strides, of->modules, of->stack};
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
            if (*names[i] != others[i]) *names[i] = NAME_NONE;
        other = ops->op[other].parent;
        if (captured_op_name(ops, op->parent) != captured_op_name(ops, other)) op->parent = NO_PLACE;
        mine = op->parent;
    }
}

uint32_t captured_ops_append(struct captured_ops *to, const struct captured_ops *from)
{
    uint32_t first = (uint32_t)to->count;
    to->op = mem_grow(to->op, &to->capacity, to->count + from->count, sizeof *to->op);
    for (size_t i = 0; i < from->count; i++) {
        to->op[to->count] = from->op[i];
        if (from->op[i].parent != NO_PLACE) to->op[to->count].parent += first;
        to->count++;
    }
    return first;
}
