/* attribute.c - finds the stage, the launch and the operator of device work.
 *
 * Each look-up maps a point (a thread and a moment) to the innermost stretch (a stage or an operator) open there.
 * Points and stretches are sorted by thread and time, and one sweep over both answers all points. A point without a
 * stage on its own thread is looked up again elsewhere: at its forward operator, or (stages/stage_at.h) on the only thread
 * with an open stage.
 */
#include "ask/attribute.h"

#include <stdlib.h>

#include "ask/stages/order.h"
#include "base/runs.h"
#include "base/sets/finger_search.h"
#include "model/graphs.h"
#include "model/replays/captured_ops.h"

const char *const via_names[NR_VIAS] = {
    [VIA_NONE] = "none", [VIA_THREAD] = "thread", [VIA_FORWARD] = "forward", [VIA_ONLY] = "only"};

/* ---- the innermost stretch at a point ---- */

struct point {
    int64_t time;
    uint32_t thread;
    uint32_t of; /* the caller's number for this point */
};

static int by_thread_and_time(const void *a, const void *b, void *unused)
{
    const struct point *x = a, *y = b;
    (void)unused;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    return (x->time > y->time) - (x->time < y->time);
}

struct points {
    struct point *point;
    size_t count, capacity;
};

static void points_add(struct points *points, uint32_t thread, int64_t time, uint32_t of)
{
    points->point = mem_grow(points->point, &points->capacity, points->count + 1, sizeof *points->point);
    points->point[points->count++] = (struct point){time, thread, of};
}

static void points_sort(struct points *points)
{
    sort_runs(points->point, points->count, sizeof *points->point, by_thread_and_time, NULL);
}

/* Stretches in sweep order: by thread, by start, the outer one first. */
struct stretches {
    const int64_t *start, *end;
    const uint32_t *thread;
    const size_t *order;
    size_t count;
};

/* Calls answer(context, the point's number, place) for each point that lies in a stretch. Sorts the points. */
static void sweep(const struct stretches *s, struct points *points, void (*answer)(void *, uint32_t, uint32_t),
                  void *context)
{
    uint32_t *open = mem_zero(s->count, sizeof *open);
    size_t depth = 0, next = 0;
    points_sort(points);
    for (size_t i = 0; i < points->count; i++) {
        const struct point *p = &points->point[i];
        if (i && p->thread != p[-1].thread) depth = 0;
        for (; next < s->count && s->thread[s->order[next]] < p->thread; next++) {
        }
        for (; next < s->count; next++) {
            size_t at = s->order[next];
            if (s->thread[at] != p->thread || s->start[at] > p->time) break;
            open[depth++] = (uint32_t)at;
        }
        while (depth && s->end[open[depth - 1]] <= p->time) depth--;
        if (depth) answer(context, p->of, open[depth - 1]);
    }
    free(open);
}

/* ---- operators ---- */

static int outer_span_first(const void *a, const void *b, void *context)
{
    const struct spans *s = context;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    if (s->thread[x] != s->thread[y]) return s->thread[x] < s->thread[y] ? -1 : 1;
    if (s->start[x] != s->start[y]) return s->start[x] < s->start[y] ? -1 : 1;
    if (s->end[x] != s->end[y]) return s->end[x] > s->end[y] ? -1 : 1;
    return (x > y) - (x < y);
}

/* Sorts the operators on first use: many questions never look at them. */
static void sort_operators(const struct process *process, struct stretches *operators)
{
    const struct spans *s = &process->spans;
    if (operators->order) return;
    size_t *order = mem_zero(s->table.count, sizeof *order);
    *operators = (struct stretches){.start = s->start, .end = s->end, .thread = s->thread, .order = order};
    for (size_t i = 0; i < s->table.count; i++)
        if (s->event_class[i] == CLASS_OPERATOR) order[operators->count++] = i;
    sort_runs(order, operators->count, sizeof *order, outer_span_first, (void *)s);
}

/* Work whose own external id names its operator keeps that one: a child may begin at the same moment. */
static void set_operator(void *context, uint32_t work, uint32_t place)
{
    struct attribution *a = context;
    if (a->op[work] == NO_PLACE) a->op[work] = place;
}

/* ---- launches ---- */

/* Calls by correlation id; those with one id by start. Ids count up, so few are out of order: a table of hashes took
 * four times as long, and twice the memory. */
