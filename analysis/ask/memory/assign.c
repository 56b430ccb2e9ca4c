/* assign.c - finds the category of each version of a block, and follows the sums.
 *
 * The passes are those of MemoryProfile in torch's _memory_profiler.py, in its order. torch repeats some passes until
 * nothing changes; here a list of the new entries gives the same result in one pass.
 */
#include "ask/memory/assign.h"

#include <stdlib.h>
#include <string.h>

#include "ask/memory/flow.h"

struct passes {
    struct flow flow;
    uint8_t *of_key;     /* CATEGORY_UNKNOWN: by version */
    uint8_t *of_version; /* the first category that a pass gives it */
    bool *depends;       /* by key: some version depends on a gradient */
};

static uint8_t get(const struct passes *p, uint32_t version)
{
    uint32_t key = p->flow.version[version].key;
    if (p->of_key[key] != CATEGORY_UNKNOWN) return p->of_key[key];
    return p->flow.key[key].is_temporary ? CATEGORY_TEMPORARY : p->of_version[version];
}

static void offer(struct passes *p, uint32_t version, uint8_t category)
{
    if (p->of_version[version] == CATEGORY_UNKNOWN) p->of_version[version] = category;
}

static const uint32_t *inputs_of(const struct passes *p, const struct flow_node *node)
{
    return &p->flow.version_of[node->first];
}

static const uint32_t *outputs_of(const struct passes *p, const struct flow_node *node)
{
    return &p->flow.version_of[node->first + node->inputs];
}

static bool updates(uint8_t category)
{
    return category == CATEGORY_GRADIENT || category == CATEGORY_PARAMETER;
}

/* ---- what depends on a gradient ---- */

/* The nodes that have a key as an input, key after key. */
struct readers {
    uint32_t *first; /* by key, and one more */
    uint32_t *node;
};

static void readers_init(struct readers *readers, const struct passes *p)
{
    const struct flow *flow = &p->flow;
    readers->first = mem_zero(flow->keys + 2, sizeof *readers->first);
    readers->node = mem_zero(flow->uses, sizeof *readers->node);
    for (size_t i = 0; i < flow->nodes; i++)
        for (uint32_t k = 0; k < flow->node[i].inputs; k++)
            readers->first[flow->version[inputs_of(p, &flow->node[i])[k]].key + 2]++;
    for (size_t i = 2; i < flow->keys + 2; i++) readers->first[i] += readers->first[i - 1];
    for (size_t i = 0; i < flow->nodes; i++)
        for (uint32_t k = 0; k < flow->node[i].inputs; k++)
            readers->node[readers->first[flow->version[inputs_of(p, &flow->node[i])[k]].key + 1]++] = (uint32_t)i;
}

struct spread {
    struct passes *passes;
    uint32_t *key; /* found, its readers not yet visited */
    size_t keys;
    bool *done; /* by node */
};

static void found(struct spread *s, uint32_t version)
{
    uint32_t key = s->passes->flow.version[version].key;
    if (s->passes->depends[key]) return;
    s->passes->depends[key] = true;
    s->key[s->keys++] = key;
}

static void spread_node(struct spread *s, uint32_t at)
{
    const struct flow_node *node = &s->passes->flow.node[at];
    if (s->done[at]) return;
    s->done[at] = true;
    for (uint32_t i = 0; i < node->outputs; i++) found(s, outputs_of(s->passes, node)[i]);
}

static void find_dependent(struct passes *p)
{
    const struct flow *flow = &p->flow;
    struct spread s = {p, mem_zero(flow->keys, sizeof *s.key), 0, mem_zero(flow->nodes, sizeof *s.done)};
    struct readers readers;
    readers_init(&readers, p);
    for (uint32_t i = 0; i < flow->nodes; i++) {
        for (uint32_t k = 0; k < flow->node[i].inputs; k++) {
            uint32_t version = inputs_of(p, &flow->node[i])[k];
            if (!updates(get(p, version))) continue;
            found(&s, version);
            spread_node(&s, i);
        }
    }
    while (s.keys) {
        uint32_t key = s.key[--s.keys];
        for (uint32_t i = readers.first[key]; i < readers.first[key + 1]; i++) spread_node(&s, readers.node[i]);
    }
    free(s.key);
    free(s.done);
    free(readers.first);
    free(readers.node);
}

