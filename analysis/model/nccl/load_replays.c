/* load_replays.c - finds the runs of collectives that were captured in CUDA graphs.
 *
 * A captured call became a node of a graph, as a plain call launches a kernel: the node's record lies inside the call,
 * or inside the end of its group. The captured calls that became the same nodes are a unit, for all of them run together.
 * Each kernel of a replay names its node, and the kernels of a unit in one launch of the graph are one run. A node that
 * runs again in the same launch, as in a loop, begins another run. The runs of a unit are numbered in the order of time:
 * the n-th run of a call on one rank meets the n-th run of the same call on the others.
 *
 * If only whole graphs are recorded, runs are counted: the launch of a graph runs each unit that was captured in it.
 * A trace may be hostile, so the rows of runs are limited to MOST_RUNS for each piece of work and each call.
 */
#include <stdlib.h>
#include <string.h>

#include "model/graphs.h"
#include "model/nccl/nccl.h"

enum { MOST_RUNS = 32 };

/* Captured calls that became the same nodes; the members are in replaying.member. */
struct unit {
    size_t first, count;
    uint64_t node; /* number of the first node */
    bool ran;
};

/* A kernel of a run; then, in `run`, all kernels of a run as one. */
struct replay {
    uint32_t unit, node, work;
    uint64_t correlation, again;
    int64_t start, end;
};

struct replaying {
    const struct nccl_calls *calls;
    struct process *process;
    struct graph_finder finder;
    size_t *member; /* indices of collectives */
    size_t members, member_capacity;
    struct unit *unit;
    size_t units, unit_capacity;
    struct map unit_of;      /* by node: index in process->graphs.node */
    struct map unit_of_call; /* by index of a collective that is in no group */
    struct replay *run;
    size_t runs, run_capacity;
};

/* ---- units ---- */

static uint32_t add_unit(struct replaying *r)
{
    r->unit = mem_grow(r->unit, &r->unit_capacity, r->units + 1, sizeof *r->unit);
    r->unit[r->units] = (struct unit){.first = r->members};
    return (uint32_t)r->units++;
}

static void add_member(struct replaying *r, uint32_t unit, size_t collective)
{
    r->member = mem_grow(r->member, &r->member_capacity, r->members + 1, sizeof *r->member);
    r->member[r->members++] = collective;
    r->unit[unit].count++;
}

static void add_node(struct replaying *r, uint32_t unit, uint32_t node)
{
    if (!r->unit[unit].node) r->unit[unit].node = r->process->graphs.node[node].number;
    map_put(&r->unit_of, node, unit);
}

/* Adds a node that was captured inside a call. */
static void add_single(struct replaying *r, size_t collective, uint32_t node)
{
    uint32_t unit = map_get(&r->unit_of_call, collective);
    if (!r->process->collectives.collective[collective].is_captured) return;
    if (unit == MAP_NONE) {
        unit = add_unit(r);
        add_member(r, unit, collective);
        map_put(&r->unit_of_call, collective, unit);
    }
    add_node(r, unit, node);
}

/* A captured collective of a group, and the number of its communicator in the group. */
struct grouped {
    uint32_t communicator;
    size_t collective;
};

static int by_communicator(const void *a, const void *b)
{
    const struct grouped *x = a, *y = b;
    if (x->communicator != y->communicator) return x->communicator < y->communicator ? -1 : 1;
    return (x->collective > y->collective) - (x->collective < y->collective);
}

static struct grouped *find_grouped(const struct replaying *r, size_t group, size_t *count, uint32_t *communicators)
{
    const struct collective *c = r->process->collectives.collective;
    struct map number_of = {0};
    size_t first, last;
    nccl_members(r->calls, group, &first, &last);
    struct grouped *grouped = mem_zero(last - first, sizeof *grouped);
    *count = 0;
    for (size_t i = first; i < last; i++) {
        if (!c[i].is_captured || map_get(&r->unit_of_call, i) != MAP_NONE) continue;
        grouped[(*count)++] = (struct grouped){map_number(&number_of, nccl_rank_key(&c[i])), i};
    }
    *communicators = (uint32_t)number_of.count;
    map_free(&number_of);
    if (*count) qsort(grouped, *count, sizeof *grouped, by_communicator);
    return grouped;
}

