/* op_stacks.c - finds the stack of an event: its own, its forward operator's, or the Python functions around it.
 *
 * As in torch, everything in a backward operator gets the stack of the first operator with its sequence number on the
 * forward thread. A .tfr trace names that thread by its serial. Kineto names it by a number from torch ("Fwd thread
 * id"), and the arrows from forward to backward operators tell which thread that is.
 * Kineto writes a stack for each operator. Some exporters keep only Python functions, as separate events; the stack
 * then consists of the functions around the operator.
 */
#include "ask/ops/op_stacks.h"

#include <stdlib.h>
#include <string.h>

#include "ask/ops/nests.h"
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

const struct op_detail *op_detail_of(const struct op_events *e, const struct op_event *event)
{
    const struct spans *s = &e->process->spans;
    bool has = event->kind == OP_SPAN && s->event_class[event->place] == CLASS_OPERATOR;
    return has ? op_details_of(&s->details, event->place) : NULL;
}

static uint32_t name_of(const struct op_events *e, uint32_t entry)
{
    struct op_event event = op_event_of(e, entry);
    return op_event_name(e, &event);
}

/* Sets the next host event, in order of start. Returns false behind the last one. */
static bool next_host(const struct op_events *e, size_t *at, uint32_t *entry, struct op_event *event)
{
    while (*at < e->count && e->sorted[*at] >= e->works) ++*at;
    if (*at == e->count) return false;
    *entry = e->sorted[(*at)++];
    *event = op_event_of(e, *entry);
    return true;
}

/* ---- parents ---- */

/* Lets the children of an event that is folded into its parent be the parent's. `children`: their number, by entry. */
static void fold_only_children(struct op_stacks *s, uint32_t *children)
{
    const struct op_events *e = s->events;
    struct bits gone = {0};
    struct op_event event;
    uint32_t entry;
    for (size_t at = 0; next_host(e, &at, &entry, &event);) {
        uint32_t parent = s->parent[entry];
        if (parent != NO_PLACE && bits_have(&gone, parent)) parent = s->parent[entry] = s->parent[parent];
        if (parent != NO_PLACE && children[parent] == 1 && op_event_name(e, &event) == name_of(e, parent)) {
            bits_add(&gone, entry);
            children[parent] = children[entry];
        }
    }
    bits_free(&gone);
}

static void find_parents(struct op_stacks *s)
{
    const struct op_events *e = s->events;
    uint32_t *children = mem_zero(e->works, sizeof *children), entry;
    struct nests nests = {.rounding = e->process->rounding_ns};
    struct op_event event;
    s->parent = no_places(e->works);
    for (size_t at = 0; next_host(e, &at, &entry, &event);) {
        if (op_event_is_async(e, &event)) continue;
        uint32_t parent = s->parent[entry] = nests_add(&nests, event.thread, event.start, &event.end, entry);
        if (parent != NO_PLACE) children[parent]++;
    }
    nests_free(&nests);
    fold_only_children(s, children);
    free(children);
}

/* Kineto writes no scopes. In its traces a backward operator lies in a frame of autograd's engine with its name. */
static bool is_backward(const struct op_stacks *s, uint32_t entry, const struct op_event *event)
{
    static const char prefix[] = "autograd::engine::evaluate_function: ";
    const struct op_events *e = s->events;
    const struct op_detail *d = op_detail_of(e, event);
    if (!d || !e->is_kineto || d->scope == TFI_SCOPE_BACKWARD || s->parent[entry] == NO_PLACE)
        return d && d->scope == TFI_SCOPE_BACKWARD;
    const char *frame = names_get(e->names, name_of(e, s->parent[entry]))->text;
    return strncmp(frame, prefix, sizeof prefix - 1) == 0 &&
           strcmp(frame + sizeof prefix - 1, names_get(e->names, op_event_name(e, event))->text) == 0;
}

/* ---- torch's thread numbers ---- */

/* The first operator of the first thread tells. */
static void find_threads(struct op_stacks *s)
{
    const struct op_events *e = s->events;
    const struct forwards *f = &e->process->forwards;
    struct map end_at = {0}, begin_of = {0}; /* ends by time, beginnings by id: indices into forwards */
    struct map told_by = {0};                /* thread of the operator that told, by torch's thread number */
    struct op_event event;
    uint32_t entry;
    for (size_t i = 0; i < f->table.count; i++) {
        map_put(f->is_forward[i] ? &begin_of : &end_at, f->is_forward[i] ? f->id[i] : (uint64_t)f->time[i],
                (uint32_t)i);
    }
    for (size_t at = 0; end_at.count && next_host(e, &at, &entry, &event);) {
        const struct op_detail *d = op_detail_of(e, &event);
        uint32_t end = d && d->scope == TFI_SCOPE_BACKWARD ? map_get(&end_at, (uint64_t)event.start) : MAP_NONE;
        uint32_t begin = end != MAP_NONE && f->thread[end] == event.thread ? map_get(&begin_of, f->id[end]) : MAP_NONE;
        uint32_t told = begin != MAP_NONE ? map_get(&told_by, d->forward_thread) : MAP_NONE;
        if (begin != MAP_NONE && (told == MAP_NONE || told > event.thread)) {
            map_put(&s->thread, d->forward_thread, f->thread[begin]);
            map_put(&told_by, d->forward_thread, event.thread);
        }
    }
    map_free(&end_at);
    map_free(&begin_of);
    map_free(&told_by);
}