/* ---- the passes ---- */

static void name_inputs(struct passes *p)
{
    const struct flow *flow = &p->flow;
    bool *produces = mem_zero(flow->versions, sizeof *produces);
    for (size_t i = flow->nodes; i-- > 0;) {
        const struct flow_node *node = &flow->node[i];
        const uint32_t *version = inputs_of(p, node);
        bool is_one = false;
        for (uint32_t k = 0; k < node->inputs + node->outputs && !is_one; k++)
            is_one = updates(get(p, version[k])) || produces[version[k]];
        for (uint32_t k = 0; k < node->inputs + node->outputs && is_one; k++) produces[version[k]] = true;
    }
    for (size_t i = 0; i < flow->nodes; i++)
        for (uint32_t k = 0; k < flow->node[i].outputs && flow->node[i].is_backward; k++)
            produces[outputs_of(p, &flow->node[i])[k]] = false;
    for (uint32_t i = 0; i < flow->versions; i++)
        if (produces[i] && !p->depends[flow->version[i].key]) offer(p, i, CATEGORY_INPUT);
    free(produces);
}

static bool has_gradient(const struct passes *p, const struct flow_node *node, bool of_outputs)
{
    const uint32_t *version = of_outputs ? outputs_of(p, node) : inputs_of(p, node);
    for (uint32_t i = 0; i < (of_outputs ? node->outputs : node->inputs); i++)
        if (get(p, version[i]) == CATEGORY_GRADIENT) return true;
    return false;
}

/* Marks versions that the forward pass computes from inputs, and those that may be parameters. */
static void find_candidates(const struct passes *p, bool *forward, bool *candidate)
{
    const struct flow *flow = &p->flow;
    for (uint32_t i = 0; i < flow->versions; i++) forward[i] = get(p, i) == CATEGORY_INPUT;
    for (size_t i = 0; i < flow->nodes; i++) {
        const struct flow_node *node = &flow->node[i];
        bool is_forward = false;
        for (uint32_t k = 0; k < node->inputs; k++) is_forward |= forward[inputs_of(p, node)[k]];
        if (!is_forward || node->is_backward || has_gradient(p, node, false) || has_gradient(p, node, true)) continue;
        for (uint32_t k = 0; k < node->outputs; k++) forward[outputs_of(p, node)[k]] = true;
        for (uint32_t k = 0; k < node->inputs; k++)
            if (!forward[inputs_of(p, node)[k]]) candidate[inputs_of(p, node)[k]] = true;
    }
}

static void name_parameters(struct passes *p)
{
    const struct flow *flow = &p->flow;
    bool *forward = mem_zero(flow->versions, sizeof *forward), *candidate = mem_zero(flow->versions, sizeof *candidate);
    bool *used = mem_zero(flow->versions, sizeof *used);
    find_candidates(p, forward, candidate);
    for (size_t i = flow->nodes; i-- > 0;) {
        const struct flow_node *node = &flow->node[i];
        bool is_used = has_gradient(p, node, true);
        for (uint32_t k = 0; k < node->outputs && !is_used; k++) is_used = used[outputs_of(p, node)[k]];
        for (uint32_t k = 0; k < node->inputs && is_used; k++) used[inputs_of(p, node)[k]] = true;
    }
    for (uint32_t i = 0; i < flow->versions; i++)
        if (candidate[i] && used[i] && p->depends[flow->version[i].key])
            p->of_key[flow->version[i].key] = CATEGORY_PARAMETER;
    free(forward);
    free(candidate);
    free(used);
}

