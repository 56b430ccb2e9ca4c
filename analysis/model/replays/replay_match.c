/* replay_match.c - finds the captured call of each piece of work that a CUDA graph replays, in a trace of another program. */
#include "model/replays/replay_match.h"

#include <stdlib.h>
#include <string.h>

#include "model/graphs.h"

/* A piece of work that a graph replayed. */
struct replayed {
    uint64_t correlation, node; /* node 0: unknown */
    int64_t start;
    uint32_t work;
};

struct matching {
    struct process *process;
    struct names *names;
    struct map launched_at;         /* by correlation id of a launch of a graph: its span */
    struct map nodes_of;            /* by address of a captured call: its first node + 1 */
    const struct captures *from[2]; /* in the trace itself, and in others; NULL: none */
    uint32_t ops[2];                /* the first of their operators in process->graphs.calls; NO_PLACE: not yet */
    struct replayed *replayed;
    size_t count, capacity;
    uint32_t *key,
        *of; /* the keys of a launch in the order of the pattern, and the place there of each work of the launch */
    size_t key_capacity, of_capacity;
};

static void find_launches(struct matching *m)
{
    const struct spans *s = &m->process->spans;
    struct map is_launch = {0}; /* by name */
    for (size_t i = 0; i < s->table.count; i++) {
        if (s->event_class[i] != CLASS_API || s->id[i] == NO_ID) continue;
        uint32_t known = map_get(&is_launch, s->name[i]);
        if (known == MAP_NONE) {
            known = strstr(names_copy(m->names, s->name[i]).text, "GraphLaunch") != NULL;
            map_put(&is_launch, s->name[i], known);
        }
        if (known) map_put(&m->launched_at, s->id[i], (uint32_t)i);
    }
    map_free(&is_launch);
}

static int by_launch_and_start(const void *a, const void *b)
{
    const struct replayed *x = a, *y = b;
    if (x->correlation != y->correlation) return x->correlation < y->correlation ? -1 : 1;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->work > y->work) - (x->work < y->work);
}

static int by_node_and_start(const void *a, const void *b)
{
    const struct replayed *x = a, *y = b;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->work > y->work) - (x->work < y->work);
}

static void find_replayed(struct matching *m)
{
    const struct works *w = &m->process->works;
    struct graphs *g = &m->process->graphs;
    g->matched = mem_zero(w->table.count, sizeof *g->matched);
    for (size_t i = 0; i < w->table.count; i++) {
        uint64_t node = graph_node_of(m->process, i);
        bool launched = w->correlation[i] != NO_ID && map_get(&m->launched_at, w->correlation[i]) != MAP_NONE;
        g->matched[i] = (uint32_t)NOT_REPLAYED;
        if (!IS_WORK(w->event_class[i]) || (!node && !launched)) continue;
        g->matched[i] = (uint32_t)NOT_MATCHED;
        m->replayed = mem_grow(m->replayed, &m->capacity, m->count + 1, sizeof *m->replayed);
        m->replayed[m->count++] = (struct replayed){w->correlation[i], node, w->start[i], (uint32_t)i};
    }
    if (m->count) qsort(m->replayed, m->count, sizeof *m->replayed, by_launch_and_start);
}

/* ---- a launch ---- */

/* Order of the works of a launch. */
enum order {
    ORDER_OF_NODES, /* all are nodes of one graph */
    ORDER_OF_TIME,  /* nobody names a node, and all are in one stream */
    ORDER_UNKNOWN,  /* order of time, which may be another one than that of the calls */
};

/* Sorts the works of a launch and returns what the order is worth. */
static enum order sort_works(const struct matching *m, struct replayed *r, size_t count)
{
    const struct works *w = &m->process->works;
    bool all = true, none = true, one_graph = true, one_lane = true;
    for (size_t i = 0; i < count; i++) {
        all &= r[i].node != 0;
        none &= r[i].node == 0;
        one_graph &= r[i].node >> 32 == r[0].node >> 32;
        one_lane &= w->lane[r[i].work] == w->lane[r[0].work];
    }
    if (all && one_graph) {
        qsort(r, count, sizeof *r, by_node_and_start);
        return ORDER_OF_NODES;
    }
    return none && one_lane ? ORDER_OF_TIME : ORDER_UNKNOWN;
}

/* Fills m->key and m->of. Returns the number of keys; 0: a node is not the same kernel each time. */
static size_t list_keys(struct matching *m, const struct replayed *r, size_t count, enum order order, bool is_named)
{
    const struct works *w = &m->process->works;
    size_t keys = 0;
    m->key = mem_grow(m->key, &m->key_capacity, count, sizeof *m->key);
    m->of = mem_grow(m->of, &m->of_capacity, count, sizeof *m->of);
    for (size_t i = 0; i < count; i++) {
        uint32_t work = r[i].work;
        bool again = order == ORDER_OF_NODES && i && r[i].node == r[i - 1].node;
        uint32_t key =
            capture_key(m->names, (enum event_class)w->event_class[work], is_named ? w->name[work] : NAME_NONE);
        if (again && (w->name[work] != w->name[r[i - 1].work] || key != m->key[keys - 1])) return 0;
        if (!again) m->key[keys++] = key;
        m->of[i] = (uint32_t)keys - 1;
    }
    return keys;
}