/* Without arrows, returns the thread of the operator itself: the engine runs host backward operators in the caller. */
static uint32_t forward_thread(const struct op_stacks *s, const struct op_event *backward)
{
    const struct op_detail *d = op_detail_of(s->events, backward);
    if (!s->events->is_kineto) return d->forward_thread;
    uint32_t thread = map_get(&s->thread, d->forward_thread);
    return thread == MAP_NONE ? backward->thread : thread;
}

/* ---- Python functions around an operator ---- */

static void find_python(struct op_stacks *s)
{
    const struct op_events *e = s->events;
    struct op_event event;
    uint32_t entry;
    bool any = false;
    for (size_t at = 0; !any && next_host(e, &at, &entry, &event);) any = event.kind == OP_PYTHON;
    if (!any) return;
    s->python = no_places(e->works);
    for (size_t at = 0; next_host(e, &at, &entry, &event);) {
        uint32_t parent = s->parent[entry];
        if (parent != NO_PLACE)
            s->python[entry] = op_event_of(e, parent).kind == OP_PYTHON ? parent : s->python[parent];
    }
}

/* A line feed in the name of a function would make it two frames of a stack. */
static uint32_t on_one_line(struct names *names, uint32_t name)
{
    const struct name *of = names_get(names, name);
    if (!memchr(of->text, '\n', of->length) && !memchr(of->text, '\r', of->length)) return name;
    char *line = mem_text(of->text, of->length);
    for (size_t i = 0; i < of->length; i++)
        if (line[i] == '\n' || line[i] == '\r') line[i] = ' ';
    uint32_t found = names_add(names, line, of->length);
    free(line);
    return found;
}

/* Returns the stack of events that run directly in a Python function. */
static uint32_t python_stack(struct op_stacks *s, uint32_t function)
{
    uint32_t made = map_get(&s->made, function), *frame = NULL;
    size_t count = 0, capacity = 0;
    if (made != MAP_NONE) return made;
    for (uint32_t at = function; at != NO_PLACE && count < s->frames; at = s->python[at]) {
        uint32_t name = name_of(s->events, at);
        if (!op_frame_is_hidden(names_get(s->names, name)->text)) {
            frame = mem_grow(frame, &capacity, count + 1, sizeof *frame);
            frame[count++] = on_one_line(s->names, name);
        }
    }
    made = stack_add(s->names, frame, count);
    map_put(&s->made, function, made);
    free(frame);
    return made;
}

static uint32_t own_stack(struct op_stacks *s, uint32_t entry, const struct op_event *event)
{
    bool is_range = event->kind == OP_STAGE && s->events->is_kineto;
    const struct op_detail *d =
        is_range ? range_inputs(s->events->process, event->place) : op_detail_of(s->events, event);
    if (d && d->stack != NAME_NONE) return d->stack;
    return s->python && s->python[entry] != NO_PLACE ? python_stack(s, s->python[entry]) : NAME_NONE;
}

/* ---- own and forward stacks ---- */

static uint64_t forward_key(struct op_stacks *s, uint32_t thread, int64_t sequence)
{
    return (uint64_t)map_number(&s->numbers, (uint64_t)sequence) << 32 | thread;
}

void op_stacks_init(struct op_stacks *s, const struct op_events *e, struct names *names, size_t frames)
{
    struct op_event event;
    uint32_t entry;
    *s = (struct op_stacks){.events = e, .names = names, .frames = frames};
    find_parents(s);
    find_threads(s);
    if (e->is_kineto) find_python(s);
    s->backward = no_places(e->works);
    for (size_t at = 0; next_host(e, &at, &entry, &event);) {
        const struct op_detail *d = op_detail_of(e, &event);
        s->backward[entry] = is_backward(s, entry, &event)  ? entry
                             : s->parent[entry] != NO_PLACE ? s->backward[s->parent[entry]]
                                                            : NO_PLACE;
        if (d && s->backward[entry] == NO_PLACE) {
            uint64_t key = forward_key(s, event.thread, d->sequence);
            uint32_t stack = map_get(&s->forward, key) == MAP_NONE ? own_stack(s, entry, &event) : NAME_NONE;
            if (stack != NAME_NONE) map_put(&s->forward, key, stack);
        }
    }
}

uint32_t op_stack_of(struct op_stacks *s, uint32_t entry)
{
    bool is_backward = s->backward[entry] != NO_PLACE;
    struct op_event event = op_event_of(s->events, is_backward ? s->backward[entry] : entry);
    if (!is_backward) return own_stack(s, entry, &event);
    const struct op_detail *backward = op_detail_of(s->events, &event);
    if (!backward->forward_thread) return NAME_NONE;
    uint32_t stack = map_get(&s->forward, forward_key(s, forward_thread(s, &event), backward->sequence));
    return stack == MAP_NONE ? NAME_NONE : stack;
}

void op_stacks_free(struct op_stacks *s)
{
    map_free(&s->numbers);
    map_free(&s->forward);
    map_free(&s->thread);
    map_free(&s->made);
    free(s->parent);
    free(s->backward);
    free(s->python);
}