/* Adds the nodes that the end of a group became. */
static void add_group(struct replaying *r, const struct group_launch *launch, size_t nodes)
{
    size_t count;
    uint32_t communicators;
    struct grouped *grouped = find_grouped(r, launch->group, &count, &communicators);
    if (communicators == 1 || communicators == nodes) {
        for (size_t i = 0; i < count; i++) {
            uint32_t unit =
                i && grouped[i].communicator == grouped[i - 1].communicator ? (uint32_t)r->units - 1 : add_unit(r);
            add_member(r, unit, grouped[i].collective);
        }
        uint32_t first = (uint32_t)r->units - communicators;
        for (size_t k = 0; k < nodes; k++) add_node(r, communicators == 1 ? first : first + (uint32_t)k, launch[k].id);
    }
    free(grouped);
}

static void find_units(struct replaying *r)
{
    const struct graphs *g = &r->process->graphs;
    struct group_launches launches = {0};
    for (size_t i = 0; i < g->nodes; i++) {
        size_t call = nccl_call_at(r->calls, &launches, g->node[i].thread, g->node[i].time, (uint32_t)i);
        if (call != NO_CALL) add_single(r, call, (uint32_t)i);
    }
    group_launches_sort(&launches);
    for (size_t i = 0, next; i < launches.count; i = next) {
        next = group_launches_end(&launches, i);
        add_group(r, &launches.launch[i], next - i);
    }
    free(launches.launch);
}

/* ---- runs ---- */

static uint32_t launch_of(const struct replaying *r, size_t work)
{
    uint64_t correlation = r->process->works.correlation[work];
    return correlation == NO_ID ? MAP_NONE : map_get(&r->calls->span_of, correlation);
}

static int64_t launched_at(const struct replaying *r, size_t work)
{
    uint32_t span = launch_of(r, work);
    return span == MAP_NONE ? r->process->works.start[work] : r->process->spans.start[span];
}

static int by_node_and_time(const void *a, const void *b)
{
    const struct replay *x = a, *y = b;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    if (x->correlation != y->correlation) return x->correlation < y->correlation ? -1 : 1;
    int order = by_number(x->start, y->start);
    return order ? order : by_number(x->work, y->work);
}

static int by_run(const void *a, const void *b)
{
    const struct replay *x = a, *y = b;
    if (x->unit != y->unit) return x->unit < y->unit ? -1 : 1;
    if (x->correlation != y->correlation) return x->correlation < y->correlation ? -1 : 1;
    if (x->again != y->again) return x->again < y->again ? -1 : 1;
    return by_node_and_time(a, b);
}

static int by_unit_and_time(const void *a, const void *b)
{
    const struct replay *x = a, *y = b;
    if (x->unit != y->unit) return x->unit < y->unit ? -1 : 1;
    int order = by_number(x->start, y->start);
    return order ? order : by_number(x->work, y->work);
}

static void find_kernels(struct replaying *r)
{
    struct process *p = r->process;
    for (size_t i = 0; i < p->graphs.works; i++) {
        if (!graph_node_of(p, i) || p->works.event_class[i] != CLASS_KERNEL) continue;
        uint32_t node = graph_captured(&r->finder, i, launched_at(r, i));
        uint32_t unit = node == NO_PLACE ? MAP_NONE : map_get(&r->unit_of, node);
        if (unit == MAP_NONE) continue;
        r->run = mem_grow(r->run, &r->run_capacity, r->runs + 1, sizeof *r->run);
        r->run[r->runs++] = (struct replay){.unit = unit,
                                            .node = node,
                                            .work = (uint32_t)i,
                                            .correlation = p->works.correlation[i],
                                            .start = p->works.start[i],
                                            .end = p->works.end[i]};
    }
    p->collectives.replays.kernels = r->runs;
}

static bool is_of_run(const struct replay *run, const struct replay *kernel)
{
    return kernel->unit == run->unit && kernel->correlation == run->correlation && kernel->again == run->again;
}