static void name_activations(struct passes *p)
{
    for (size_t i = 0; i < p->flow.nodes; i++) {
        const struct flow_node *node = &p->flow.node[i];
        unsigned has = 0;
        for (uint32_t k = 0; k < node->inputs; k++) has |= 1u << get(p, inputs_of(p, node)[k]);
        unsigned needed = 1u << CATEGORY_INPUT | 1u << CATEGORY_ACTIVATION;
        unsigned allowed = needed | 1u << CATEGORY_PARAMETER | 1u << CATEGORY_TEMPORARY;
        if (!(has & needed) || has & ~allowed || node->is_backward) continue;
        for (uint32_t k = 0; k < node->outputs; k++) offer(p, outputs_of(p, node)[k], CATEGORY_ACTIVATION);
    }
}

static void name_details(struct passes *p)
{
    for (size_t i = 0; i < p->flow.nodes; i++) {
        const struct flow_node *node = &p->flow.node[i];
        for (uint32_t k = 0; k < node->outputs && node->is_backward; k++) {
            uint32_t version = outputs_of(p, node)[k], prior = p->flow.version[version].prior;
            uint8_t before = prior == NO_PLACE ? CATEGORY_UNKNOWN : get(p, prior);
            if (before == CATEGORY_UNKNOWN || before == CATEGORY_DETAIL) offer(p, version, CATEGORY_DETAIL);
        }
    }
}

static void run(struct passes *p)
{
    const struct flow *flow = &p->flow;
    p->of_key = mem_zero(flow->keys, 1);
    p->of_version = mem_zero(flow->versions, 1);
    p->depends = mem_zero(flow->keys, sizeof *p->depends);
    memset(p->of_version, CATEGORY_UNKNOWN, flow->versions);
    for (size_t i = 0; i < flow->keys; i++)
        p->of_key[i] = flow->key[i].is_parameter  ? CATEGORY_PARAMETER
                       : flow->key[i].is_gradient ? CATEGORY_GRADIENT
                                                  : CATEGORY_UNKNOWN;
    find_dependent(p);
    name_inputs(p);
    name_parameters(p);
    name_activations(p);
    for (size_t i = 0; i < flow->keys; i++)
        if (flow->key[i].is_state) p->of_key[i] = CATEGORY_STATE;
    name_details(p);
}

/* ---- the answer ---- */

static void add_moves(struct assigned *assigned, const struct passes *p)
{
    const struct flow *flow = &p->flow;
    for (size_t i = 0; i < flow->writes; i++) {
        uint32_t version = flow->write[i].version;
        const struct flow_key *key = &flow->key[flow->version[version].key];
        uint8_t from = get(p, flow->version[version].prior), to = get(p, version);
        uint32_t block = key->allocated != NO_PLACE ? key->allocated : key->freed;
        if (from == to || block == NO_PLACE) continue;
        assigned->move =
            mem_grow(assigned->move, &assigned->move_capacity, assigned->moves + 1, sizeof *assigned->move);
        assigned->move[assigned->moves++] = (struct category_move){flow->write[i].time, block, from, to};
    }
}

bool assign_categories(struct assigned *assigned, const struct process *process, const struct names *names)
{
    struct passes p = {0};
    *assigned = (struct assigned){0};
    if (!process->tensors.uses) return false;
    flow_init(&p.flow, process, names);
    run(&p);
    size_t blocks = process->blocks.table.count;
    assigned->first = mem_zero(blocks, 1);
    assigned->last = mem_zero(blocks, 1);
    memset(assigned->first, CATEGORY_UNKNOWN, blocks);
    memset(assigned->last, CATEGORY_UNKNOWN, blocks);
    for (size_t i = 0; i < p.flow.keys; i++) {
        const struct flow_key *key = &p.flow.key[i];
        const uint32_t of[2] = {key->allocated, key->freed};
        for (int k = 0; k < 2 && key->is_tensor; k++) {
            if (of[k] == NO_PLACE) continue;
            assigned->first[of[k]] = get(&p, key->first);
            assigned->last[of[k]] = get(&p, key->last);
        }
    }
    add_moves(assigned, &p);
    flow_free(&p.flow);
    free(p.of_key);
    free(p.of_version);
    free(p.depends);
    return true;
}

