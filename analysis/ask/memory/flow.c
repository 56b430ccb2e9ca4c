/* flow.c - builds the data flow of a process from its operators, the storages that they used, and its blocks.
 *
 * Everything is sorted once, so that hostile traces cost N log N.
 */
#include "ask/memory/flow.h"

#include <stdlib.h>
#include <string.h>

enum { IS_LEAF = 1, IS_IN_PLACE = 2, IS_ACCUMULATE = 4, IS_GRADIENT_USE = 8, IS_LOOKED_AT = 128 };
/* A node uses, writes, allocates or frees a key. UNEXPLAINED: the node takes it as input and is not an operator; autograd
 * has such nodes. */
enum { USED = 1, WRITTEN = 2, ALLOCATED = 4, FREED = 8, UNEXPLAINED = 16 };

/* One use of a key by a node. */
struct edge {
    uint32_t node, key;
    uint32_t how;
};

/* A block or the tensors of one record, in order of time. */
struct event {
    int64_t time;
    uint32_t order; /* events of one moment are in this order: frees, uses, allocations */
    uint32_t index;
    bool is_block;
};

struct building {
    struct flow *flow;
    const struct process *process;
    const struct names *names;
    uint8_t *kind;      /* of names */
    uint32_t *leaf;     /* indices of operators, by thread and start; node i is leaf i */
    uint32_t *child_of; /* by leaf: its first operator */
    size_t leaves;
    struct edge *edge;
    size_t edges, edge_capacity;
    struct map at; /* key by address */
};

/* ---- operators ---- */

static bool begins_with(const struct name *name, const char *prefix)
{
    size_t length = strlen(prefix);
    return name->length >= length && memcmp(name->text, prefix, length) == 0;
}

static bool is(const struct name *name, const char *text)
{
    return name->length == strlen(text) && begins_with(name, text);
}

/* A node is an operator, and operators have a namespace. Other functions that torch records, and autograd's frames, are
 * not nodes. An operator whose name ends in _ writes into the inputs that it returns. */
static uint8_t kind_of(struct building *b, uint32_t number)
{
    if (number == NAME_NONE) return 0;
    if (b->kind[number]) return b->kind[number];
    const struct name *name = names_get(b->names, number);
    const char *dot = memchr(name->text, '.', name->length);
    size_t length = dot ? (size_t)(dot - name->text) : name->length;
    uint8_t kind = IS_LOOKED_AT;
    if (memmem(name->text, name->length, "::", 2) != NULL && !begins_with(name, "autograd::engine::")) kind |= IS_LEAF;
    if (length && name->text[length - 1] == '_') kind |= IS_IN_PLACE;
    if (is(name, "torch::autograd::AccumulateGrad")) kind |= IS_ACCUMULATE;
    if (is(name, "aten::detach") || is(name, "aten::add_")) kind |= IS_GRADIENT_USE;
    b->kind[number] = kind;
    return kind;
}

static int by_place(const void *a, const void *b, void *context)
{
    const struct tensor_op *op = context;
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    const struct tensor_op *x = &op[i], *y = &op[k];
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    int order = outer_first(x->start, x->end, y->start, y->end);
    return order ? order : by_number(i, k);
}

/* Keeps the outermost operators of each thread. */
static void find_leaves(struct building *b)
{
    const struct tensors *t = &b->process->tensors;
    uint32_t *order = mem_zero(t->ops, sizeof *order);
    b->leaf = mem_zero(t->ops, sizeof *b->leaf);
    b->child_of = no_places(t->ops);
    for (size_t i = 0; i < t->ops; i++) order[i] = (uint32_t)i;
    if (t->ops) qsort_r(order, t->ops, sizeof *order, by_place, t->op);
    for (size_t i = 0; i < t->ops; i++) {
        const struct tensor_op *op = &t->op[order[i]];
        const struct tensor_op *last = b->leaves ? &t->op[b->leaf[b->leaves - 1]] : NULL;
        if (!(kind_of(b, op->name) & IS_LEAF) && !op->is_backward) continue;
        if (last && last->thread == op->thread && op->start < last->end) {
            if (b->child_of[b->leaves - 1] == NO_PLACE) b->child_of[b->leaves - 1] = order[i];
            continue;
        }
        b->leaf[b->leaves++] = order[i];
    }
    free(order);
}