/* Returns the first node of a pattern, whose nodes are added once. */
static uint32_t nodes_of(struct matching *m, int source, const struct capture_pattern *pattern)
{
    struct graphs *g = &m->process->graphs;
    const struct captures *captures = m->from[source];
    const struct captured_call *call = &captures->call[pattern->first];
    uint32_t first = map_get(&m->nodes_of, (uintptr_t)call);
    if (first != MAP_NONE) return first;
    first = (uint32_t)g->nodes;
    map_put(&m->nodes_of, (uintptr_t)call, first);
    if (!g->calls) g->calls = mem_zero(1, sizeof *g->calls);
    if (m->ops[source] == NO_PLACE) m->ops[source] = captured_ops_append(g->calls, &captures->ops);
    g->node = mem_grow(g->node, &g->node_capacity, g->nodes + pattern->count, sizeof *g->node);
    for (size_t i = 0; i < pattern->count; i++)
        g->node[g->nodes++] =
            (struct graph_node){.thread = NO_THREAD,
                                .op = captured_op_name(&captures->ops, call[i].op),
                                .call = call[i].op == NO_PLACE ? NO_PLACE : m->ops[source] + call[i].op,
                                .by_order = !pattern->is_named,
                                .is_given = source == 1};
    return first;
}

/* Returns the time of a launch. Without its call it is before all captures of the trace itself. */
static int64_t launch_time(const struct matching *m, const struct replayed *r)
{
    uint32_t span = map_get(&m->launched_at, r->correlation);
    return span == MAP_NONE ? INT64_MIN : m->process->spans.start[span];
}

/* Marks calls that might be one another, because the order is unknown, in `doubtful`, by key. */
static void doubt_keys(const struct captures *captures, const struct captured_call *call, size_t count,
                       struct map *doubtful)
{
    struct map op_of = {0};
    for (size_t i = 0; i < count; i++) {
        uint32_t op = map_get(&op_of, call[i].key), name = captured_op_name(&captures->ops, call[i].op);
        if (op == MAP_NONE) map_put(&op_of, call[i].key, name);
        else if (op != name) map_put(doubtful, call[i].key, 1);
    }
    map_free(&op_of);
}

static void match_works(struct matching *m, int source, const struct capture_pattern *pattern, const struct replayed *r,
                        size_t count, enum order order)
{
    const struct captured_call *call = &m->from[source]->call[pattern->first];
    uint32_t first = nodes_of(m, source, pattern);
    struct map doubtful = {0};
    int64_t time = launch_time(m, r);
    if (order == ORDER_UNKNOWN) doubt_keys(m->from[source], call, count, &doubtful);
    for (size_t i = 0; i < count; i++) {
        const struct captured_call *of = &call[m->of[i]];
        if (time < of->until && map_get(&doubtful, of->key) == MAP_NONE)
            m->process->graphs.matched[r[i].work] = first + m->of[i];
    }
    map_free(&doubtful);
}

/* Matches one launch. Where two files, or a file and the trace itself, have the pattern, the operators may differ. */
static void match_launch(struct matching *m, struct replayed *r, size_t count)
{
    enum order order = sort_works(m, r, count);
    int source = 0;
    const struct capture_pattern *found = NULL;
    for (int is_named = 1; is_named >= 0 && !found; is_named--) {
        if (!is_named && order == ORDER_UNKNOWN) return;
        size_t keys = list_keys(m, r, count, order, is_named);
        if (!keys) return;
        for (int i = 0; i < 2; i++) {
            const struct captures *from = m->from[i];
            const struct capture_pattern *pattern = from ? captures_find(from, m->key, keys, is_named) : NULL;
            if (!pattern || pattern->end > launch_time(m, r)) continue;
            if (found) return;
            found = pattern;
            source = i;
        }
    }
    if (found) match_works(m, source, found, r, count, order);
}

void replays_match(struct process *process, struct names *names, const struct captures *given)
{
    struct captures own = {0};
    struct matching m = {.process = process, .names = names, .from = {&own, given}, .ops = {NO_PLACE, NO_PLACE}};
    captures_add(&own, process, names, names, false);
    if (!own.patterns && !(given && given->patterns)) goto out;
    find_launches(&m);
    find_replayed(&m);
    for (size_t i = 0, end; i < m.count; i = end) {
        for (end = i + 1; end < m.count && m.replayed[end].correlation == m.replayed[i].correlation;) end++;
        if (m.replayed[i].correlation != NO_ID) match_launch(&m, &m.replayed[i], end - i);
    }
out:
    captures_free(&own);
    map_free(&m.launched_at);
    map_free(&m.nodes_of);
    free(m.replayed);
    free(m.key);
    free(m.of);
}
