/* tree.c - finds the places of a process's operators and device work, and unites the trees of processes. */
#include "ask/diff/tree.h"

#include <stdlib.h>

#include "ask/device/call_kinds.h"
#include "ask/ops/nests.h"
#include "model/join.h"

void tree_init(struct tree *tree)
{
    *tree = (struct tree){0};
    tree->node = mem_grow(NULL, &tree->capacity, 1, sizeof *tree->node);
    tree->node[tree->count++] = (struct tree_node){.parent = NO_PLACE, .name = NAME_NONE, .kind = DIFF_STAGE};
}

void tree_free(struct tree *tree)
{
    for (size_t i = 0; i < tree->count; i++)
        for (int side = 0; side < SIDES; side++) {
            struct tree_side *of = &tree->node[i].side[side];
            free(of->samples.time);
            for (int k = 0; k < NR_TREE_ATTRIBUTES; k++) free(of->attribute[k].time);
        }
    free(tree->node);
    for (int i = 0; i < NR_TREE_CHILDREN; i++) map_free(&tree->child[i]);
    *tree = (struct tree){0};
}

static uint32_t child_of(struct tree *tree, uint32_t parent, uint32_t name, uint8_t kind)
{
    struct map *children = &tree->child[kind == DIFF_STAGE      ? TREE_STAGES
                                        : kind == DIFF_OPERATOR ? TREE_OPERATORS
                                        : kind == DIFF_CALL     ? TREE_CALLS
                                                                : TREE_WORK];
    if (tree->node[parent].depth >= TREE_DEPTH) parent = tree->node[parent].parent;
    uint64_t key = (uint64_t)parent << 32 | name;
    uint32_t place = map_get(children, key);
    if (place != MAP_NONE) return place;
    tree->node = mem_grow(tree->node, &tree->capacity, tree->count + 1, sizeof *tree->node);
    tree->node[tree->count] =
        (struct tree_node){.parent = parent, .name = name, .kind = kind, .depth = tree->node[parent].depth + 1};
    place = (uint32_t)tree->count++;
    map_put(children, key, place);
    return place;
}

static void put_sample(struct tree_samples *samples, int64_t time)
{
    if (!samples->time) samples->time = mem_zero(TREE_SAMPLES, sizeof *samples->time);
    samples->every = MAX(samples->every, 1);
    if (samples->count == TREE_SAMPLES) {
        for (uint32_t i = 0; i < TREE_SAMPLES / 2; i++) samples->time[i] = samples->time[2 * i];
        samples->count /= 2;
        samples->every *= 2;
    }
    if (samples->passed++ % samples->every == 0) samples->time[samples->count++] = time;
}

static void put_call(struct tree *tree, uint32_t node, int64_t own)
{
    struct tree_side *side = &tree->node[node].side[SIDE_A];
    side->calls++;
    side->own = add_ns(side->own, MAX(own, 0));
    put_sample(&side->samples, MAX(own, 0));
}

/* ---- the places of a process ---- */

struct places {
    struct tree *tree;
    const struct process *process;
    const struct attribution *attribution;
    uint32_t *of_range, *of_span; /* nodes; NO_PLACE: not known yet, or not chosen */
    int64_t *in_range, *in_span;  /* time of what is inside, on the same thread */
};

/* Returns the node of a stage. The chain of stages around it is followed to the first one that has a node. */
static uint32_t node_of_stage(struct places *p, uint32_t stage)
{
    uint32_t chain[TREE_DEPTH], length = 0, node = TREE_ROOT;
    for (uint32_t at = stage; at != NO_PLACE; at = p->attribution->paths.outer[at]) {
        if (p->of_range[at] != NO_PLACE) {
            node = p->of_range[at];
            break;
        }
        if (length == TREE_DEPTH) break;
        chain[length++] = at;
    }
    while (length--) {
        node = child_of(p->tree, node, p->process->ranges.name[chain[length]], DIFF_STAGE);
        p->of_range[chain[length]] = node;
    }
    return node;
}

