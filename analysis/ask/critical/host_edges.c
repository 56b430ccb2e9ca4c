/* host_edges.c - the edges between the events of one thread, in the order in which a debugger would step through them.
 *
 * With B and C inside of A: start of A, start of B, end of B, start of C, end of C, end of A. Between two of them the
 * thread computes. HTA's call stacks decide what is inside of what (CallStackGraph of HTA 0.5.0): at the end of a row
 * the one that was opened last is closed, whichever it is.
 */
#include <stdlib.h>

#include "ask/critical/events.h"

uint32_t critical_event(struct critical_events *events, struct critical_event event)
{
    if (events->count >= MOST_CRITICAL_EVENTS) mem_lack();
    events->event = mem_grow(events->event, &events->capacity, events->count + 1, sizeof *events->event);
    events->event[events->count] = event;
    return (uint32_t)events->count++;
}

int64_t critical_time(const struct critical_events *events, uint32_t node)
{
    const struct critical_event *event = &events->event[NODE_EVENT(node)];
    return NODE_IS_END(node) ? event->end : event->start;
}

void host_row(struct host_rows *rows, struct host_row row)
{
    if (rows->count >= MOST_CRITICAL_EVENTS) mem_lack();
    rows->row = mem_grow(rows->row, &rows->capacity, rows->count + 1, sizeof *rows->row);
    rows->row[rows->count++] = row;
}

/* ---- the order of starts and ends ---- */

/* A start or an end: twice the index of its row, plus 1 for an end. */
static int by_moment(const void *a, const void *b, void *context)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const struct host_row *row = context, *p = &row[x / 2], *q = &row[y / 2];
    bool x_ends = x % 2, y_ends = y % 2;
    if (p->thread != q->thread) return by_number(p->thread, q->thread);
    if (p == q) return by_number(x_ends, y_ends);
    int64_t at = x_ends ? p->end : p->start, other = y_ends ? q->end : q->start;
    if (at != other) return by_number(at, other);
    bool x_moment = p->start == p->end, y_moment = q->start == q->end;
    if (x_moment || y_moment) { /* a row without length is inside of what begins before it and ends after it */
        int x_rank = x_moment ? 1 : x_ends ? 0 : 2, y_rank = y_moment ? 1 : y_ends ? 0 : 2;
        if (x_rank != y_rank) return by_number(x_rank, y_rank);
        return by_number(p->event, q->event);
    }
    if (x_ends != y_ends) return x_ends ? -1 : 1;
    int64_t longer = by_number(q->end - q->start, p->end - p->start);
    int order = longer ? (int)longer : by_number(p->event, q->event);
    return x_ends ? -order : order;
}

/* ---- the walk ---- */

struct walk {
    struct critical_graph *graph;
    struct critical_events *events;
    struct host_tops *tops;
    uint32_t last; /* the node before */
    uint32_t depth, loading;
};

static void step_to(struct walk *walk, uint32_t node, bool waits)
{
    int64_t weight = critical_time(walk->events, node) - critical_time(walk->events, walk->last);
    critical_edge(walk->graph, (struct critical_edge){.from = walk->last,
                                                      .to = node,
                                                      .weight = waits ? 0 : weight,
                                                      .type = EDGE_OPERATOR,
                                                      .bound = walk->loading ? BOUND_LOADING : BOUND_HOST});
}

static void enter(struct walk *walk, const struct host_row *row)
{
    if (walk->depth++) {
        step_to(walk, NODE_START(row->event), false);
    } else {
        struct host_tops *tops = walk->tops;
        tops->top = mem_grow(tops->top, &tops->capacity, tops->count + 1, sizeof *tops->top);
        tops->top[tops->count++] = (struct host_top){row->thread, row->event};
    }
    walk->last = NODE_START(row->event);
    walk->loading += walk->events->event[row->event].loads;
}

static void leave(struct walk *walk, const struct host_row *row)
{
    walk->events->event[row->event].is_leaf = walk->last == NODE_START(row->event);
    step_to(walk, NODE_END(row->event), walk->events->event[row->event].waits);
    walk->last = NODE_END(row->event);
    walk->depth--;
    walk->loading -= walk->events->event[row->event].loads;
}

void host_edges(struct critical_graph *graph, struct critical_events *events, struct host_rows *rows,
                struct host_tops *tops)
{
    struct walk walk = {.graph = graph, .events = events, .tops = tops};
    uint32_t *moment = mem_zero(2 * rows->count, sizeof *moment), *open = mem_zero(rows->count, sizeof *open);
    size_t opens = 0;
    for (size_t i = 0; i < 2 * rows->count; i++) moment[i] = (uint32_t)i;
    if (rows->count) qsort_r(moment, 2 * rows->count, sizeof *moment, by_moment, rows->row);
    for (size_t i = 0; i < 2 * rows->count; i++) {
        if (moment[i] % 2 == 0) {
            open[opens++] = moment[i] / 2;
            enter(&walk, &rows->row[moment[i] / 2]);
        } else if (opens) {
            leave(&walk, &rows->row[open[--opens]]);
        }
    }
    free(moment);
    free(open);
}
