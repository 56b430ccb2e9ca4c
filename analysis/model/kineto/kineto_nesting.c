/* kineto_nesting.c - cuts events that outlive what they are part of.
 *
 * Python's tracer may see a function return late, when its caller has long returned: later functions would seem to be called
 * by it, though their "Python parent id" says otherwise. Steps follow one another, and rounding lets them overlap.
 */
#include "model/kineto/kineto_nesting.h"

#include <stdlib.h>

#include "model/ranges/step_ranges.h"

/* ---- Python functions ---- */

static int by_python_id(const void *a, const void *b)
{
    const struct python_call *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Ids count up, so that a caller comes before what it calls. */
static void cut_python_calls(struct process *p)
{
    struct python_call *call = p->python_call;
    struct map span_of = {0};
    uint64_t cut = 0;
    if (p->python_calls) qsort(call, p->python_calls, sizeof *call, by_python_id);
    for (size_t i = 0; i < p->python_calls; i++) {
        uint32_t parent = call[i].parent == NO_ID ? MAP_NONE : map_get(&span_of, call[i].parent);
        map_put(&span_of, call[i].id, call[i].span);
        if (parent == MAP_NONE || p->spans.thread[parent] != p->spans.thread[call[i].span]) continue;
        int64_t *end = &p->spans.end[call[i].span], last = p->spans.end[parent];
        if (*end <= last || p->spans.start[call[i].span] > last) continue;
        *end = last;
        cut++;
    }
    p->health.doubt[DOUBT_LATE_RETURNS] = (struct doubt){cut, p->python_calls, 0, cut * 20 < p->python_calls};
    map_free(&span_of);
    free(call);
    p->python_call = NULL;
    p->python_calls = 0;
}

/* ---- steps ---- */

static void cut_steps(struct process *p)
{
    struct step_list steps;
    struct ranges *r = &p->ranges;
    step_list_init(&steps, p);
    for (size_t i = 1; i < steps.count; i++) {
        size_t before = steps.range[i - 1], at = steps.range[i];
        bool follows = r->thread[before] == r->thread[at] && r->start[before] < r->start[at];
        if (follows && r->end[before] > r->start[at]) r->end[before] = r->start[at];
    }
    step_list_free(&steps);
}

void kineto_nest(struct process *process, bool is_absolute)
{
    enum { MICROSECOND = 1000, HALF = 500 }; /* a double has steps of a quarter of a microsecond at today's time */
    bool is_whole = !process->has_float_ts && !process->has_float_dur;
    process->rounding_ns = is_whole ? MICROSECOND : is_absolute ? HALF : 0;
    cut_python_calls(process);
    cut_steps(process);
}