static void find_operator_places(struct places *p, const struct choice *choice, const uint32_t *order, size_t count)
{
    const struct spans *s = &p->process->spans;
    const struct ranges *r = &p->process->ranges;
    struct nests nests = {.rounding = p->process->rounding_ns};
    for (size_t k = 0; k < count; k++) {
        uint32_t i = order[k];
        const struct belonging *at = &p->attribution->span[i];
        int64_t end = s->end[i];
        uint32_t parent = nests_add(&nests, s->thread[i], s->start[i], &end, i), around = at->stage;
        bool inside =
            parent != NO_PLACE && p->of_span[parent] != NO_PLACE && p->attribution->span[parent].stage == around;
        if (!choice_moment(choice, s->start[i], at->time) || !choice_in_stage(choice, at)) continue;
        uint32_t under = inside ? p->of_span[parent] : around != NO_PLACE ? node_of_stage(p, around) : TREE_ROOT;
        p->of_span[i] = child_of(p->tree, under, s->name[i], DIFF_OPERATOR);
        if (inside) p->in_span[parent] = add_ns(p->in_span[parent], end - s->start[i]);
        else if (around != NO_PLACE && r->thread[around] == s->thread[i])
            p->in_range[around] = add_ns(p->in_range[around], end - s->start[i]);
    }
    for (size_t k = 0; k < count; k++)
        if (p->of_span[order[k]] != NO_PLACE)
            put_call(p->tree, p->of_span[order[k]], s->end[order[k]] - s->start[order[k]] - p->in_span[order[k]]);
    nests_free(&nests);
}

static int spans_outer_first(const void *a, const void *b, void *context)
{
    const struct spans *s = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (s->thread[x] != s->thread[y]) return s->thread[x] < s->thread[y] ? -1 : 1;
    int order = outer_first(s->start[x], s->end[x], s->start[y], s->end[y]);
    return order ? order : x < y ? -1 : 1;
}

static void take_operators(struct places *p, const struct choice *choice)
{
    const struct spans *s = &p->process->spans;
    uint32_t *order = mem_zero(s->table.count + 1, sizeof *order);
    size_t count = 0;
    for (size_t i = 0; i < s->table.count; i++)
        if (s->event_class[i] == CLASS_OPERATOR) order[count++] = (uint32_t)i;
    if (count) qsort_r(order, count, sizeof *order, spans_outer_first, (void *)s);
    find_operator_places(p, choice, order, count);
    free(order);
}

static void take_stages(struct places *p, const struct choice *choice)
{
    const struct ranges *r = &p->process->ranges;
    const struct attribution *a = p->attribution;
    for (size_t k = 0; k < a->stages; k++) {
        uint32_t i = (uint32_t)a->order[k], outer = a->paths.outer[i];
        if (outer != NO_PLACE && r->thread[outer] == r->thread[i])
            p->in_range[outer] = add_ns(p->in_range[outer], r->end[i] - r->start[i]);
    }
    for (size_t k = 0; k < a->stages; k++) {
        size_t i = a->order[k];
        struct belonging at = {r->start[i], (uint32_t)i, VIA_NONE};
        if (!choice_stage(choice, i) || !choice_in_stage(choice, &at)) continue;
        uint32_t node = node_of_stage(p, (uint32_t)i); /* moves the nodes */
        put_call(p->tree, node, r->end[i] - r->start[i] - p->in_range[i]);
    }
}

static void put_attribute(struct tree *tree, uint32_t node, enum tree_attribute attribute, double value)
{
    if (value > 0 && value < INT32_MAX)
        put_sample(&tree->node[node].side[SIDE_A].attribute[attribute], (int64_t)(value * TREE_SCALE));
}

/* Takes the clocks of devices that were not idle. */
static void take_clocks(struct places *p)
{
    enum { IDLE = 1 };
    for (size_t i = 0; i < p->process->samples; i++) {
        const struct device_sample *s = &p->process->sample[i];
        bool idle = s->known & TFI_SAMPLE_REASONS && s->reasons & IDLE;
        if (s->known & TFI_SAMPLE_SM_CLOCK && !idle) put_attribute(p->tree, TREE_ROOT, TREE_CLOCK, s->sm_mhz);
    }
}

/* Takes the calls that allocate or wait. What launches work is told by the work. */
static void take_calls(struct places *p, const struct choice *choice, struct names *names)
{
    struct made_calls made;
    struct made_call call;
    made_calls_init(&made, p->process, names);
    while (made_calls_next(&made, &call)) {
        const char *name = names_get(names, call.name)->text;
        struct belonging at = {call.start, stage_at(&p->attribution->finder, call.thread, call.start), VIA_NONE};
        if (call_kind_of(name) != SYNC && !call_allocates(name)) continue;
        if (!choice_call(choice, call.start, call.span) || !choice_in_stage(choice, &at)) continue;
        uint32_t under = at.stage == NO_PLACE ? TREE_ROOT : node_of_stage(p, at.stage);
        uint32_t node = child_of(p->tree, under, call.name, DIFF_CALL);
        put_call(p->tree, node, call.end - call.start);
    }
    made_calls_free(&made);
}

