/* swept.c - adds up operators while they are read in order of their start, with the open ones of each thread alone.
 *
 * An event begins when the sweep comes to its start, and then knows its parent. It ends once the sweep is beyond its end:
 * then its children have ended, and the blocks up to its end are known. Whether it is folded into its parent is known
 * only when the parent ends or has a second child; until then it waits there. Doubles are added in the order of the
 * starts, so each row has a queue of its events that began: it grows while an event of that row stays open.
 */
#include "ask/ops/swept.h"

#include <stdlib.h>
#include <string.h>

#include "ask/ops/addition.h"
#include "ask/stages/at.h"
#include "ask/stages/order.h"
#include "model/join.h"
#include "model/sweep/sweep.h"

/* An event that has begun and is not added to its row yet. */
struct begun {
    struct addition addition;
    uint32_t row, parent; /* parent: index in `begun`, NO_PLACE */
    uint64_t ticket;      /* in the queue of its row */
    uint64_t number;      /* in order of starts */
    bool wanted;
    uint32_t children, only; /* only: its only child so far, which has ended and has its name; else NO_PLACE */
    struct op_sums of_children;
    double us_of_children;
    uint64_t host, device; /* bytes allocated before its start */
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

/* The events of one thread that the next one may lie in. */
struct nest {
    struct level {
        int64_t end;
        uint32_t event;
    } * level;
    size_t depth, capacity;
};

/* Rows found last, by a hash of the three parts of their key. */
enum { RECENT = 256 };
struct recent {
    uint32_t name, shapes, stack, row;
};

struct sweeping {
    struct op_rows *rows;
    const struct process *process;
    size_t index; /* of the process in the model */
    int64_t base; /* zero of torch's times */
    struct attribution attribution;
    struct choice choice;
    struct stage_finder finder;
    bool by_stage, takes_all; /* takes_all: no option or state leaves events out */
    struct op_event *held;    /* stages and calls, in order of start */
    size_t helds, next_held, held_capacity;
    struct begun *begun;
    size_t begun_count, begun_capacity;
    uint32_t free;  /* first free entry; NO_PLACE */
    uint32_t *ends; /* heap of open events, the next end first */
    size_t open, open_capacity, covering;
    uint64_t number; /* events so far */
    uint64_t host, device;
    struct map nest_of; /* by thread */
    struct nest *nest;
    size_t nests, nest_capacity;
    struct queue *queue; /* by row */
    size_t queues, queue_capacity;
    uint8_t *hidden; /* by name: 0: not known yet, 1: shown, 2: hidden */
    size_t hiddens, hidden_capacity;
    struct recent recent[RECENT];
};

/* ---- the queues of rows ---- */

static struct queue *queue_of(struct sweeping *s, uint32_t row)
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

static uint64_t take_ticket(struct sweeping *s, uint32_t row)
{
    struct queue *q = queue_of(s, row);
    if (q->end - q->first == q->capacity) widen(q);
    waiting_at(q, q->end)->state = OPEN;
    return q->end++;
}

/* Sets the state of an event, and adds the times of all events that none waits before. */
static void settle(struct sweeping *s, const struct begun *b, int state)
{
    struct queue *q = &s->queue[b->row];
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

/* Of events with the same end the inner one ends first: it began last. */
static bool ends_before(const struct sweeping *s, uint32_t x, uint32_t y)
{
    const struct begun *a = &s->begun[x], *b = &s->begun[y];
    int64_t end_a = until(a), end_b = until(b);
    return end_a != end_b ? end_a < end_b : a->number > b->number;
}

static void push_end(struct sweeping *s, uint32_t event)
{
    s->ends = mem_grow(s->ends, &s->open_capacity, s->open + 1, sizeof *s->ends);
    size_t at = s->open++;
    for (; at && ends_before(s, event, s->ends[(at - 1) / 2]); at = (at - 1) / 2) s->ends[at] = s->ends[(at - 1) / 2];
    s->ends[at] = event;
}

static uint32_t pop_end(struct sweeping *s)
{
    uint32_t first = s->ends[0], last = s->ends[--s->open];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < s->open; at = child) {
        child += child + 1 < s->open && ends_before(s, s->ends[child + 1], s->ends[child]);
        if (!ends_before(s, s->ends[child], last)) break;
        s->ends[at] = s->ends[child];
    }
    s->ends[at] = last;
    return first;
}

static void leave(struct sweeping *s, uint32_t event)
{
    s->begun[event].next_free = s->free;
    s->free = event;
}

static void add(struct sweeping *s, uint32_t event)
{
    struct begun *b = &s->begun[event];
    if (b->wanted) {
        op_row_add(s->rows, b->row, &b->addition, s->index);
        settle(s, b, ADDED);
    }
    leave(s, event);
}

/* Folds the only child into its parent, which takes over its children. */
static void fold(struct sweeping *s, struct begun *into)
{
    const struct begun *child = &s->begun[into->only];
    into->of_children = child->of_children;
    into->us_of_children = child->us_of_children;
    if (child->wanted) settle(s, child, FOLDED);
    leave(s, into->only);
}

static void add_sums(struct op_sums *to, const struct op_sums *from)
{
    to->time = add_ns(to->time, from->time);
    to->host_bytes = add_ns(to->host_bytes, from->host_bytes);
    to->device_bytes = add_ns(to->device_bytes, from->device_bytes);
}

static void end(struct sweeping *s, uint32_t event)
{
    struct begun *b = &s->begun[event], *parent = b->parent == NO_PLACE ? NULL : &s->begun[b->parent];
    struct addition *a = &b->addition;
    bool covers = a->end >= a->start;
    s->covering -= covers;
    if (b->only != NO_PLACE) fold(s, b);
    a->all = (struct op_sums){.time = a->end - a->start,
                              .host_bytes = covers ? (int64_t)(s->host - b->host) : 0,
                              .device_bytes = covers ? (int64_t)(s->device - b->device) : 0};
    memset(&a->own, 0, sizeof a->own);
    if (!a->is_async) a->own = op_sums_less(&a->all, &b->of_children);
    a->us.own = a->is_async ? 0 : a->us.all - b->us_of_children;
    a->us.device = a->us.own_device = 0;
    if (parent) add_sums(&parent->of_children, &a->all);
    if (parent && parent->children == 1 && parent->addition.name == a->name) parent->only = event;
    else add(s, event);
}

/* ---- events that begin ---- */

static struct nest *nest_of(struct sweeping *s, uint32_t thread)
{
    uint32_t at = map_number(&s->nest_of, thread);
    if (at == s->nests) {
        s->nest = mem_grow(s->nest, &s->nest_capacity, s->nests + 1, sizeof *s->nest);
        s->nest[s->nests++] = (struct nest){0};
    }
    return &s->nest[at];
}

/* Finds the parent: the innermost event of the thread that contains all of this one. */
static uint32_t nest(struct sweeping *s, uint32_t thread, uint32_t event, int64_t start, int64_t end)
{
    struct nest *n = nest_of(s, thread);
    while (n->depth && (start >= n->level[n->depth - 1].end || end > n->level[n->depth - 1].end)) n->depth--;
    uint32_t parent = n->depth ? n->level[n->depth - 1].event : NO_PLACE;
    n->level = mem_grow(n->level, &n->capacity, n->depth + 1, sizeof *n->level);
    n->level[n->depth++] = (struct level){end, event};
    return parent;
}

static uint32_t row_of(struct sweeping *s, const struct addition *a)
{
    struct recent *r = &s->recent[(a->name * 31 + a->shapes * 7 + a->stack + a->is_annotation) % RECENT];
    if (!a->is_annotation && r->name == a->name && r->shapes == a->shapes && r->stack == a->stack && a->name)
        return r->row;
    uint32_t row = (uint32_t)op_row_of(s->rows, a);
    if (!a->is_annotation) *r = (struct recent){a->name, a->shapes, a->stack, row};
    return row;
}

static uint32_t new_event(struct sweeping *s)
{
    uint32_t at = s->free;
    if (at == NO_PLACE) {
        s->begun = mem_grow(s->begun, &s->begun_capacity, s->begun_count + 1, sizeof *s->begun);
        return (uint32_t)s->begun_count++;
    }
    s->free = s->begun[at].next_free;
    return at;
}

static double elapsed_us(const struct sweeping *s, int64_t start, int64_t end)
{
    return (double)(end - s->base) / 1000 - (double)(start - s->base) / 1000;
}

/* Begins the event whose addition is filled in, except for its sums. */
static void begin(struct sweeping *s, uint32_t event, uint32_t thread, bool wanted)
{
    struct begun *b = &s->begun[event];
    struct addition *a = &b->addition;
    a->us.all = elapsed_us(s, a->start, a->end);
    b->children = 0;
    b->only = NO_PLACE;
    b->number = s->number++;
    b->wanted = wanted;
    b->host = s->host;
    b->device = s->device;
    b->us_of_children = 0;
    memset(&b->of_children, 0, sizeof b->of_children);
    b->parent = a->is_async ? NO_PLACE : nest(s, thread, event, a->start, a->end);
    if (wanted) {
        b->row = row_of(s, a);
        b->ticket = take_ticket(s, b->row);
    }
    if (b->parent != NO_PLACE) {
        struct begun *p = &s->begun[b->parent];
        p->children++;
        p->us_of_children += a->us.all;
        if (p->only != NO_PLACE) add(s, p->only);
        p->only = NO_PLACE;
    }
    s->covering += a->end >= a->start;
    push_end(s, event);
}

/* ---- what is asked for ---- */

static bool in_stage(const struct sweeping *s, uint32_t stage, int64_t time)
{
    return stage_or_around(&s->choice.paths, stage, time) != NO_PLACE;
}

/* True if a moment on a thread is chosen; `stage` is known, or found if NO_PLACE. */
static bool is_wanted(const struct sweeping *s, int64_t time, uint32_t thread, uint32_t stage)
{
    if (!choice_moment(&s->choice, time, time)) return false;
    if (s->by_stage && stage == NO_PLACE && thread != NO_THREAD) stage = stage_at(&s->finder, thread, time);
    return !s->by_stage || in_stage(s, stage, time);
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
    uint32_t event = new_event(s);
    struct addition *a = &s->begun[event].addition; /* field by field: a whole one is as much again to write */
    a->name = op->name;
    a->shapes = group->shapes ? op_flat_shapes(s->rows, op->shapes) : NAME_NONE;
    a->stack = group->stack ? op_first_frames(s->rows, op->stack) : NAME_NONE;
    a->is_call = true;
    a->on_device = a->is_annotation = a->is_async = false;
    a->start = op->start;
    a->end = op->end;
    a->order = (uint32_t)s->process->ranges.table.count + op->order;
    a->flops = op->flops;
    begin(s, event, op->thread, s->takes_all || is_wanted(s, op->start, op->thread, NO_PLACE));
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
    if (group->shapes) {
        const struct op_detail *given = is_stage ? range_inputs(p, event->place) : NULL;
        a.shapes = op_flat_shapes(s->rows, given ? given->shapes : NAME_NONE);
    }
    if (group->stack) a.stack = op_first_frames(s->rows, NAME_NONE);
    uint32_t new = new_event(s);
    s->begun[new].addition = a;
    begin(s, new, event->thread, is_wanted(s, event->start, NO_THREAD, is_stage ? event->place : NO_PLACE));
}

/* ---- memory ---- */

/* Adds a block that was allocated or freed while no event was open. */
static void add_loose(struct sweeping *s, const struct swept_block *b)
{
    static const char name[] = "[memory]";
    if (s->by_stage || !choice_moment(&s->choice, b->time, b->time)) return;
    struct addition a = {.name = names_add(&s->rows->chosen->model->names, name, sizeof name - 1),
                         .is_call = true,
                         .start = b->time,
                         .end = b->time,
                         .order = UINT32_MAX};
    a.own.host_bytes = b->device == DEVICE_HOST ? b->bytes : 0;
    a.own.device_bytes = b->device >= 0 ? b->bytes : 0;
    a.all = a.own;
    if (s->rows->chosen->options->group_ops.shapes) a.shapes = op_flat_shapes(s->rows, NAME_NONE);
    op_row_add(s->rows, op_row_of(s->rows, &a), &a, s->index);
}

/* Blocks outside the stages that --stage names do not count for operators in those stages. */
static void take_block(struct sweeping *s, const struct swept_block *b)
{
    bool counts = !s->by_stage || in_stage(s, stage_at(&s->finder, b->thread, b->time), b->time);
    s->host += counts && b->device == DEVICE_HOST ? (uint64_t)b->bytes : 0;
    s->device += counts && b->device >= 0 ? (uint64_t)b->bytes : 0;
    if (!s->covering) add_loose(s, b);
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
    if (next->block) return held->start <= next->block->time;
    int nesting = outer_first(held->start, held->end, next->op->start, next->op->end);
    return nesting ? nesting < 0 : held->order < s->process->ranges.table.count + next->op->order;
}

static void end_before(struct sweeping *s, int64_t time)
{
    while (s->open && until(&s->begun[s->ends[0]]) < time) end(s, pop_end(s));
}

static void walk(struct sweeping *s, struct sweep *sweep)
{
    struct swept next = {0};
    bool more = sweep_next(sweep, &next);
    while (more || s->next_held < s->helds) {
        if (is_held_next(s, &next, more)) {
            const struct op_event *held = &s->held[s->next_held++];
            end_before(s, held->start);
            begin_held(s, held);
            continue;
        }
        end_before(s, next.op ? next.op->start : next.block->time);
        if (next.op) begin_op(s, next.op);
        else take_block(s, next.block);
        more = sweep_next(sweep, &next);
    }
    while (s->open) end(s, pop_end(s));
}

static void sweeping_free(struct sweeping *s)
{
    for (size_t i = 0; i < s->queues; i++) free(s->queue[i].waiting);
    for (size_t i = 0; i < s->nests; i++) free(s->nest[i].level);
    void *arrays[] = {s->held, s->begun, s->ends, s->nest, s->queue, s->hidden};
    for (size_t i = 0; i < ARRAY_SIZE(arrays); i++) free(arrays[i]);
    map_free(&s->nest_of);
    stage_finder_free(&s->finder);
    choice_free(&s->choice);
    attribution_free(&s->attribution);
}

void op_rows_sweep(struct op_rows *rows, const struct process *process)
{
    const struct options *options = rows->chosen->options;
    struct sweep_wants wants = {.ops = true,
                                .op_shapes = options->group_ops.shapes,
                                .op_stacks = options->group_ops.stack != 0,
                                .blocks = process->unheld.blocks != 0};
    struct sweeping s = {.rows = rows, .process = process, .free = NO_PLACE, .by_stage = options->stage.count != 0};
    s.index = (size_t)(process - rows->chosen->model->process);
    s.base = process->has_profile_start ? process->profile_start : process->first;
    if (is_filtered(options)) {
        attribute(&s.attribution, process, false);
        stage_finder_init(&s.finder, process, &s.attribution);
    }
    choice_init(&s.choice, rows->chosen, process, &s.attribution);
    s.takes_all = !is_filtered(options) && !s.choice.warmup.count && !s.choice.off.count;
    collect(&s);
    struct sweep *sweep = sweep_open(process, &rows->chosen->model->names, wants, options->jobs != 1);
    walk(&s, sweep);
    rows->unread += sweep_close(sweep);
    rows->has_memory |= process->unheld.blocks != 0;
    sweeping_free(&s);
}
