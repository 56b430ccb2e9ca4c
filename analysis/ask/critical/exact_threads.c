/* exact_threads.c - joins the outermost events of the threads of a process.
 *
 * One thread leads: the main thread if it has events, else the one with the most outermost events. The time between two
 * of its outermost events is the host's, be it Python or the program's own code. Outermost events of another thread
 * that fall into such a time count as called from there, as those of torch's autograd thread are. The leading thread
 * waits for them, and the time between them is the host's too. Elsewhere a thread without the lead is idle between its
 * events. Time in which such a thread waits for the device is taken off the leading thread's own time.
 */
#include <stdlib.h>

#include "ask/critical/exact_parts.h"

/* The outermost events of one thread, as a part of `tops`. */
struct part {
    size_t first, count;
};

struct joining {
    struct exact *x;
    const struct critical_event *event;
    struct part lead;
    struct intervals waiting; /* merged: times in which other threads wait for the device, or between chosen steps */
};

static const struct critical_event *event_of(const struct joining *j, size_t top)
{
    return &j->event[j->x->tops.top[top].event];
}

static struct part part_at(const struct host_tops *tops, size_t first)
{
    struct part part = {first, 0};
    while (first + part.count < tops->count && tops->top[first + part.count].thread == tops->top[first].thread)
        part.count++;
    return part;
}

static bool is_main(const struct process *p, uint32_t serial)
{
    const struct thread *thread = find_thread(p, serial);
    int64_t pid = thread ? (thread->pid >= 0 ? thread->pid : p->pid) : -1;
    return pid >= 0 && thread->tid == (uint64_t)pid;
}

static struct part leading(const struct exact *x)
{
    struct part best = {0, 0};
    for (size_t first = 0; first < x->tops.count;) {
        struct part part = part_at(&x->tops, first);
        if (is_main(x->process, x->tops.top[first].thread)) return part;
        if (part.count > best.count) best = part;
        first += part.count;
    }
    return best;
}

static void add_host_edge(struct joining *j, size_t from, size_t to, int64_t weight, enum critical_type type)
{
    const struct host_top *top = j->x->tops.top;
    weight = type == EDGE_DEPENDENCY ? 0 : MAX(weight, 0);
    critical_edge(&j->x->path->graph,
                  (struct critical_edge){NODE_END(top[from].event), NODE_START(top[to].event), weight, (uint8_t)type,
                                         (uint8_t)(type == EDGE_DEPENDENCY ? BOUND_NONE : BOUND_HOST)});
}

/* Returns the time of the waits in an interval; intervals are asked for in order, and `*from` goes along. */
static int64_t waiting_in(const struct intervals *waiting, size_t *from, int64_t start, int64_t end)
{
    int64_t sum = 0;
    while (*from < waiting->count && waiting->interval[*from].end <= start) (*from)++;
    for (size_t i = *from; i < waiting->count && waiting->interval[i].start < end; i++)
        sum += MIN(end, waiting->interval[i].end) - MAX(start, waiting->interval[i].start);
    return sum;
}

static void join_leading(struct joining *j)
{
    size_t from = 0;
    for (size_t i = j->lead.first; i + 1 < j->lead.first + j->lead.count; i++) {
        int64_t start = event_of(j, i)->end, end = event_of(j, i + 1)->start;
        add_host_edge(j, i, i + 1, end - start - waiting_in(&j->waiting, &from, start, end), EDGE_OPERATOR);
    }
}

/* Returns how many of the leading thread's outermost events end before an event begins, if the next of them begins
 * after it ends; else SIZE_MAX. */
static size_t gap_of(const struct joining *j, const struct critical_event *event)
{
    size_t low = 0, high = j->lead.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (event_of(j, j->lead.first + middle)->end <= event->start) low = middle + 1;
        else high = middle;
    }
    return low == j->lead.count || event_of(j, j->lead.first + low)->start >= event->end ? low : SIZE_MAX;
}

static void join_other(struct joining *j, struct part part)
{
    size_t before = SIZE_MAX, gap = gap_of(j, event_of(j, part.first));
    for (size_t i = part.first; i < part.first + part.count; i++) {
        size_t next = i + 1 < part.first + part.count ? gap_of(j, event_of(j, i + 1)) : SIZE_MAX;
        int64_t start = event_of(j, i)->start, end = event_of(j, i)->end;
        bool chained = i > part.first && before == gap && gap != SIZE_MAX;
        if (i > part.first)
            add_host_edge(j, i - 1, i, start - event_of(j, i - 1)->end, chained ? EDGE_OPERATOR : EDGE_DEPENDENCY);
        if (gap != SIZE_MAX && gap > 0 && !chained) {
            size_t lead = j->lead.first + gap - 1;
            add_host_edge(j, lead, i, start - event_of(j, lead)->end, EDGE_OPERATOR);
        }
        if (gap != SIZE_MAX && gap < j->lead.count && next != gap) {
            size_t lead = j->lead.first + gap;
            add_host_edge(j, i, lead, event_of(j, lead)->start - end, EDGE_OPERATOR);
        }
        before = gap;
        gap = next;
    }
}

static void leave_out_between(struct joining *j, const struct intervals *chosen)
{
    for (size_t i = 0; i + 1 < chosen->count; i++)
        intervals_add(&j->waiting, chosen->interval[i].end, chosen->interval[i + 1].start);
}

static void find_waiting(struct joining *j)
{
    uint32_t lead = j->x->tops.top[j->lead.first].thread;
    for (size_t i = 0; i < j->x->rows.count; i++) {
        const struct host_row *row = &j->x->rows.row[i];
        if (row->thread != lead && j->event[row->event].waits) intervals_add(&j->waiting, row->start, row->end);
    }
    leave_out_between(j, &j->x->choice->steps);
    leave_out_between(j, &j->x->choice->cycles);
    intervals_merge(&j->waiting);
}

void exact_threads(struct exact *x)
{
    struct joining j = {.x = x, .event = x->path->events.event};
    if (!x->tops.count) return;
    j.lead = leading(x);
    find_waiting(&j);
    join_leading(&j);
    for (size_t first = 0; first < x->tops.count;) {
        struct part part = part_at(&x->tops, first);
        if (first != j.lead.first) join_other(&j, part);
        first += part.count;
    }
    intervals_free(&j.waiting);
}