void assigned_free(struct assigned *assigned)
{
    free(assigned->first);
    free(assigned->last);
    free(assigned->move);
    *assigned = (struct assigned){0};
}

/* ---- sums ---- */

static void add_to_category(struct assigned_walk *walk, uint32_t pool, uint8_t category, int64_t bytes)
{
    walk->bytes[pool][category] = add_ns(walk->bytes[pool][category], bytes); /* saturates */
}

static int64_t size_of(const struct assigned_walk *walk, uint32_t block)
{
    int64_t bytes = walk->process->blocks.bytes[block];
    return bytes < 0 ? -MAX(bytes, -INT64_MAX) : bytes;
}

static void make_pools(struct assigned_walk *walk, size_t pools)
{
    if (pools <= walk->pools) return;
    walk->bytes = mem_grow(walk->bytes, &walk->capacity, pools, sizeof *walk->bytes);
    memset(walk->bytes + walk->pools, 0, (pools - walk->pools) * sizeof *walk->bytes);
    walk->pools = pools;
}

/* Blocks that are older than the recording, and whose end it has, are in use from the beginning. */
void assigned_walk_init(struct assigned_walk *walk, const struct assigned *assigned, struct memory_reading *reading)
{
    struct memory_walk changes;
    const struct memory_change *change;
    *walk = (struct assigned_walk){.assigned = assigned, .process = reading->process};
    walk->pool_of = no_places(reading->process->blocks.table.count);
    memory_walk_init(&changes, reading);
    while ((change = memory_walk_next(&changes)) != NULL) {
        make_pools(walk, changes.pools);
        walk->pool_of[change->block] = change->pool;
        if (change->bytes < 0 && !change->has_gone)
            add_to_category(walk, change->pool, assigned->first[change->block], size_of(walk, change->block));
    }
    memory_walk_free(&changes);
}

static void take_moves(struct assigned_walk *walk, int64_t until)
{
    for (; walk->next < walk->assigned->moves && walk->assigned->move[walk->next].time <= until; walk->next++) {
        const struct category_move *move = &walk->assigned->move[walk->next];
        uint32_t pool = walk->pool_of[move->block];
        if (pool == NO_PLACE) continue;
        add_to_category(walk, pool, move->from, -size_of(walk, move->block));
        add_to_category(walk, pool, move->to, size_of(walk, move->block));
    }
}

const int64_t *assigned_walk_take(struct assigned_walk *walk, const struct memory_walk *changes,
                                  const struct memory_change *change)
{
    int64_t *bytes = walk->bytes[change->pool];
    take_moves(walk, change->time);
    add_to_category(walk, change->pool,
                    (change->bytes < 0 ? walk->assigned->last : walk->assigned->first)[change->block], change->bytes);
    if (change->bytes > 0 && change->has_gone) /* the record of its end is missing */
        add_to_category(walk, change->pool, walk->assigned->last[change->gone.block], -change->gone.bytes);
    if (!memory_pool_has_categories(&changes->pool[change->pool]) || change->allocated == TOTAL_UNKNOWN) return NULL;
    bytes[CATEGORY_UNKNOWN] = (int64_t)MIN(change->allocated, (uint64_t)INT64_MAX);
    for (int i = 0; i < CATEGORY_UNKNOWN; i++) bytes[CATEGORY_UNKNOWN] = add_ns(bytes[CATEGORY_UNKNOWN], -bytes[i]);
    return bytes;
}

void assigned_walk_free(struct assigned_walk *walk)
{
    free(walk->bytes);
    free(walk->pool_of);
    *walk = (struct assigned_walk){0};
}
