/* open_events.c - knows each event's sums once all that lies in it has ended.
 *
 * An event begins when the caller comes to its start, and then knows its parent. It ends once the caller is beyond its
 * end: then its children have ended, and the blocks up to its end are known. Whether it is folded into its parent is
 * known only when the parent ends or has a second child; until then it waits there. Doubles are added in the order of
 * the starts, so each row has a queue of its events that began: it grows while an event of that row stays open.
 */
#include "ask/ops/open_events.h"

#include <stdlib.h>
#include <string.h>

/* An event that has begun and is not added to its row yet. */
struct begun {
    struct addition addition;
    uint32_t row, parent; /* parent: index in `begun`, NO_PLACE */
    uint64_t ticket;      /* in the queue of its row */
    uint64_t number;      /* in order of starts */
    bool wanted;
    uint32_t children, only; /* only: its only child so far, which has ended and has its name; else NO_PLACE */
    struct op_sums of_children;
    double us_of_children, device_us_of_children;
    struct op_work work;
    uint64_t host, device; /* bytes allocated before its start */
    struct belonging at;   /* for rows->each */
    bool is_told;          /* rows->each gets it */
    uint32_t next_free;
};

/* Times of an event that wait for those of earlier events of its row. */
struct waiting {
    struct op_us us;
    enum { OPEN, ADDED, FOLDED } state;
};

struct queue {
    struct waiting *waiting; /* a ring */
    size_t capacity;         /* a power of two */
    uint64_t first, end;     /* tickets */
};

/* Rows by a hash of the parts of their key. */
enum { RECENT = 256 };
struct recent {
    uint32_t name, shapes, modules, stack, row;
};

/* ---- the queues of rows ---- */

static struct queue *queue_of(struct running *s, uint32_t row)
{
    if (row >= s->queues) {
        s->queue = mem_grow(s->queue, &s->queue_capacity, row + 1, sizeof *s->queue);
        memset(s->queue + s->queues, 0, (s->queue_capacity - s->queues) * sizeof *s->queue);
        s->queues = s->queue_capacity;
    }
    return &s->queue[row];
}

static struct waiting *waiting_at(const struct queue *q, uint64_t ticket)
{
    return &q->waiting[ticket & (q->capacity - 1)];
}

static void widen(struct queue *q)
{
    size_t capacity = q->capacity ? 2 * q->capacity : 4;
    struct waiting *waiting = mem_zero(capacity, sizeof *waiting);
    for (uint64_t t = q->first; t < q->end; t++) waiting[t & (capacity - 1)] = *waiting_at(q, t);
    free(q->waiting);
    q->waiting = waiting;
    q->capacity = capacity;
}

static uint64_t take_ticket(struct running *s, uint32_t row)
{
    struct queue *q = queue_of(s, row);
    if (q->end - q->first == q->capacity) widen(q);
    waiting_at(q, q->end)->state = OPEN;
    return q->end++;
}

/* Sets the state of an event, and adds the times of all events that none waits before. */
static void settle_running(struct running *s, const struct begun *b, int state)
{
    struct queue *q = &s->queue[b->row];
    if (b->ticket == q->first && b->ticket + 1 == q->end) { /* the only one */
        q->first++;
        if (state == ADDED) op_row_add_us(&s->rows->row[b->row], &b->addition.us);
        return;
    }
    struct waiting *of = waiting_at(q, b->ticket);
    of->state = state;
    of->us = b->addition.us;
    for (; q->first < q->end && (of = waiting_at(q, q->first))->state != OPEN; q->first++)
        if (of->state == ADDED) op_row_add_us(&s->rows->row[b->row], &of->us);
}

/* ---- events that end ---- */

static int64_t until(const struct begun *b)
{
    return MAX(b->addition.start, b->addition.end);
}

/* Of events with the same end the inner one ends first: it began last. One that begins there has none inside. Children
 * of one parent so end in the order of their starts. */
static bool ends_before(const struct ending *a, const struct ending *b)
{
    if (a->end != b->end) return a->end < b->end;
    if (a->begins != b->begins) return b->begins;
    return a->begins ? a->number < b->number : a->number > b->number;
}