/* Returns the leaf that was open in a thread; NO_PLACE if there was none. */
static uint32_t leaf_at(const struct building *b, uint32_t thread, int64_t time)
{
    const struct tensor_op *op = b->process->tensors.op;
    size_t low = 0, high = b->leaves;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct tensor_op *x = &op[b->leaf[middle]];
        if (x->thread < thread || (x->thread == thread && x->start <= time)) low = middle + 1;
        else high = middle;
    }
    if (!low) return NO_PLACE;
    const struct tensor_op *x = &op[b->leaf[low - 1]];
    return x->thread == thread && time <= x->end ? (uint32_t)(low - 1) : NO_PLACE;
}

/* ---- keys ---- */

static uint32_t add_version(struct flow *flow, uint32_t key, uint32_t prior)
{
    flow->version = mem_grow(flow->version, &flow->version_capacity, flow->versions + 1, sizeof *flow->version);
    flow->version[flow->versions] = (struct flow_version){key, prior};
    return (uint32_t)flow->versions++;
}

static uint32_t key_at(struct building *b, uint64_t address)
{
    struct flow *flow = b->flow;
    uint32_t key = map_get(&b->at, address);
    if (key != MAP_NONE) return key;
    key = (uint32_t)flow->keys;
    flow->key = mem_grow(flow->key, &flow->key_capacity, flow->keys + 1, sizeof *flow->key);
    uint32_t version = add_version(flow, key, NO_PLACE);
    flow->key[flow->keys++] =
        (struct flow_key){version, version, NO_PLACE, NO_PLACE, false, false, false, false, false};
    map_put(&b->at, address, key);
    return key;
}

/* ---- events ---- */

static int by_moment(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    return by_number(x->index, y->index);
}

static void add_edge(struct building *b, uint32_t node, uint32_t key, uint32_t how)
{
    b->edge = mem_grow(b->edge, &b->edge_capacity, b->edges + 1, sizeof *b->edge);
    b->edge[b->edges++] = (struct edge){node, key, how};
}

static uint32_t add_node(struct flow *flow, int64_t start, bool is_backward)
{
    flow->node = mem_grow(flow->node, &flow->node_capacity, flow->nodes + 1, sizeof *flow->node);
    flow->node[flow->nodes] = (struct flow_node){.start = start, .is_backward = is_backward};
    return (uint32_t)flow->nodes++;
}

static void take_block(struct building *b, uint32_t i)
{
    const struct blocks *blocks = &b->process->blocks;
    uint32_t key = key_at(b, blocks->address[i]);
    uint32_t node = leaf_at(b, blocks->thread[i], blocks->time[i]);
    bool is_freed = blocks->bytes[i] < 0;
    if (node == NO_PLACE) node = add_node(b->flow, blocks->time[i], false);
    add_edge(b, node, key, is_freed ? FREED : ALLOCATED);
    if (is_freed) {
        b->flow->key[key].freed = i;
        map_remove(&b->at, blocks->address[i]);
    } else {
        b->flow->key[key].allocated = i;
    }
}

/* The first operator inside AccumulateGrad takes the gradient. */
static bool takes_gradient(struct building *b, const struct tensor_use *use, uint32_t leaf)
{
    const struct tensor_op *op = b->process->tensors.op, *outer = &op[b->leaf[leaf]];
    uint32_t child = b->child_of[leaf];
    return outer->is_backward && kind_of(b, outer->name) & IS_ACCUMULATE && child != NO_PLACE &&
           op[child].start == use->time && op[child].name == use->name && kind_of(b, use->name) & IS_GRADIENT_USE;
}

static bool is_backward_itself(const struct building *b, const struct tensor_use *use, uint32_t leaf)
{
    const struct tensor_op *op = &b->process->tensors.op[b->leaf[leaf]];
    return op->is_backward && op->start == use->time && op->name == use->name;
}

