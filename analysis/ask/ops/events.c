/* events.c - collects a process's host events, finds their parents and adds up their memory and kernels.
 *
 * The events are sorted once by thread and time. Each later step walks them in that order, parents before children.
 */
#include "ask/ops/events.h"

#include <stdlib.h>
#include <string.h>

#include "ask/stages/order.h"
#include "model/join.h"

/* ---- collecting ---- */

bool op_is_hidden(const char *name)
{
    static const char *const hidden[] = {"[memory]",
                                         "[OutOfMemory]",
                                         "profiler::_record_function_enter",
                                         "profiler::_record_function_enter_new",
                                         "profiler::_record_function_exit",
                                         "aten::is_leaf",
                                         "aten::output_nr",
                                         "aten::_version"};
    for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
        if (strcmp(name, hidden[i]) == 0) return true;
    return false;
}

/* Returns a flag per name: true for a hidden operator. */
static bool *hidden_names(const struct names *names)
{
    bool *hidden = mem_zero(names->count, sizeof *hidden);
    for (size_t i = 0; i < names->count; i++) {
        const char *text = names_get(names, (uint32_t)i)->text;
        hidden[i] = (*text == 'a' || *text == 'p' || *text == '[') && op_is_hidden(text);
    }
    return hidden;
}

static void add_event(struct op_events *e, enum op_kind kind, uint32_t place, uint32_t thread, int64_t start,
                      int64_t end)
{
    e->event = mem_grow(e->event, &e->capacity, e->count + 1, sizeof *e->event);
    e->event[e->count] = (struct op_event){start, end, thread, (uint32_t)e->count, place, (uint8_t)kind};
    e->count++;
}

/* Returns the main thread. torch puts device calls and profiler overhead that belong to no operator on the thread that
 * stopped the profiler, usually the main thread. */
static uint32_t main_thread(const struct process *process)
{
    for (size_t i = 0; i < process->threads; i++) {
        const struct thread *t = &process->thread[i];
        if (process->pid >= 0 && t->tid == (uint64_t)process->pid && (t->pid < 0 || t->pid == process->pid))
            return t->serial;
    }
    return NO_PLACE;
}

static void add_spans(struct op_events *e, const bool *hidden)
{
    const struct spans *s = &e->process->spans;
    bool is_kineto = is_of_kineto(e->process);
    bool *joined = joined_spans(e->process);
    uint32_t main = main_thread(e->process);
    for (size_t i = 0; i < s->table.count; i++) {
        bool is_python = s->event_class[i] == CLASS_PYTHON;
        bool loose = is_kineto && (s->event_class[i] == CLASS_OVERHEAD ||
                                   (s->event_class[i] == CLASS_API && map_get(&e->process->unlinked, i) != MAP_NONE));
        if (!joined[i] && !hidden[s->name[i]]) {
            add_event(e, is_python ? OP_PYTHON : OP_SPAN, (uint32_t)i, loose && main != NO_PLACE ? main : s->thread[i],
                      s->start[i], s->end[i]);
        }
    }
    free(joined);
}

static void collect(struct op_events *e)
{
    const struct ranges *r = &e->process->ranges;
    const struct calls *c = &e->process->calls;
    bool *hidden = hidden_names(e->names);
    for (size_t i = 0; i < r->table.count; i++)
        if (is_stage(r, i)) add_event(e, OP_STAGE, (uint32_t)i, r->thread[i], r->start[i], r->end[i]);
    add_spans(e, hidden);
    for (size_t i = 0; i < c->table.count; i++)
        if (is_device_call(&e->process->func[c->func[i]]))
            add_event(e, OP_CALL, (uint32_t)i, c->thread[i], c->start[i], c->end[i]);
    free(hidden);
}

static int by_thread_and_time(const void *a, const void *b)
{
    const struct op_event *x = a, *y = b;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    int nesting = outer_first(x->start, x->end, y->start, y->end);
    if (nesting) return nesting;
    return (x->order > y->order) - (x->order < y->order);
}