static void push_other(struct running *s, struct ending ending)
{
    s->ends = mem_grow(s->ends, &s->other_capacity, s->others + 1, sizeof *s->ends);
    size_t at = s->others++;
    for (; at && ends_before(&ending, &s->ends[(at - 1) / 2]); at = (at - 1) / 2) s->ends[at] = s->ends[(at - 1) / 2];
    s->ends[at] = ending;
}

static uint32_t pop_other(struct running *s)
{
    uint32_t first = s->ends[0].event;
    const struct ending last = s->ends[--s->others];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < s->others; at = child) {
        child += child + 1 < s->others && ends_before(&s->ends[child + 1], &s->ends[child]);
        if (!ends_before(&s->ends[child], &last)) break;
        s->ends[at] = s->ends[child];
    }
    s->ends[at] = last;
    return first;
}

/* Events of one thread are in each other, so a stack has nearly all of them. The heap has those that outlast one that
 * began earlier. */
static void push_end(struct running *s, uint32_t event)
{
    const struct begun *b = &s->begun[event];
    const struct ending ending = {until(b), b->number, event, b->addition.start == until(b)};
    s->next_end = MIN(s->next_end, ending.end);
    if (s->inners && !ends_before(&ending, &s->inner[s->inners - 1])) {
        push_other(s, ending);
        return;
    }
    s->inner = mem_grow(s->inner, &s->inner_capacity, s->inners + 1, sizeof *s->inner);
    s->inner[s->inners++] = ending;
}

static uint32_t pop_end(struct running *s)
{
    bool is_inner = s->inners && (!s->others || ends_before(&s->inner[s->inners - 1], &s->ends[0]));
    uint32_t event = is_inner ? s->inner[--s->inners].event : pop_other(s);
    int64_t inner = s->inners ? s->inner[s->inners - 1].end : INT64_MAX;
    s->next_end = s->others ? MIN(inner, s->ends[0].end) : inner;
    return event;
}

static void leave(struct running *s, uint32_t event)
{
    s->begun[event].next_free = s->free;
    s->free = event;
}

static void add_running(struct running *s, uint32_t event)
{
    struct begun *b = &s->begun[event];
    if (b->wanted) {
        op_row_add(s->rows, b->row, &b->addition, s->process);
        settle_running(s, b, ADDED);
        if (b->is_told) s->rows->each(s->rows->to, &b->addition, &b->at);
    }
    leave(s, event);
}

/* Folds the only child into its parent, which takes over its children and its work; its own work is dropped. */
static void fold(struct running *s, struct begun *into)
{
    const struct begun *child = &s->begun[into->only];
    into->of_children = child->of_children;
    into->us_of_children = child->us_of_children;
    into->device_us_of_children = child->device_us_of_children;
    into->work = child->work;
    if (child->wanted) settle_running(s, child, FOLDED);
    leave(s, into->only);
}

static void end(struct running *s, uint32_t event)
{
    struct begun *b = &s->begun[event], *parent = b->parent == NO_PLACE ? NULL : &s->begun[b->parent];
    struct addition *a = &b->addition;
    bool covers = a->end >= a->start;
    s->covering -= covers;
    if (b->only != NO_PLACE) fold(s, b);
    a->all = (struct op_sums){.time = a->end - a->start,
                              .device = a->is_async ? 0 : add_ns(b->work.time, b->of_children.device),
                              .host_bytes = covers ? (int64_t)(s->host - b->host) : 0,
                              .device_bytes = covers ? (int64_t)(s->device - b->device) : 0};
    memset(&a->own, 0, sizeof a->own);
    if (!a->is_async) a->own = op_sums_less(&a->all, &b->of_children);
    a->us.own = a->is_async ? 0 : a->us.all - b->us_of_children;
    a->us.device = a->is_async ? 0 : b->work.us + b->device_us_of_children;
    a->us.own_device = a->us.device - b->device_us_of_children;
    if (parent) {
        op_sums_add(&parent->of_children, &a->all);
        parent->device_us_of_children += a->us.device;
    }
    if (parent && parent->children == 1 && parent->addition.name == a->name) parent->only = event;
    else add_running(s, event);
}

/* ---- events that begin ---- */

