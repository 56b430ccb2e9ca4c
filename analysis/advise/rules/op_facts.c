/* op_facts.c - walks over the operators of a process and the calls in them, innermost ones inside outer ones. */
#include "advise/rules/op_facts.h"

#include <stdlib.h>
#include <string.h>

#include "ask/device/call_kinds.h"
#include "ask/steps/step_parts.h"
#include "model/join.h"

/* An operator or a call. */
struct happening {
    int64_t start, end;
    uint32_t thread, span, name;
    bool is_call;
};

/* One that is open. */
struct open_op {
    const struct happening *of;
    int64_t inside; /* time of what is in it */
    bool launches, has_operators;
};

struct op_pass {
    struct op_facts *facts;
    const struct process *process;
    const struct names *names;
    struct intervals busy;           /* merged: work of the devices */
    const struct intervals *loading; /* when a thread waits for a DataLoader */
    struct happening *happening;
    size_t count, capacity;
    struct open_op *open;
    size_t opens, open_capacity;
    int64_t soon;    /* the end of the last outermost operator of the thread */
    size_t last_row; /* its row + 1; 0: none */
    struct chain chain;
    struct map leaf_of; /* by name of an operator */
};

enum { SOON_NS = 300000, LONG_NS = 500000 };

bool process_leads(const struct process *p, const struct names *names)
{
    struct map known = {0};
    bool waits = p->works.table.count != 0;
    for (size_t i = 0; i < p->ranges.table.count && !waits; i++)
        if (map_get(&known, p->ranges.name[i]) == MAP_NONE) {
            map_put(&known, p->ranges.name[i], 1);
            waits = is_loading(names_get(names, p->ranges.name[i]));
        }
    for (size_t i = 0; i < p->spans.table.count && !waits; i++)
        if (map_get(&known, p->spans.name[i]) == MAP_NONE) {
            map_put(&known, p->spans.name[i], 1);
            waits = is_loading(names_get(names, p->spans.name[i]));
        }
    map_free(&known);
    return waits;
}

static void add_happening(struct op_pass *pass, struct happening h)
{
    pass->happening = mem_grow(pass->happening, &pass->capacity, pass->count + 1, sizeof *pass->happening);
    pass->happening[pass->count++] = h;
}

static int happenings_in_order(const void *a, const void *b)
{
    const struct happening *x = a, *y = b;
    if (x->thread != y->thread) return by_number(x->thread, y->thread);
    int order = outer_first(x->start, x->end, y->start, y->end);
    return order ? order : x->is_call - y->is_call;
}

static void collect(struct op_pass *pass, const struct wall_part *part)
{
    const struct process *p = pass->process;
    const struct spans *s = &p->spans;
    const struct calls *c = &p->calls;
    bool is_sorted = true;
    for (size_t i = 0; i < s->table.count; i++) {
        bool is_call = s->event_class[i] == CLASS_API;
        if (!is_call && s->event_class[i] != CLASS_OPERATOR) continue;
        if (intervals_hold(&part->window, s->start[i], s->start[i]))
            add_happening(pass,
                          (struct happening){s->start[i], s->end[i], s->thread[i], (uint32_t)i, s->name[i], is_call});
    }
    for (size_t i = 0; i < c->table.count; i++) {
        if (c->span[i] != NO_PLACE || !is_device_call(&p->func[c->func[i]])) continue;
        if (intervals_hold(&part->window, c->start[i], c->start[i]))
            add_happening(pass, (struct happening){c->start[i], c->end[i], c->thread[i], NO_PLACE, c->func[i], true});
    }
    for (size_t i = 1; i < pass->count && is_sorted; i++)
        is_sorted = happenings_in_order(&pass->happening[i - 1], &pass->happening[i]) <= 0;
    if (pass->count && !is_sorted) qsort(pass->happening, pass->count, sizeof *pass->happening, happenings_in_order);
}

static void collect_busy(struct op_pass *pass)
{
    const struct works *w = &pass->process->works;
    for (size_t i = 0; i < w->table.count; i++)
        if (IS_WORK(w->event_class[i])) intervals_add_merging(&pass->busy, w->start[i], w->end[i]);
    intervals_merge(&pass->busy);
}

static const char *call_name(const struct op_pass *pass, const struct happening *h)
{
    return h->span == NO_PLACE ? pass->process->func[h->name].name : names_get(pass->names, h->name)->text;
}

/* Returns for how long the device had nothing to do after a call that waited for its last work. */
static int64_t idle_after(const struct intervals *busy, const struct happening *call)
{
    size_t next = intervals_after(busy, call->end);
    if (!next || next == busy->count || busy->interval[next].start <= call->end) return 0;
    return busy->interval[next - 1].end >= call->start ? busy->interval[next].start - call->end : 0;
}

static void end_call(struct op_pass *pass, const struct happening *h)
{
    const char *name = call_name(pass, h);
    if (call_kind_of(name) != SYNC) return;
    const struct happening *around = pass->opens ? pass->open[pass->opens - 1].of : NULL;
    uint32_t call = h->span == NO_PLACE ? names_find(pass->names, name, strlen(name)) : h->name;
    const struct {
        uint32_t name, call;
    } key = {around ? around->name : NAME_OUTSIDE, call == UINT32_MAX ? NAME_NONE : call};
    struct sync_fact *fact = keyed_row(&pass->facts->syncs.keyed, &key, sizeof key, sizeof *fact);
    fact->calls++;
    fact->time = add_ns(fact->time, h->end - h->start);
    fact->idle = add_ns(fact->idle, idle_after(&pass->busy, h));
    if (around && fact->stack == NAME_NONE)
        fact->stack = op_details_of(&pass->process->spans.details, around->span)->stack;
}