uint32_t op_event_name(const struct op_events *e, const struct op_event *event)
{
    const struct process *p = e->process;
    switch (event->kind) {
    case OP_STAGE: return p->ranges.name[event->place];
    case OP_CALL: {
        const struct func *func = &p->func[p->calls.func[event->place]];
        return names_add(e->names, func->name, strlen(func->name));
    }
    default: return p->spans.name[event->place];
    }
}

bool op_event_is_async(const struct op_events *e, const struct op_event *event)
{
    return event->kind == OP_STAGE && e->process->ranges.flags[event->place] & TFI_RANGE_ASYNC;
}

/* ---- parents ---- */

static void find_parents(struct op_events *e)
{
    uint32_t *open = mem_zero(e->count, sizeof *open);
    size_t depth = 0;
    for (size_t i = 0; i < e->count; i++) {
        const struct op_event *event = &e->event[i];
        if (i && event->thread != event[-1].thread) depth = 0;
        if (op_event_is_async(e, event)) {
            e->parent[i] = NO_PLACE;
            continue;
        }
        while (depth && (event->start >= e->event[open[depth - 1]].end || event->end > e->event[open[depth - 1]].end))
            depth--;
        e->parent[i] = depth ? open[depth - 1] : NO_PLACE;
        open[depth++] = (uint32_t)i;
    }
    free(open);
}

/* Folds an only child of its parent's name into the parent. The parent takes over its children and kernels; the kernels
 * that the parent launched itself are dropped. */
static void fold_only_children(struct op_events *e)
{
    uint32_t *children = mem_zero(e->count, sizeof *children);
    for (size_t i = 0; i < e->count; i++)
        if (e->parent[i] != NO_PLACE) children[e->parent[i]]++;
    for (size_t i = 0; i < e->count; i++) {
        uint32_t parent = e->parent[i];
        if (parent != NO_PLACE && e->is_gone[parent]) parent = e->parent[i] = e->parent[parent];
        if (parent != NO_PLACE && children[parent] == 1 &&
            op_event_name(e, &e->event[i]) == op_event_name(e, &e->event[parent])) {
            e->is_gone[i] = true;
            if (e->device) e->device[parent] = e->device[i];
            children[parent] = children[i];
        }
    }
    free(children);
}

/* ---- memory ---- */

struct moment {
    int64_t time;
    uint32_t block;
};

static int by_time(const void *a, const void *b)
{
    const struct moment *x = a, *y = b;
    return x->time != y->time ? (x->time < y->time ? -1 : 1) : (x->block > y->block) - (x->block < y->block);
}