static void take_works(struct places *p, const struct choice *choice, struct names *names)
{
    const struct works *w = &p->process->works;
    const struct attribution *a = p->attribution;
    struct work_kinds kinds;
    struct interval when;
    size_t filled = 0;
    work_kinds_init(&kinds, &exact_kinds, names);
    for (size_t i = 0; i < w->table.count; i++) {
        const struct filling *filling = NULL;
        while (filled < p->process->fillings && p->process->filling[filled].work < i) filled++;
        if (filled < p->process->fillings && p->process->filling[filled].work == i)
            filling = &p->process->filling[filled];
        if (!choice_work(choice, i, &when) || !choice_in_stage(choice, &a->work[i])) continue;
        uint32_t op = a->op ? a->op[i] : NO_PLACE, stage = a->work[i].stage, under = TREE_ROOT;
        if (op != NO_PLACE && p->of_span[op] != NO_PLACE) under = p->of_span[op];
        else if (stage != NO_PLACE) under = node_of_stage(p, stage);
        uint32_t node = child_of(p->tree, under, w->name[i], (uint8_t)work_kind_of(&kinds, p->process, i));
        put_call(p->tree, node, when.end - when.start);
        if (filling)
            put_attribute(p->tree, node, is_of_kineto(p->process) ? TREE_BLOCKS_PER_UNIT : TREE_BLOCKS,
                          filling->blocks);
        p->tree->has_work = true;
    }
    work_kinds_free(&kinds);
}

void tree_take(struct tree *tree, struct scope *scope)
{
    const struct process *process = scope->process;
    size_t ranges = process->ranges.table.count, spans = process->spans.table.count;
    struct places p = {.tree = tree, .process = process, .attribution = scope_attribute(scope)};
    p.of_range = mem_zero(ranges + 1, sizeof *p.of_range);
    p.of_span = mem_zero(spans + 1, sizeof *p.of_span);
    p.in_range = mem_zero(ranges + 1, sizeof *p.in_range);
    p.in_span = mem_zero(spans + 1, sizeof *p.in_span);
    for (size_t i = 0; i < ranges; i++) p.of_range[i] = NO_PLACE;
    for (size_t i = 0; i < spans; i++) p.of_span[i] = NO_PLACE;
    take_operators(&p, &scope->choice);
    take_stages(&p, &scope->choice);
    take_works(&p, &scope->choice, &scope->chosen->model->names);
    if (tree->has_work) {
        take_calls(&p, &scope->choice, &scope->chosen->model->names);
        take_clocks(&p);
    }
    free(p.of_range);
    free(p.of_span);
    free(p.in_range);
    free(p.in_span);
}

/* ---- several trees ---- */

static void unite_samples(struct tree_samples *to, const struct tree_samples *from)
{
    for (uint32_t i = 0; i < from->count; i++) put_sample(to, from->time[i]);
}

void tree_unite(struct tree *to, int side, const struct tree *from, const struct names *from_names, struct names *names)
{
    uint32_t *place = mem_zero(from->count, sizeof *place);
    for (size_t i = 0; i < from->count; i++) {
        const struct tree_node *node = &from->node[i];
        if (i != TREE_ROOT) {
            const struct name *text = names_get(from_names, node->name);
            place[i] = child_of(to, place[node->parent], names_add(names, text->text, text->length), node->kind);
        }
        struct tree_side *sum = &to->node[place[i]].side[side];
        sum->calls += node->side[SIDE_A].calls;
        sum->own = add_ns(sum->own, node->side[SIDE_A].own);
        unite_samples(&sum->samples, &node->side[SIDE_A].samples);
        for (int k = 0; k < NR_TREE_ATTRIBUTES; k++)
            unite_samples(&sum->attribute[k], &node->side[SIDE_A].attribute[k]);
    }
    to->has_work |= from->has_work;
    free(place);
}

struct needs tree_needs(const struct options *options)
{
    struct needs more = {.ranges = true,
                         .launches = true,
                         .calls = true,
                         .samples = true,
                         .filling = true,
                         .device = true,
                         .operators = true,
                         .stages_of_spans = true,
                         .operators_of_work = true,
                         .stream = STREAM_HELD};
    return needs_union(work_needs(options), more);
}