static void take_inputs(struct building *b, const struct tensor_use *use, const uint64_t *address)
{
    uint32_t leaf = leaf_at(b, use->thread, use->time);
    bool gradient = leaf != NO_PLACE && use->count && takes_gradient(b, use, leaf);
    bool is_whole = leaf != NO_PLACE && is_backward_itself(b, use, leaf);
    uint32_t how = is_whole || !(kind_of(b, use->name) & IS_LEAF) ? UNEXPLAINED : USED;
    for (uint32_t i = 0; i < use->count; i++) {
        uint32_t key = key_at(b, address[i]);
        b->flow->key[key].is_tensor = true;
        if (gradient && !i) b->flow->key[key].is_gradient = true;
        if (leaf != NO_PLACE) add_edge(b, leaf, key, how);
    }
}

static void take_use(struct building *b, uint32_t index)
{
    const struct tensor_use *use = &b->process->tensors.use[index];
    const uint64_t *address = b->process->tensors.address + use->first;
    if (use->role == TENSOR_INPUT) {
        take_inputs(b, use, address);
    } else if (use->role == TENSOR_OUTPUT) {
        uint32_t leaf = kind_of(b, use->name) & IS_IN_PLACE ? leaf_at(b, use->thread, use->time) : NO_PLACE;
        for (uint32_t i = 0; leaf != NO_PLACE && i < use->count; i++) {
            uint32_t key = map_get(&b->at, address[i]);
            if (key != MAP_NONE) add_edge(b, leaf, key, WRITTEN);
        }
    } else {
        for (uint32_t i = 0; i < use->count; i++) {
            uint32_t at = key_at(b, address[i]); /* may move the keys */
            struct flow_key *key = &b->flow->key[at];
            key->is_tensor = true;
            if (use->role == TENSOR_PARAMETER) key->is_parameter = true;
            if (use->role == TENSOR_GRADIENT) key->is_gradient = true;
            if (use->role == TENSOR_STATE) key->is_state = true;
        }
    }
}

/* Takes the blocks of torch's allocators. They lie inside blocks of CUDA's calls and of libc, often at the same address. */
static void take_events(struct building *b)
{
    const struct tensors *t = &b->process->tensors;
    const struct blocks *blocks = &b->process->blocks;
    struct event *event = mem_zero(t->uses + blocks->table.count, sizeof *event);
    size_t events = 0;
    for (size_t i = 0; i < t->uses; i++) event[events++] = (struct event){t->use[i].time, 1, (uint32_t)i, false};
    for (size_t i = 0; i < blocks->table.count; i++)
        if (blocks->bytes[i] && blocks->kind[i] == BLOCK_NONE && blocks->allocated[i] != TOTAL_UNKNOWN)
            event[events++] = (struct event){blocks->time[i], blocks->bytes[i] < 0 ? 0 : 2, (uint32_t)i, true};
    if (events) qsort(event, events, sizeof *event, by_moment);
    for (size_t i = 0; i < events; i++)
        if (event[i].is_block) take_block(b, event[i].index);
        else take_use(b, event[i].index);
    free(event);
}

/* ---- nodes ---- */

static int nodes_by_start(const void *a, const void *b, void *context)
{
    const struct flow_node *node = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int order = by_number(node[x].start, node[y].start);
    return order ? order : by_number(x, y);
}

static int by_node(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    return x->node != y->node ? (x->node < y->node ? -1 : 1) : by_number(x->key, y->key);
}

static void add_use(struct flow *flow, uint32_t version)
{
    flow->version_of = mem_grow(flow->version_of, &flow->use_capacity, flow->uses + 1, sizeof *flow->version_of);
    flow->version_of[flow->uses++] = version;
}

/* Gives each edge the union of what its node does with its key. Returns the number of edges, one for each key. */
static size_t unite(struct edge *edge, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (kept && edge[kept - 1].node == edge[i].node && edge[kept - 1].key == edge[i].key)
            edge[kept - 1].how |= edge[i].how;
        else edge[kept++] = edge[i];
    return kept;
}