static uint32_t row_of(struct running *s, const struct addition *a)
{
    struct recent *r =
        &s->recent[(a->name * 31 + a->shapes * 7 + a->modules * 3 + a->stack + a->is_annotation) % RECENT];
    if (!a->is_annotation && r->name == a->name && r->shapes == a->shapes && r->modules == a->modules &&
        r->stack == a->stack && a->name)
        return r->row;
    uint32_t row = (uint32_t)op_row_of(s->rows, a);
    if (!a->is_annotation) *r = (struct recent){a->name, a->shapes, a->modules, a->stack, row};
    return row;
}

struct addition *running_new(struct running *s, uint32_t *event)
{
    uint32_t at = s->free;
    if (at == NO_PLACE) {
        s->begun = mem_grow(s->begun, &s->begun_capacity, s->begun_count + 1, sizeof *s->begun);
        at = (uint32_t)s->begun_count++;
    } else {
        s->free = s->begun[at].next_free;
    }
    *event = at;
    return &s->begun[at].addition;
}

double running_us(const struct running *s, int64_t start, int64_t end)
{
    return (double)(end - s->base) / 1000 - (double)(start - s->base) / 1000;
}

void running_begin(struct running *s, uint32_t event, uint32_t thread, bool wanted, const struct op_work *work,
                   const struct belonging *at)
{
    struct begun *b = &s->begun[event];
    struct addition *a = &b->addition;
    b->children = 0;
    b->only = NO_PLACE;
    b->number = s->number++;
    b->wanted = wanted;
    b->is_told = s->rows->each && at;
    if (b->is_told) b->at = *at;
    b->host = s->host;
    b->device = s->device;
    b->us_of_children = b->device_us_of_children = 0;
    b->work = work ? *work : (struct op_work){0};
    memset(&b->of_children, 0, sizeof b->of_children);
    b->parent = a->is_async ? NO_PLACE : nests_add(&s->nests, thread, a->start, &a->end, event);
    a->us.all = running_us(s, a->start, a->end);
    if (wanted) {
        b->row = row_of(s, a);
        b->ticket = take_ticket(s, b->row);
    }
    if (b->parent != NO_PLACE) {
        struct begun *p = &s->begun[b->parent];
        p->children++;
        p->us_of_children += a->us.all;
        if (p->only != NO_PLACE) add_running(s, p->only);
        p->only = NO_PLACE;
    }
    s->covering += a->end >= a->start;
    push_end(s, event);
}

void running_end_before(struct running *s, int64_t time)
{
    do end(s, pop_end(s));
    while (s->next_end < time);
}

/* ---- memory ---- */

void running_add_loose(struct running *s, int64_t time, int64_t device, int64_t bytes)
{
    static const char name[] = "[memory]";
    struct addition a = {.name = names_add(&s->rows->chosen->model->names, name, sizeof name - 1),
                         .is_call = true,
                         .start = time,
                         .end = time,
                         .order = UINT32_MAX};
    a.own.host_bytes = device == DEVICE_HOST ? bytes : 0;
    a.own.device_bytes = device >= 0 ? bytes : 0;
    a.all = a.own;
    if (s->rows->chosen->options->group_ops.shapes) a.shapes = op_flat_shapes(s->rows, NAME_NONE);
    op_row_add(s->rows, op_row_of(s->rows, &a), &a, s->process);
}

/* ---- the whole ---- */

void running_init(struct running *s, struct op_rows *rows, const struct process *process)
{
    *s = (struct running){.rows = rows, .free = NO_PLACE, .next_end = INT64_MAX};
    s->process = (size_t)(process - rows->chosen->model->process);
    s->nests.rounding = process->rounding_ns;
    s->base = process->has_profile_start ? process->profile_start : process->first;
    s->recent = mem_zero(RECENT, sizeof *s->recent);
}

void running_end(struct running *s)
{
    while (s->inners || s->others) end(s, pop_end(s));
}

void running_free(struct running *s)
{
    for (size_t i = 0; i < s->queues; i++) free(s->queue[i].waiting);
    void *arrays[] = {s->begun, s->inner, s->ends, s->queue, s->recent};
    for (size_t i = 0; i < ARRAY_SIZE(arrays); i++) free(arrays[i]);
    nests_free(&s->nests);
}