struct calls_by_id {
    struct call {
        uint64_t id;
        uint32_t span;
    } * call;
    size_t count, capacity;
    size_t found; /* the place looked up last */
};

static int by_id_and_start(const void *a, const void *b, void *context)
{
    const struct spans *s = context;
    const struct call *x = a, *y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    if (s->start[x->span] != s->start[y->span]) return s->start[x->span] < s->start[y->span] ? -1 : 1;
    return (x->span > y->span) - (x->span < y->span);
}

static void sort_calls(struct attribution *a, struct calls_by_id *calls)
{
    const struct spans *s = &a->process->spans;
    for (size_t i = 0; i < s->table.count; i++) {
        if (s->event_class[i] != CLASS_API || s->id[i] == NO_ID) continue;
        calls->call = mem_grow(calls->call, &calls->capacity, calls->count + 1, sizeof *calls->call);
        calls->call[calls->count++] = (struct call){s->id[i], (uint32_t)i};
    }
    sort_runs(calls->call, calls->count, sizeof *calls->call, by_id_and_start, (void *)s);
    for (size_t i = 1; i < calls->count; i++) {
        bool again = calls->call[i].id == calls->call[i - 1].id;
        a->doubled += again && (i == 1 || calls->call[i - 2].id != calls->call[i].id);
    }
}

struct launch_search {
    const struct calls_by_id *calls;
    const struct spans *spans;
    uint64_t id;
    int64_t start;
};

static bool is_behind(const void *context, size_t at)
{
    const struct launch_search *search = context;
    const struct call *call = &search->calls->call[at];
    return call->id > search->id || (call->id == search->id && search->spans->start[call->span] > search->start);
}

/* Returns the last call with this id that began before the work; the first such call if all began later. */
static uint32_t launch_of(struct calls_by_id *calls, const struct spans *s, uint64_t id, int64_t start)
{
    const struct launch_search search = {calls, s, id, start};
    size_t at = calls->found = place_near(calls->found, calls->count, is_behind, &search);
    if (at && calls->call[at - 1].id == id) return calls->call[at - 1].span;
    return at < calls->count && calls->call[at].id == id ? calls->call[at].span : NO_PLACE;
}

static void launched_at(struct attribution *a, struct points *points, size_t work, uint32_t span)
{
    const struct spans *s = &a->process->spans;
    a->work[work].time = s->start[span];
    points_add(points, s->thread[span], s->start[span], (uint32_t)work);
}

static struct map operators_by_id(const struct spans *s)
{
    struct map operators = {0};
    for (size_t i = 0; i < s->table.count; i++)
        if (s->event_class[i] == CLASS_OPERATOR && s->id[i] != NO_ID) map_put(&operators, s->id[i], (uint32_t)i);
    return operators;
}

/* Times are rounded, so a call that begins inside an operator and ends after it may be a call of that operator's parent.
 * The external id of the work tells which of the two launched it. */
static void settle_overruns(struct attribution *a)
{
    const struct works *w = &a->process->works;
    const struct spans *s = &a->process->spans;
    struct map operators = {0};
    bool has_map = false;
    for (size_t i = 0; i < w->table.count; i++) {
        uint32_t launch = a->launch[i], op = a->op[i];
        if (launch == NO_PLACE || op == NO_PLACE || s->end[op] >= s->end[launch] || w->external[i] == NO_ID) continue;
        if (!has_map) operators = operators_by_id(s);
        has_map = true;
        uint32_t named = map_get(&operators, w->external[i]);
        if (named == MAP_NONE || s->thread[named] != s->thread[launch]) continue;
        if (s->start[named] <= s->start[launch] && s->end[named] >= s->start[launch]) a->op[i] = named;
    }
    map_free(&operators);
}

/* Work without a call of its correlation id was launched by the operator with its external id; if there is none, by the
 * call that has this id and no correlation id. Such work is rare. */
static void find_operators(struct attribution *a, struct points *points)
{
    const struct works *w = &a->process->works;
    const struct spans *s = &a->process->spans;
    struct map operators = operators_by_id(s);
    for (size_t i = 0; i < w->table.count; i++) {
        if (a->launch[i] == NO_PLACE) {
            a->op[i] = w->external[i] == NO_ID ? NO_PLACE : map_get(&operators, w->external[i]);
            if (a->op[i] == NO_PLACE && w->external[i] != NO_ID)
                a->launch[i] = map_get(&a->process->uncorrelated, w->external[i]);
            if (a->launch[i] != NO_PLACE) launched_at(a, points, i, a->launch[i]);
            else if (a->op[i] != NO_PLACE) launched_at(a, points, i, a->op[i]);
            else if (IS_WORK(w->event_class[i])) a->unlinked++;
        }
    }
    map_free(&operators);
}

