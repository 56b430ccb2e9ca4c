/* exact_works.c - the edges that lead to device work, and from it to the calls that wait for it.
 *
 * A piece of work begins after its launch, after the work before it in its stream, after the work before it in its own
 * graph launch, and after the work that an event makes it wait for. The last of these to end is what held it up. If
 * that is the launch, the time from there is launch overhead (gpu_kernel_launch_overhead); if it is other work, the
 * time from there is the device's (gpu_kernel_kernel_overhead). HTA compares with the start of the call, and only where
 * the queue was empty.
 */
#include <stdlib.h>

#include "ask/critical/exact_parts.h"
#include "ask/work_kinds.h"

/* The clock of a device is converted by lines between readings. A reading that a busy machine disturbs makes a line too
 * steep by up to this part, and a start that is converted then lies before the end of the work that it waited for. */
enum { ROUNDING = 1 /* ns */, STEEPNESS = 1024 /* one in */ };

/* Returns the first moment at which work that waits for this one may begin by the recorded times. */
static int64_t over(const struct works *w, uint32_t work)
{
    return w->end[work] - (w->end[work] - w->start[work]) / STEEPNESS - ROUNDING;
}

/* Works in groups, by start. */
struct grouped {
    int64_t start, end, over;
    uint32_t group, work;
};

static int works_by_start(const void *a, const void *b)
{
    const struct grouped *x = a, *y = b;
    return x->group != y->group   ? by_number(x->group, y->group)
           : x->start != y->start ? by_number(x->start, y->start)
                                  : by_number(x->work, y->work);
}

static int by_end(const void *a, const void *b, void *context)
{
    const struct grouped *list = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return list[x].end != list[y].end ? by_number(list[x].end, list[y].end) : by_number(x, y);
}

/* Sets the work of a group that ended last before each of its works began. */
static void find_in_group(struct grouped *list, size_t count, uint32_t *before)
{
    uint32_t *ended = mem_zero(count, sizeof *ended), last = NO_PLACE;
    size_t next = 0;
    for (size_t i = 0; i < count; i++) ended[i] = (uint32_t)i;
    qsort_r(ended, count, sizeof *ended, by_end, list);
    for (size_t i = 0; i < count; i++) {
        for (; next < count && ended[next] < i && list[ended[next]].over <= list[i].start; next++) last = ended[next];
        before[list[i].work] = last == NO_PLACE ? NO_PLACE : list[last].work;
    }
    free(ended);
}

static void find_groups(struct grouped *list, size_t count, uint32_t *before)
{
    if (count) qsort(list, count, sizeof *list, works_by_start);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && list[end].group == list[first].group;) end++;
        find_in_group(&list[first], end - first, before);
    }
}

/* Returns, by work, the one before it in its stream or, with `launches`, in its launch. */
static uint32_t *find_before(const struct exact *x, bool launches)
{
    const struct works *w = &x->process->works;
    uint32_t *before = no_places(w->table.count);
    struct grouped *list = mem_zero(w->table.count, sizeof *list);
    size_t count = 0;
    for (size_t i = 0; i < w->table.count; i++) {
        uint32_t group = launches ? x->attribution->launch[i] : w->lane[i];
        if (x->event_of_work[i] != NO_PLACE && group != NO_PLACE)
            list[count++] = (struct grouped){w->start[i], w->end[i], over(w, (uint32_t)i), group, (uint32_t)i};
    }
    find_groups(list, count, before);
    free(list);
    return before;
}

static void edge(struct exact *x, uint32_t from, uint32_t to, enum critical_type type, enum critical_bound bound)
{
    int64_t weight = critical_time(&x->path->events, to) - critical_time(&x->path->events, from);
    critical_edge(&x->path->graph, (struct critical_edge){from, to, MAX(weight, 0), (uint8_t)type, (uint8_t)bound});
}

static enum critical_bound bound_of(const struct exact *x, struct work_kinds *kinds, uint32_t work)
{
    const struct works *w = &x->process->works;
    enum event_class event_class = w->event_class[work];
    if (event_class != CLASS_KERNEL) return BOUND_COPY;
    if (map_get(&x->process->collectives.of_work, work) != MAP_NONE) return BOUND_COMMUNICATION;
    return work_kind_of(kinds, x->process, work) == WORK_COMMUNICATION ? BOUND_COMMUNICATION : BOUND_COMPUTE;
}

/* Returns the one of two works that ended last before `start`; either may be NO_PLACE. */
static uint32_t later(const struct exact *x, uint32_t a, uint32_t b, int64_t start)
{
    const struct works *w = &x->process->works;
    if (b == NO_PLACE || x->event_of_work[b] == NO_PLACE || over(w, b) > start) return a;
    return a == NO_PLACE || w->end[b] > w->end[a] ? b : a;
}

/* Returns when a call had made its launch: at its end, or at its start if it lasted longer than until the work began. */
static int64_t made_by(const struct critical_event *call, int64_t start)
{
    return call->end <= start ? call->end : call->start;
}

static void take_work(struct exact *x, uint32_t work, uint32_t before, uint32_t waited)
{
    const struct works *w = &x->process->works;
    uint32_t event = x->event_of_work[work], span = x->attribution->launch[work];
    uint32_t call = span == NO_PLACE ? NO_PLACE : x->event_of_span[span];
    uint32_t last = later(x, before, waited, w->start[work]);
    int64_t returned = call == NO_PLACE ? INT64_MIN : made_by(&x->path->events.event[call], w->start[work]);
    bool in_launch = last != NO_PLACE && span != NO_PLACE && x->attribution->launch[last] == span;
    if (call != NO_PLACE && (last == NO_PLACE || (w->end[last] < returned && !in_launch)))
        edge(x, NODE_START(call), NODE_START(event), EDGE_LAUNCH, BOUND_LAUNCH);
    else if (last != NO_PLACE)
        edge(x, NODE_END(x->event_of_work[last]), NODE_START(event), last == before ? EDGE_GAP : EDGE_SYNC, BOUND_GAP);
}

static int by_after(const void *a, const void *b)
{
    const struct critical_after *x = a, *y = b;
    return x->after != y->after ? by_number(x->after, y->after) : by_number(x->work, y->work);
}

static void take_works(struct exact *x, const uint32_t *in_lane, const uint32_t *in_launch)
{
    const struct works *w = &x->process->works;
    const struct critical_afters *afters = &x->works;
    struct work_kinds kinds;
    size_t next = 0;
    work_kinds_init(&kinds, &exact_kinds, x->names);
    for (uint32_t i = 0; i < w->table.count; i++) {
        uint32_t waited = NO_PLACE, event = x->event_of_work[i];
        for (; next < afters->count && afters->one[next].after == i; next++)
            waited = later(x, waited, afters->one[next].work, w->start[i]);
        if (event == NO_PLACE) continue;
        take_work(x, i, later(x, in_lane[i], in_launch[i], w->start[i]), waited);
        edge(x, NODE_START(event), NODE_END(event), EDGE_OPERATOR, bound_of(x, &kinds, i));
    }
    work_kinds_free(&kinds);
}

void exact_works(struct exact *x)
{
    uint32_t *in_lane = find_before(x, false), *in_launch = find_before(x, true);
    if (x->works.count) qsort(x->works.one, x->works.count, sizeof *x->works.one, by_after);
    take_works(x, in_lane, in_launch);
    for (size_t i = 0; i < x->hosts.count; i++)
        edge(x, NODE_END(x->event_of_work[x->hosts.one[i].work]), NODE_END(x->hosts.one[i].after), EDGE_SYNC,
             BOUND_HOST);
    free(in_lane);
    free(in_launch);
}
