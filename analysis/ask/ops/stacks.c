/* stacks.c - finds the stack of an event: its own, its forward operator's, or the Python functions around it.
 *
 * As in torch, everything in a backward operator gets the stack of the first operator with its sequence number on the
 * forward thread. A .tfr trace names that thread by its serial. Kineto names it by a number from torch ("Fwd thread
 * id"), and the arrows from forward to backward operators tell which thread that is.
 * Kineto writes a stack for each operator. Some exporters keep only Python functions, as separate events; the stack
 * then consists of the functions around the operator.
 */
#include "ask/ops/stacks.h"

#include <stdlib.h>
#include <string.h>

#include "model/frames.h"

bool op_frame_is_hidden(const char *text)
{
    static const char *const hidden[][2] = {
        {"autograd/__init__", "_make_grads"},
        {"autograd/__init__", "backward"},
        {"torch/tensor", "backward"},
        {"_internal/common_utils", "prof_callable"},
        {"_internal/common_utils", "prof_func_call"},
        {"_internal/common_utils", "prof_meth_call"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
        if (strstr(text, hidden[i][0]) && strstr(text, hidden[i][1])) return true;
    return false;
}

const struct op_detail *op_detail_of(const struct op_events *e, size_t i)
{
    const struct spans *s = &e->process->spans;
    const struct op_event *event = &e->event[i];
    bool has = event->kind == OP_SPAN && s->event_class[event->place] == CLASS_OPERATOR && event->place < s->details;
    return has ? &s->detail[event->place] : NULL;
}

/* Kineto writes no scopes. In its traces a backward operator lies in a frame of autograd's engine with its name. */
static bool is_backward(const struct op_events *e, size_t i)
{
    static const char prefix[] = "autograd::engine::evaluate_function: ";
    const struct op_detail *d = op_detail_of(e, i);
    if (!d || !is_of_kineto(e->process) || d->scope == TFI_SCOPE_BACKWARD || e->parent[i] == NO_PLACE)
        return d && d->scope == TFI_SCOPE_BACKWARD;
    const char *frame = names_get(e->names, op_event_name(e, &e->event[e->parent[i]]))->text;
    return strncmp(frame, prefix, sizeof prefix - 1) == 0 &&
           strcmp(frame + sizeof prefix - 1, names_get(e->names, op_event_name(e, &e->event[i]))->text) == 0;
}

/* ---- torch's thread numbers ---- */

static void find_threads(struct op_stacks *s)
{
    const struct op_events *e = s->events;
    const struct forwards *f = &e->process->forwards;
    struct map end_at = {0}, begin_of = {0}; /* ends by time, beginnings by id: indices into forwards */
    for (size_t i = 0; i < f->table.count; i++) {
        map_put(f->is_forward[i] ? &begin_of : &end_at, f->is_forward[i] ? f->id[i] : (uint64_t)f->time[i],
                (uint32_t)i);
    }
    for (size_t i = 0; i < e->count; i++) {
        const struct op_detail *d = op_detail_of(e, i);
        uint32_t end = d && d->scope == TFI_SCOPE_BACKWARD ? map_get(&end_at, (uint64_t)e->event[i].start) : MAP_NONE;
        uint32_t begin =
            end != MAP_NONE && f->thread[end] == e->event[i].thread ? map_get(&begin_of, f->id[end]) : MAP_NONE;
        if (begin != MAP_NONE && map_get(&s->thread, d->forward_thread) == MAP_NONE)
            map_put(&s->thread, d->forward_thread, f->thread[begin]);
    }
    map_free(&end_at);
    map_free(&begin_of);
}

/* Without arrows, returns the thread of the operator itself: the engine runs host backward operators in the caller. */
static uint32_t forward_thread(const struct op_stacks *s, size_t backward)
{
    const struct op_detail *d = op_detail_of(s->events, backward);
    if (!is_of_kineto(s->events->process)) return d->forward_thread;
    uint32_t thread = map_get(&s->thread, d->forward_thread);
    return thread == MAP_NONE ? s->events->event[backward].thread : thread;
}

/* ---- Python functions around an operator ---- */

static void find_python(struct op_stacks *s)
{
    const struct op_events *e = s->events;
    bool any = false;
    s->python = mem_zero(e->count, sizeof *s->python);
    for (size_t i = 0; i < e->count; i++) {
        uint32_t parent = e->parent[i];
        s->python[i] = parent == NO_PLACE ? NO_PLACE : e->event[parent].kind == OP_PYTHON ? parent : s->python[parent];
        any |= e->event[i].kind == OP_PYTHON;
    }
    if (!any) {
        free(s->python);
        s->python = NULL;
    }
}

/* Returns the stack of events that run directly in the Python function of event `i`. */
static uint32_t python_stack(struct op_stacks *s, uint32_t i)
{
    uint32_t made = map_get(&s->made, i), *frame = NULL;
    size_t count = 0, capacity = 0;
    if (made != MAP_NONE) return made;
    for (uint32_t at = i; at != NO_PLACE && count < s->frames; at = s->python[at]) {
        uint32_t name = op_event_name(s->events, &s->events->event[at]);
        if (!op_frame_is_hidden(names_get(s->names, name)->text)) {
            frame = mem_grow(frame, &capacity, count + 1, sizeof *frame);
            frame[count++] = name;
        }
    }
    made = stack_add(s->names, frame, count);
    map_put(&s->made, i, made);
    free(frame);
    return made;
}

static uint32_t own_stack(struct op_stacks *s, size_t i)
{
    const struct op_event *event = &s->events->event[i];
    bool is_range = event->kind == OP_STAGE && is_of_kineto(s->events->process);
    const struct op_detail *d = is_range ? range_inputs(s->events->process, event->place) : op_detail_of(s->events, i);
    if (d && d->stack != NAME_NONE) return d->stack;
    return s->python && s->python[i] != NO_PLACE ? python_stack(s, s->python[i]) : NAME_NONE;
}

/* ---- own and forward stacks ---- */

static uint64_t forward_key(struct op_stacks *s, uint32_t thread, int64_t sequence)
{
    return (uint64_t)map_number(&s->numbers, (uint64_t)sequence) << 32 | thread;
}

void op_stacks_init(struct op_stacks *s, const struct op_events *e, struct names *names, size_t frames)
{
    *s = (struct op_stacks){.events = e, .names = names, .frames = frames};
    s->backward = mem_zero(e->count, sizeof *s->backward);
    find_threads(s);
    if (is_of_kineto(e->process)) find_python(s);
    for (size_t i = 0; i < e->count; i++) {
        const struct op_detail *d = op_detail_of(e, i);
        s->backward[i] = is_backward(e, i)          ? (uint32_t)i
                         : e->parent[i] != NO_PLACE ? s->backward[e->parent[i]]
                                                    : NO_PLACE;
        if (d && s->backward[i] == NO_PLACE) {
            uint64_t key = forward_key(s, e->event[i].thread, d->sequence);
            uint32_t stack = map_get(&s->forward, key) == MAP_NONE ? own_stack(s, i) : NAME_NONE;
            if (stack != NAME_NONE) map_put(&s->forward, key, stack);
        }
    }
}

uint32_t op_stack_of(struct op_stacks *s, size_t i)
{
    if (s->backward[i] != NO_PLACE) {
        const struct op_detail *backward = op_detail_of(s->events, s->backward[i]);
        if (!backward->forward_thread) return NAME_NONE;
        uint32_t stack = map_get(&s->forward, forward_key(s, forward_thread(s, s->backward[i]), backward->sequence));
        return stack == MAP_NONE ? NAME_NONE : stack;
    }
    return own_stack(s, i);
}

void op_stacks_free(struct op_stacks *s)
{
    map_free(&s->numbers);
    map_free(&s->forward);
    map_free(&s->thread);
    map_free(&s->made);
    free(s->backward);
    free(s->python);
}