/* Makes one entry of all kernels of each run. */
static void join_kernels(struct replaying *r)
{
    size_t kept = 0;
    if (!r->runs) return;
    qsort(r->run, r->runs, sizeof *r->run, by_node_and_time);
    for (size_t i = 1; i < r->runs; i++)
        if (r->run[i].node == r->run[i - 1].node && r->run[i].correlation == r->run[i - 1].correlation)
            r->run[i].again = r->run[i - 1].again + 1;
    qsort(r->run, r->runs, sizeof *r->run, by_run);
    for (size_t i = 0; i < r->runs; i++) {
        struct replay *run = kept ? &r->run[kept - 1] : NULL, kernel = r->run[i];
        if (!run || !is_of_run(run, &kernel)) {
            r->run[kept++] = kernel;
            continue;
        }
        run->end = MAX(run->end, kernel.end);
        if (kernel.start >= run->start) continue;
        run->start = kernel.start;
        run->work = kernel.work;
    }
    r->runs = kept;
    qsort(r->run, r->runs, sizeof *r->run, by_unit_and_time);
}

/* Adds a run of a call to the collectives. */
static void add_run(const struct replaying *r, const struct replay *run, const struct collective *call, uint64_t number)
{
    struct process *p = r->process;
    uint32_t span = launch_of(r, run->work);
    struct collective one = *call; /* adding may move it */
    one.is_captured = false;
    one.replay = number;
    one.start = run->start;
    one.end = run->end;
    one.work = run->work;
    one.thread = span == MAP_NONE ? 0 : p->spans.thread[span];
    one.call_start = span == MAP_NONE ? UNKNOWN_TIME : p->spans.start[span];
    one.call_end = span == MAP_NONE ? UNKNOWN_TIME : p->spans.end[span];
    *collectives_add(&p->collectives) = one;
}

static void add_runs(struct replaying *r)
{
    struct collectives *c = &r->process->collectives;
    size_t limit = c->count + MOST_RUNS * (r->process->works.table.count + c->count);
    uint64_t number = 0;
    for (size_t i = 0; i < r->runs; i++) {
        struct unit *unit = &r->unit[r->run[i].unit];
        number = i && r->run[i - 1].unit == r->run[i].unit ? number + 1 : 1;
        unit->ran = true;
        if (c->count + unit->count > limit) {
            c->replays.left_out += unit->count;
            continue;
        }
        for (size_t k = unit->first; k < unit->first + unit->count; k++)
            add_run(r, &r->run[i], &c->collective[r->member[k]], number);
    }
}

/* ---- runs in graphs that were recorded as a whole ---- */

static void count_run(void *runs_of, uint32_t graph)
{
    uint32_t runs = map_get(runs_of, graph);
    if (runs != MAP_NONE) map_put(runs_of, graph, runs + 1);
}

static void count_untimed(struct replaying *r)
{
    const struct graphs *g = &r->process->graphs;
    struct map runs_of = {0}; /* by graph that has units */
    for (size_t i = 0; g->runs && i < r->units; i++) map_put(&runs_of, r->unit[i].node >> 32, 0);
    for (size_t i = 0; i < g->runs; i++)
        graph_visit(&r->finder, g->run[i].graph, launched_at(r, g->run[i].work), count_run, &runs_of);
    for (size_t i = 0; g->runs && i < r->units; i++) {
        uint32_t runs = map_get(&runs_of, r->unit[i].node >> 32);
        r->process->collectives.replays.untimed += (uint64_t)runs * r->unit[i].count;
        r->unit[i].ran |= runs > 0;
    }
    map_free(&runs_of);
}

/* Removes the captured calls, which stand before the runs. */
static void remove_calls(struct replaying *r)
{
    struct collectives *c = &r->process->collectives;
    size_t kept = 0;
    for (size_t i = 0; i < r->units; i++)
        for (size_t k = r->unit[i].first; r->unit[i].ran && k < r->unit[i].first + r->unit[i].count; k++)
            c->replays.idle--;
    for (size_t i = 0; i < c->count; i++)
        if (!c->collective[i].is_captured) c->collective[kept++] = c->collective[i];
    c->count = kept;
}

void load_replays(const struct nccl_calls *calls)
{
    struct replaying r = {.calls = calls, .process = calls->process};
    struct collectives *c = &calls->process->collectives;
    for (size_t i = 0; i < c->count; i++) c->replays.captured += c->collective[i].is_captured;
    if (!c->replays.captured) return;
    c->replays.idle = c->replays.captured;
    graph_finder_init(&r.finder, r.process);
    find_units(&r);
    find_kernels(&r);
    join_kernels(&r);
    add_runs(&r);
    count_untimed(&r);
    remove_calls(&r);
    graph_finder_free(&r.finder);
    map_free(&r.unit_of);
    map_free(&r.unit_of_call);
    free(r.member);
    free(r.unit);
    free(r.run);
}