/* Returns the first of the sorted moments from `at` on that is not before `time`, by a search in growing steps. */
static size_t first_from(const struct moment *moment, size_t count, size_t at, int64_t time)
{
    size_t step = 1, low = at;
    while (low + step < count && moment[low + step].time < time) {
        low += step;
        step *= 2;
    }
    size_t high = MIN(low + step, count);
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (moment[middle].time < time) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Gives each event the memory allocated and freed from its start to its end, both included, on any thread. */
static void give_memory(struct op_events *e)
{
    const struct blocks *b = &e->process->blocks;
    size_t count = b->table.count, from = 0;
    struct moment *moment = mem_zero(count, sizeof *moment);
    uint64_t *host = mem_zero(count + 1, sizeof *host), *device = mem_zero(count + 1, sizeof *device); /* may wrap */
    int32_t *covered = mem_zero(count + 1, sizeof *covered);
    for (size_t i = 0; i < count; i++) moment[i] = (struct moment){b->time[i], (uint32_t)i};
    qsort(moment, count, sizeof *moment, by_time);
    for (size_t i = 0; i < count; i++) {
        uint32_t block = moment[i].block;
        uint64_t bytes = e->left_out && e->left_out[block] ? 0 : (uint64_t)b->bytes[block];
        host[i + 1] = host[i] + (b->device[block] == DEVICE_HOST ? bytes : 0);
        device[i + 1] = device[i] + (b->device[block] >= 0 ? bytes : 0);
    }
    for (size_t i = 0; i < e->count; i++) {
        const struct op_event *event = &e->event[i];
        from = first_from(moment, count, i && event->thread == event[-1].thread ? from : 0, event->start);
        size_t to = first_from(moment, count, from, add_ns(event->end, 1));
        e->bytes[i].host = (int64_t)(host[to] - host[from]);
        e->bytes[i].device = (int64_t)(device[to] - device[from]);
        covered[from]++;
        covered[to]--;
    }
    int32_t open = 0;
    for (size_t i = 0; i < count; i++) {
        open += covered[i];
        e->is_loose[moment[i].block] = open == 0;
    }
    free(moment);
    free(host);
    free(device);
    free(covered);
}

/* ---- kernels ---- */

/* Returns the index + 1 of the event of each operator or stage, by its index in its own table; 0: none. */
static uint32_t *places(const struct op_events *e, enum op_kind kind, size_t count)
{
    uint32_t *place = mem_zero(count, sizeof *place);
    for (size_t i = 0; i < e->count; i++)
        if (e->event[i].kind == kind) place[e->event[i].place] = (uint32_t)i + 1;
    return place;
}

/* Gives each piece of device work to the event that launched it: in a Kineto trace by external id, else to the innermost
 * operator around the launch, or to the stage if there is no operator. The sums of children come later. */
static void give_kernels(struct op_events *e)
{
    const struct process *p = e->process;
    const struct works *w = &p->works;
    const struct attribution *a = e->attribution;
    bool is_kineto = is_of_kineto(p);
    uint32_t *spans = places(e, OP_SPAN, p->spans.table.count), *stages = places(e, OP_STAGE, p->ranges.table.count);
    struct map span_of = {0};
    for (size_t i = 0; is_kineto && i < p->spans.table.count; i++)
        if (p->spans.event_class[i] == CLASS_OPERATOR && p->spans.id[i] != NO_ID)
            map_put(&span_of, p->spans.id[i], (uint32_t)i);
    for (size_t i = 0; i < w->table.count; i++) {
        uint32_t op = is_kineto ? map_get(&span_of, w->external[i]) : a->op[i], at = 0;
        uint32_t stage = is_kineto                               ? map_get(&p->range_of_id, w->external[i])
                         : a->work[i].via == (uint8_t)VIA_THREAD ? a->work[i].stage
                                                                 : NO_PLACE;
        if (w->event_class[i] == CLASS_DEVICE_ANNOTATION || (w->event_class[i] == CLASS_SYNC && !is_kineto)) continue;
        if (op != NO_PLACE) /* NO_PLACE equals MAP_NONE */
            at = spans[op];
        else if (stage != NO_PLACE) at = stages[stage];
        if (at) {
            struct op_device *device = &e->device[at - 1];
            device->all = add_ns(device->all, w->end[i] - w->start[i]);
            device->all_us += op_elapsed_us(e, w->start[i], w->end[i]);
        }
    }
    map_free(&span_of);
    free(spans);
    free(stages);
}

/* ---- sums ---- */

/* Adds the totals of an event, whose children are done, to its parent. */
static void add_to_parent(struct op_events *e, size_t i, uint32_t parent)
{
    e->host[parent].children = add_ns(e->host[parent].children, e->event[i].end - e->event[i].start);
    if (e->device) e->device[parent].children = add_ns(e->device[parent].children, e->device[i].all);
    if (e->bytes) {
        struct op_bytes *to = &e->bytes[parent];
        to->host_of_children = add_ns(to->host_of_children, e->bytes[i].host);
        to->device_of_children = add_ns(to->device_of_children, e->bytes[i].device);
    }
}

/* Walks backwards, as children come after their parents. */
static void sum_up(struct op_events *e)
{
    for (size_t i = e->count; i-- > 0;) {
        if (e->is_gone[i]) continue;
        if (e->device) e->device[i].all = add_ns(e->device[i].all, e->device[i].children);
        if (e->parent[i] != NO_PLACE) add_to_parent(e, i, e->parent[i]);
    }
}

struct op_sums op_event_sums(const struct op_events *e, size_t i, struct op_sums *children)
{
    struct op_sums all = {.time = e->event[i].end - e->event[i].start};
    *children = (struct op_sums){.time = e->host[i].children};
    if (e->device) {
        all.device = e->device[i].all;
        children->device = e->device[i].children;
    }
    if (e->bytes) {
        const struct op_bytes *bytes = &e->bytes[i];
        all.host_bytes = bytes->host;
        all.device_bytes = bytes->device;
        children->host_bytes = bytes->host_of_children;
        children->device_bytes = bytes->device_of_children;
    }
    return all;
}

double op_elapsed_us(const struct op_events *e, int64_t start, int64_t end)
{
    return (double)(end - e->base) / 1000 - (double)(start - e->base) / 1000;
}

static double all_us(const struct op_events *e, size_t i)
{
    return op_elapsed_us(e, e->event[i].start, e->event[i].end);
}

struct op_us op_event_us(const struct op_events *e, size_t i)
{
    struct op_us us = {.all = all_us(e, i), .own = e->host[i].own_us};
    if (e->device) {
        us.device = e->device[i].all_us;
        us.own_device = e->device[i].own_us;
    }
    return us;
}

/* A sum of doubles depends on its order: each parent adds its children from the first to the last. The walk goes from
 * the last event to the first, so children are done before their parent. */
static void sum_up_us(struct op_events *e)
{
    uint32_t *first = mem_zero(e->count, sizeof *first), *next = mem_zero(e->count, sizeof *next); /* indices + 1 */
    for (size_t i = e->count; i-- > 0;) {
        if (e->is_gone[i]) continue;
        double time = 0, device = 0;
        for (uint32_t child = first[i]; child; child = next[child - 1]) {
            time += all_us(e, child - 1);
            device += e->device ? e->device[child - 1].all_us : 0;
        }
        e->host[i].own_us = all_us(e, i) - time;
        if (e->device) {
            e->device[i].all_us += device;
            e->device[i].own_us = e->device[i].all_us - device;
        }
        if (e->parent[i] != NO_PLACE) {
            next[i] = first[e->parent[i]];
            first[e->parent[i]] = (uint32_t)i + 1;
        }
    }
    free(first);
    free(next);
}

void op_events_init(struct op_events *e, const struct process *process, const struct attribution *attribution,
                    const bool *left_out, struct names *names)
{
    *e = (struct op_events){.process = process, .attribution = attribution, .left_out = left_out, .names = names};
    e->base = process->has_profile_start ? process->profile_start : process->first;
    collect(e);
    if (e->count) qsort(e->event, e->count, sizeof *e->event, by_thread_and_time);
    e->parent = mem_zero(e->count, sizeof *e->parent);
    e->is_gone = mem_zero(e->count, sizeof *e->is_gone);
    e->host = mem_zero(e->count, sizeof *e->host);
    if (process->works.table.count) e->device = mem_zero(e->count, sizeof *e->device);
    if (process->blocks.table.count) e->bytes = mem_zero(e->count, sizeof *e->bytes);
    e->is_loose = mem_zero(process->blocks.table.count, sizeof *e->is_loose);
    find_parents(e);
    if (e->device) give_kernels(e);
    fold_only_children(e);
    if (e->bytes) give_memory(e);
    sum_up(e);
    sum_up_us(e);
}

void op_events_free(struct op_events *e)
{
    void *arrays[] = {e->event, e->parent, e->is_gone, e->host, e->device, e->bytes, e->is_loose};
    for (size_t i = 0; i < ARRAY_SIZE(arrays); i++) free(arrays[i]);
    *e = (struct op_events){0};
}