/* Each node of autograd takes the next number; an operator without a node has the one that comes next. */
static void add_sequence(struct op_facts *facts, int64_t sequence)
{
    facts->last_node = facts->has_nodes ? MAX(facts->last_node, sequence) : sequence;
    facts->first_node = facts->has_nodes ? MIN(facts->first_node, sequence) : sequence;
    facts->has_nodes = true;
}

/* Views and the like do not end a chain. */
static void add_to_chain(struct op_pass *pass, const struct happening *h)
{
    uint32_t leaf = map_get(&pass->leaf_of, h->name);
    if (leaf == MAP_NONE) map_put(&pass->leaf_of, h->name, leaf = operator_leaf(names_get(pass->names, h->name)));
    if (leaf == LEAF_OTHER) return;
    chain_go_on(&pass->facts->chains, &pass->chain, (enum leaf)leaf, h->name, h->name, h->end - h->start);
}

static void end_operator(struct op_pass *pass, const struct open_op *op)
{
    const struct happening *h = op->of;
    const struct op_detail *detail = op_details_of(&pass->process->spans.details, h->span);
    const struct {
        uint32_t name, shapes, types;
    } key = {h->name, detail->shapes, detail->types};
    struct op_fact *fact = keyed_row(&pass->facts->ops.keyed, &key, sizeof key, sizeof *fact);
    int64_t time = h->end - h->start, own = MAX(time - op->inside, 0);
    fact->calls++;
    fact->own = add_ns(fact->own, own);
    fact->total = add_ns(fact->total, time);
    if (time > fact->longest || !fact->stack) fact->stack = detail->stack;
    fact->longest = MAX(fact->longest, time);
    if (!op->launches && own >= LONG_NS && !intervals_hold(pass->loading, h->start, h->end))
        fact->idle = add_ns(fact->idle, own);
    pass->facts->own = add_ns(pass->facts->own, own);
    pass->facts->calls++;
    pass->facts->has_types |= detail->types != NAME_NONE;
    if (detail->sequence >= 0 && !detail->forward_thread) add_sequence(pass->facts, detail->sequence);
    pass->facts->backward += detail->forward_thread != 0;
    if (!op->has_operators && !pass->process->works.table.count) add_to_chain(pass, h);
    if (pass->opens) return;
    fact->outermost++;
    fact->outer = add_ns(fact->outer, time);
    pass->last_row = (size_t)(fact - pass->facts->ops.row) + 1;
    pass->soon = h->end;
}

static void end_last(struct op_pass *pass)
{
    struct open_op op = pass->open[--pass->opens];
    if (pass->opens) {
        struct open_op *around = &pass->open[pass->opens - 1];
        around->inside = add_ns(around->inside, op.of->end - op.of->start);
        around->launches |= op.launches || op.of->is_call;
        around->has_operators |= !op.of->is_call;
    }
    if (op.of->is_call) end_call(pass, op.of);
    else end_operator(pass, &op);
}

static void begin_happening(struct op_pass *pass, const struct happening *h)
{
    while (pass->opens && pass->open[pass->opens - 1].of->end <= h->start) end_last(pass);
    if (!pass->opens && pass->last_row && h->start >= pass->soon && h->start - pass->soon < SOON_NS && !h->is_call) {
        struct op_fact *fact = &pass->facts->ops.row[pass->last_row - 1];
        fact->between = add_ns(fact->between, h->start - pass->soon);
        pass->last_row = 0;
    }
    pass->open = mem_grow(pass->open, &pass->open_capacity, pass->opens + 1, sizeof *pass->open);
    pass->open[pass->opens++] = (struct open_op){.of = h};
}

void op_facts_add(struct op_facts *facts, struct scope *scope, const struct wall *wall)
{
    const struct wall_part *part = wall_judged(wall);
    struct op_pass pass = {
        .facts = facts, .process = scope->process, .names = &scope->chosen->model->names, .loading = &wall->loading};
    collect(&pass, part);
    collect_busy(&pass);
    for (size_t i = 0; i < pass.count; i++) {
        if (i && pass.happening[i].thread != pass.happening[i - 1].thread) {
            while (pass.opens) end_last(&pass);
            chain_end(&facts->chains, &pass.chain);
            pass.last_row = 0;
        }
        begin_happening(&pass, &pass.happening[i]);
    }
    while (pass.opens) end_last(&pass);
    chain_end(&facts->chains, &pass.chain);
    chains_add_kernels(&facts->chains, scope, part);
    map_free(&pass.leaf_of);
    intervals_free(&pass.busy);
    free(pass.happening);
    free(pass.open);
}

void op_facts_free(struct op_facts *facts)
{
    keyed_free(&facts->ops.keyed);
    keyed_free(&facts->syncs.keyed);
    chains_free(&facts->chains);
}