/* Finds the launch of each work: its call, or the operator with its external id. Returns the points of the launches. */
static struct points find_launches(struct attribution *a)
{
    const struct works *w = &a->process->works;
    struct calls_by_id calls = {0};
    struct points points = {0};
    bool all = true;
    sort_calls(a, &calls);
    for (size_t i = 0; i < w->table.count; i++) {
        if (w->correlation[i] != NO_ID)
            a->launch[i] = launch_of(&calls, &a->process->spans, w->correlation[i], w->start[i]);
        if (a->launch[i] != NO_PLACE) launched_at(a, &points, i, a->launch[i]);
        else all = false;
    }
    free(calls.call);
    if (!all) find_operators(a, &points);
    return points;
}

/* ---- rule 1: the stage of the launching thread ---- */

struct asking {
    struct belonging *belonging;
    enum via via;
};

static void set_stage(void *context, uint32_t of, uint32_t place)
{
    struct asking *asking = context;
    asking->belonging[of].stage = place;
    asking->belonging[of].via = (uint8_t)asking->via;
}

/* Keeps in `points` only those still without a stage. */
static void keep_unanswered(struct points *points, const struct belonging *belonging)
{
    size_t kept = 0;
    for (size_t i = 0; i < points->count; i++)
        if (belonging[points->point[i].of].stage == NO_PLACE) points->point[kept++] = points->point[i];
    points->count = kept;
}

/* ---- rule 2: the stage of the forward operator ---- */

static bool is_outermost(const struct stretches *operators, size_t i, int64_t *until)
{
    size_t at = operators->order[i];
    bool first = i == 0 || operators->thread[operators->order[i - 1]] != operators->thread[at];
    if (!first && operators->start[at] < *until) return false;
    *until = operators->end[at];
    return true;
}

struct backward {
    struct points ends;    /* ends of arrows, in backward operators; .of: an index into process->forwards */
    struct map forward_of; /* the arrow's beginning, by arrow id */
    size_t *outermost;     /* the outermost operators */
    size_t outermosts;
};

static void backward_init(struct backward *b, const struct process *process, const struct stretches *operators)
{
    const struct forwards *f = &process->forwards;
    int64_t until = 0;
    for (size_t i = 0; i < f->table.count; i++)
        if (f->is_forward[i]) map_put(&b->forward_of, f->id[i], (uint32_t)i);
        else points_add(&b->ends, f->thread[i], f->time[i], (uint32_t)i);
    points_sort(&b->ends);
    b->outermost = mem_zero(operators->count, sizeof *b->outermost);
    for (size_t i = 0; i < operators->count; i++)
        if (is_outermost(operators, i, &until)) b->outermost[b->outermosts++] = operators->order[i];
}

static void backward_free(struct backward *b)
{
    free(b->ends.point);
    map_free(&b->forward_of);
    free(b->outermost);
}