/* Takes an input for written if nothing tells how it is used, as torch does. */
static bool is_written(uint32_t how)
{
    bool is_known = (how & (USED | WRITTEN)) == (USED | WRITTEN),
         is_unknown = (how & (USED | UNEXPLAINED)) == UNEXPLAINED;
    return !(how & (ALLOCATED | FREED)) && (is_known || is_unknown);
}

/* The edges are those of one node. Inputs have the versions from before it. */
static void wire(struct flow *flow, struct flow_node *node, const struct edge *edge, size_t edges)
{
    node->first = (uint32_t)flow->uses;
    for (size_t i = 0; i < edges; i++)
        if (!(edge[i].how & ALLOCATED) && edge[i].how & (USED | UNEXPLAINED | FREED))
            add_use(flow, flow->key[edge[i].key].last);
    node->inputs = (uint32_t)flow->uses - node->first;
    for (size_t i = 0; i < edges; i++) {
        struct flow_key *key = &flow->key[edge[i].key];
        bool is_new = edge[i].how & ALLOCATED;
        if (is_new && edge[i].how & FREED) key->is_temporary = true;
        else if (is_new) add_use(flow, key->first);
        if (!is_written(edge[i].how)) continue;
        key->last = add_version(flow, edge[i].key, key->last);
        add_use(flow, key->last);
        flow->write = mem_grow(flow->write, &flow->write_capacity, flow->writes + 1, sizeof *flow->write);
        flow->write[flow->writes++] = (struct flow_write){node->start, key->last};
    }
    node->outputs = (uint32_t)flow->uses - node->first - node->inputs;
}

/* Sorts the nodes by their start, and gives them their inputs and outputs. */
static void wire_all(struct building *b)
{
    struct flow *flow = b->flow;
    uint32_t *order = mem_zero(flow->nodes, sizeof *order), *place = mem_zero(flow->nodes, sizeof *place);
    struct flow_node *sorted = mem_zero(flow->nodes, sizeof *sorted);
    size_t edges = 0;
    for (size_t i = 0; i < flow->nodes; i++) order[i] = (uint32_t)i;
    if (flow->nodes) qsort_r(order, flow->nodes, sizeof *order, nodes_by_start, flow->node);
    for (size_t i = 0; i < flow->nodes; i++) {
        sorted[i] = flow->node[order[i]];
        place[order[i]] = (uint32_t)i;
    }
    free(flow->node);
    flow->node = sorted;
    for (size_t i = 0; i < b->edges; i++) { /* a block that no operator names belongs to no tensor */
        if (!flow->key[b->edge[i].key].is_tensor) continue;
        b->edge[edges] = b->edge[i];
        b->edge[edges++].node = place[b->edge[i].node];
    }
    if (edges) qsort(b->edge, edges, sizeof *b->edge, by_node);
    edges = unite(b->edge, edges);
    for (size_t i = 0, at = 0; i < flow->nodes; i++) {
        size_t first = at;
        while (at < edges && b->edge[at].node == i) at++;
        wire(flow, &flow->node[i], &b->edge[first], at - first);
    }
    free(order);
    free(place);
}

void flow_init(struct flow *flow, const struct process *process, const struct names *names)
{
    struct building b = {.flow = flow, .process = process, .names = names};
    *flow = (struct flow){0};
    b.kind = mem_zero(atomic_load(&names->count), sizeof *b.kind);
    find_leaves(&b);
    for (size_t i = 0; i < b.leaves; i++) {
        const struct tensor_op *op = &process->tensors.op[b.leaf[i]];
        add_node(flow, op->start, op->is_backward);
    }
    take_events(&b);
    wire_all(&b);
    free(b.kind);
    free(b.leaf);
    free(b.child_of);
    free(b.edge);
    map_free(&b.at);
}

void flow_free(struct flow *flow)
{
    free(flow->key);
    free(flow->version);
    free(flow->node);
    free(flow->version_of);
    free(flow->write);
    *flow = (struct flow){0};
}