/* Returns the first arrow of a thread that ends at `time` or later. */
static size_t arrow_from(const struct backward *b, uint32_t thread, int64_t time)
{
    struct point key = {time, thread, 0};
    size_t low = 0, high = b->ends.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (by_thread_and_time(&b->ends.point[middle], &key, NULL) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Returns the arrow that ends between `start` and `end` on a thread: the last one up to `time`, else the first. */
static uint32_t arrow_in(const struct backward *b, uint32_t thread, int64_t start, int64_t end, int64_t time)
{
    size_t first = arrow_from(b, thread, start), after = arrow_from(b, thread, MIN(add_ns(time, 1), end));
    size_t at = after > first ? after - 1 : first;
    const struct point *p = &b->ends.point[at];
    return at < b->ends.count && p->thread == thread && p->time < end ? p->of : NO_PLACE;
}

struct forward_search {
    const struct process *process;
    const struct backward *backward;
    struct belonging *belonging;
    struct points found; /* points in forward operators */
};

/* Answer of a sweep over outermost operators: adds the point of the operator's forward operator to search->found. */
static void ask_forward(void *context, uint32_t of, uint32_t op)
{
    struct forward_search *search = context;
    const struct spans *s = &search->process->spans;
    const struct forwards *f = &search->process->forwards;
    uint32_t arrow = arrow_in(search->backward, s->thread[op], s->start[op], s->end[op], search->belonging[of].time);
    uint32_t forward = arrow == NO_PLACE ? MAP_NONE : map_get(&search->backward->forward_of, f->id[arrow]);
    if (forward != MAP_NONE) points_add(&search->found, f->thread[forward], f->time[forward], of);
}

static void ask_forwards(const struct process *process, const struct stretches *stages, struct stretches *operators,
                         struct points *points, struct belonging *belonging)
{
    struct backward backward = {0};
    struct forward_search search = {process, &backward, belonging, {0}};
    struct asking asking = {belonging, VIA_FORWARD};
    if (!points->count || !process->forwards.table.count) return;
    sort_operators(process, operators);
    backward_init(&backward, process, operators);
    struct stretches outermost = *operators;
    outermost.order = backward.outermost;
    outermost.count = backward.outermosts;
    sweep(&outermost, points, ask_forward, &search);
    sweep(stages, &search.found, set_stage, &asking);
    for (size_t i = 0; i < search.found.count; i++) {
        const struct point *p = &search.found.point[i];
        if (belonging[p->of].stage != NO_PLACE) belonging[p->of].time = p->time;
    }
    free(search.found.point);
    backward_free(&backward);
    keep_unanswered(points, belonging);
}

/* ---- rule 3: the one thread that has a stage open ---- */

static void ask_only(const struct attribution *a, const struct points *points, struct belonging *belonging)
{
    struct asking asking = {belonging, VIA_ONLY};
    for (size_t i = 0; i < points->count; i++) {
        uint32_t stage = stage_at(&a->finder, NO_THREAD, points->point[i].time);
        if (stage != NO_PLACE) set_stage(&asking, points->point[i].of, stage);
    }
}

/* ---- the rules in order ---- */

static void find_stages(const struct attribution *a, const struct stretches *stages, struct stretches *operators,
                        struct points *points, struct belonging *belonging)
{
    struct asking asking = {belonging, VIA_THREAD};
    if (!stages->count) return;
    sweep(stages, points, set_stage, &asking);
    keep_unanswered(points, belonging);
    ask_forwards(a->process, stages, operators, points, belonging);
    ask_only(a, points, belonging);
}

static struct belonging *nowhere(size_t count)
{
    struct belonging *belonging = mem_zero(count, sizeof *belonging);
    for (size_t i = 0; i < count; i++) belonging[i].stage = NO_PLACE;
    return belonging;
}

/* Columns of a table whose rows each have a thread and a moment. */
struct moments {
    size_t count;
    const uint32_t *thread;
    const int64_t *time;
};

/* Finds the stage of each row. `points` is a reused buffer. */
static struct belonging *find_all(const struct attribution *a, const struct stretches *stages,
                                  struct stretches *operators, struct points *points, struct moments of)
{
    struct belonging *belonging = nowhere(of.count);
    points->count = 0;
    for (size_t i = 0; i < of.count; i++) {
        belonging[i].time = of.time[i];
        points_add(points, of.thread[i], of.time[i], (uint32_t)i);
    }
    find_stages(a, stages, operators, points, belonging);
    return belonging;
}

/* ---- graph replays: the node each replayed work was captured as ---- */

static void set_node_operator(void *context, uint32_t node, uint32_t place)
{
    struct attribution *a = context;
    a->node_op[node] = place;
}

static void find_captures(struct attribution *a, const struct stretches *stages, struct stretches *operators,
                          struct points *points)
{
    const struct graphs *g = &a->process->graphs;
    struct graph_finder finder;
    size_t works = a->process->works.table.count;
    a->captured = no_places(works);
    a->node = nowhere(g->nodes);
    a->node_op = no_places(g->nodes);
    sort_operators(a->process, operators);
    for (int stage = 0; stage < 2; stage++) {
        points->count = 0;
        for (size_t i = 0; i < g->nodes; i++) {
            if (g->node[i].thread == NO_THREAD) continue;
            a->node[i].time = g->node[i].time;
            points_add(points, g->node[i].thread, g->node[i].time, (uint32_t)i);
        }
        if (stage) find_stages(a, stages, operators, points, a->node);
        else sweep(operators, points, set_node_operator, a);
    }
    graph_finder_init(&finder, a->process);
    for (size_t i = 0; i < works; i++) {
        bool is_replayed = g->matched ? g->matched[i] != (uint32_t)NOT_REPLAYED : graph_node_of(a->process, i) != 0;
        if (!is_replayed) continue;
        if (!g->matched) a->captured[i] = graph_captured(&finder, i, a->work[i].time);
        else if (g->matched[i] != (uint32_t)NOT_MATCHED) a->captured[i] = g->matched[i];
        a->replayed++;
        if (a->captured[i] == NO_PLACE) a->uncaptured++;
        else a->by_order += g->node[a->captured[i]].by_order;
    }
    graph_finder_free(&finder);
}

bool captured_operator(const struct attribution *a, size_t work, uint32_t *name)
{
    uint32_t node = a->captured ? a->captured[work] : NO_PLACE;
    if (node == NO_PLACE) return false;
    uint32_t op = a->node_op[node];
    *name = op == NO_PLACE ? a->process->graphs.node[node].op : a->process->spans.name[op];
    return true;
}

uint64_t captured_call(const struct attribution *a, size_t work)
{
    const struct graph_node *node = &a->process->graphs.node[a->captured[work]];
    uint32_t op = a->node_op[a->captured[work]];
    if (op == NO_PLACE && node->op == NAME_NONE) return NO_ID;
    return (uint64_t)(a->launch[work] + 1u) << 32 | (op == NO_PLACE ? node->call | 0x80000000u : op);
}

const struct op_detail *captured_detail(const struct attribution *a, size_t work)
{
    static const struct op_detail unknown;
    uint32_t node = a->captured ? a->captured[work] : NO_PLACE;
    if (node == NO_PLACE) return &unknown;
    const struct graphs *g = &a->process->graphs;
    if (a->node_op[node] != NO_PLACE) return op_details_of(&a->process->spans.details, a->node_op[node]);
    bool is_matched = g->matched && g->node[node].call != NO_PLACE;
    return is_matched ? &g->calls->op[g->node[node].call].detail : &unknown;
}

struct needs work_needs(const struct options *options)
{
    (void)options;
    return (struct needs){.device = true, .ranges = true, .launches = true, .launchers = true};
}

void attribute(struct attribution *a, const struct process *process, struct needs needs)
{
    const struct ranges *r = &process->ranges;
    *a = (struct attribution){.process = process};
    a->order = stages_sorted(process, &a->stages);
    struct stretches stages = {r->start, r->end, r->thread, a->order, a->stages};
    a->work = nowhere(process->works.table.count);
    a->launch = no_places(process->works.table.count);
    a->op = no_places(process->works.table.count);
    stage_paths_init(&a->paths, process, a->order, a->stages, NULL, NULL);
    stage_finder_init(&a->finder, a->order, a->stages, &a->paths);
    struct points points = find_launches(a);
    struct stretches operators = {0};
    if (needs.operators_of_work) {
        sort_operators(process, &operators);
        sweep(&operators, &points, set_operator, a);
        settle_overruns(a);
    }
    find_stages(a, &stages, &operators, &points, a->work);
    if (process->graphs.nodes || process->graphs.matched) find_captures(a, &stages, &operators, &points);
    if (needs.stages_of_spans) {
        const struct spans *s = &process->spans;
        const struct blocks *b = &process->blocks;
        a->span = find_all(a, &stages, &operators, &points, (struct moments){s->table.count, s->thread, s->start});
        a->block = find_all(a, &stages, &operators, &points, (struct moments){b->table.count, b->thread, b->time});
    }
    free(points.point);
    free((void *)operators.order);
}

struct stage_paths chosen_paths(const struct attribution *a, const uint32_t *of_name, uint32_t target)
{
    const struct ranges *r = &a->process->ranges;
    bool *left_out = mem_zero(r->table.count, sizeof *left_out);
    struct stage_paths paths;
    for (size_t i = 0; i < r->table.count; i++) left_out[i] = of_name[r->name[i]] != target;
    stage_paths_init(&paths, a->process, a->order, a->stages, a->paths.outer, left_out);
    return paths;
}

void attribution_free(struct attribution *a)
{
    free(a->work);
    free(a->span);
    free(a->block);
    free(a->launch);
    free(a->op);
    free(a->captured);
    free(a->node);
    free(a->node_op);
    free(a->order);
    stage_paths_free(&a->paths);
    stage_finder_free(&a->finder);
    *a = (struct attribution){0};
}
