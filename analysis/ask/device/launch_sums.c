/* launch_sums.c - adds up the calls that start or await work by rank, stage and function.
 *
 * A dispatch is a call into an operator library other than torch: a builtin of a module in TFI_NATIVE, or an operator
 * whose namespace is none of torch's own (ask/ops/dispatches.c). Dispatches have rows like calls, and their stage is
 * found as for all operators. Without operator records their number is unknown. They have no device: --device and
 * --stream leave them out.
 *
 * A call's kind comes from its name, the only information in traces of other profilers. A call belongs to the innermost
 * stage it was made in.
 * Times follow HTA's definitions (get_cuda_kernel_launch_stats). The delay is the time from the end of a call to the
 * start of the first work it started; it is never negative. A call is slow if it takes longer than 50 us. A kernel is
 * short if it takes less time than its call, and the call is not slow. Work is delayed if the delay is longer than
 * 100 us. Without device records only the counts and the calls' own time are known.
 */
#include "ask/device/launch_sums.h"

#include <stdlib.h>
#include <string.h>

#include "ask/ops/dispatches.h"
#include "ask/ops/walk.h"
#include "model/join.h"

enum { SLOW = 50000, DELAYED = 100000 }; /* ns */

/* ---- kinds of calls ---- */

static enum call_kind kind_of(struct launch_sums *l, uint32_t name)
{
    uint32_t known = map_get(&l->kind_of, name);
    if (known == MAP_NONE) {
        known = call_kind_of(model_name(l->model, name));
        map_put(&l->kind_of, name, known);
    }
    return (enum call_kind)known;
}

/* ---- rows ---- */

static struct launch_sum *row_of(struct launch_sums *l, int64_t rank, uint32_t stage, uint32_t name)
{
    const struct row_head head = {.rank = rank, .stage = stage, .name = name};
    struct launch_sum *row = keyed_row(&l->keyed, &head, ROW_KEY, sizeof *row);
    if (!row->calls) row->kind = kind_of(l, name);
    return row;
}

/* ---- one process ---- */

/* The work that a call started. */
struct started {
    int64_t first, device;
    uint64_t works, short_kernels;
};

struct taking {
    const struct process *process;
    const struct attribution *attribution;
    const struct choice *choice;
    struct started *started; /* by span */
    bool has_device, has_operators;
};

static void find_started(struct taking *t)
{
    const struct process *p = t->process;
    const struct works *w = &p->works;
    t->started = mem_zero(p->spans.table.count, sizeof *t->started);
    for (size_t i = 0; i < w->table.count; i++) {
        uint32_t launch = t->attribution->launch[i];
        if (!IS_WORK(w->event_class[i])) continue;
        t->has_device = true;
        if (launch == NO_PLACE || !t->choice->lane[w->lane[i]]) continue;
        struct started *s = &t->started[launch];
        int64_t host = p->spans.end[launch] - p->spans.start[launch], time = w->end[i] - w->start[i];
        s->first = s->works ? MIN(s->first, w->start[i]) : w->start[i];
        s->device = add_ns(s->device, time);
        s->short_kernels += host <= SLOW && time < host;
        s->works++;
    }
}

static void take_call(struct launch_sums *l, const struct taking *t, const struct made_call *call)
{
    uint32_t stage;
    bool known = t->attribution->span &&
                 call->span != NO_PLACE; /* attributed by all rules, including that of backward operators */
    if (kind_of(l, call->name) == NO_KIND || !choice_call(t->choice, call->start, call->span)) return;
    struct belonging at =
        known ? t->attribution->span[call->span]
              : (struct belonging){call->start, stage_at(&t->attribution->finder, call->thread, call->start), 0};
    if (!choice_stage_name(t->choice, &at, &stage)) return;
    struct launch_sum *row = row_of(l, t->process->rank, stage, call->name);
    row->has_operators |= t->has_operators;
    const struct started *started = call->span == NO_PLACE ? NULL : &t->started[call->span];
    bool has_link = call->span == NO_PLACE || t->process->spans.id[call->span] != NO_ID || (started && started->works);
    row->has_device |= t->has_device;
    row->lacks_links |=
        !has_link && row->kind != SYNC; /* what it launched is in the trace, but nothing tells that it did */
    row->calls++;
    row->head.time = add_ns(row->head.time, call->end - call->start);
    if (started && started->works) {
        int64_t delay = MAX(started->first - call->end, 0);
        row->started++;
        row->device = add_ns(row->device, started->device);
        row->delay = add_ns(row->delay, delay);
        row->short_kernels += started->short_kernels;
        row->slow += call->end - call->start > SLOW;
        row->delayed += delay > DELAYED;
    }
}

static void take_dispatches(struct launch_sums *l, const struct taking *t)
{
    struct op_walk walk;
    struct walked_op op;
    op_walk_window(&walk, t->choice, &l->model->names);
    while (op_walk_next(&walk, &op)) {
        uint32_t stage;
        if (is_dispatch(l->model, op.name, op.scope, &l->is_native) && choice_call(t->choice, op.start, NO_PLACE) &&
            choice_stage_name(t->choice, &op.at, &stage)) {
            struct launch_sum *row = row_of(l, t->process->rank, stage, op.name);
            row->kind = DISPATCH;
            row->has_operators = true;
            row->has_device |= t->has_device;
            row->calls++;
            row->head.time = add_ns(row->head.time, op.end - op.start);
        }
    }
    op_walk_end(&walk);
}

static bool has_operators(const struct process *process)
{
    if (process->in_file.ops) return true;
    for (size_t i = 0; i < process->spans.table.count; i++)
        if (process->spans.event_class[i] == CLASS_OPERATOR) return true;
    return false;
}

void launch_sums_add(struct launch_sums *l, struct scope *scope)
{
    const struct process *process = scope->process;
    struct made_calls made;
    struct made_call call;
    struct taking t = {.process = process, .attribution = scope_attribute(scope), .choice = &scope->choice};
    t.has_operators = has_operators(process);
    find_started(&t);
    bool calls = false;
    made_calls_init(&made, process, &l->model->names);
    while (made_calls_next(&made, &call)) {
        calls |= kind_of(l, call.name) != NO_KIND;
        take_call(l, &t, &call);
    }
    take_dispatches(l, &t);
    l->has_operators |= t.has_operators;
    if (l->wants_counts) counts_add_stages(&l->counts, scope, calls, t.has_operators);
    scope_left_rows(scope, &l->left);
    made_calls_free(&made);
    free(t.started);
}

/* Adds up the rows of each rank and stage. */
static void add_counts(struct launch_sums *l)
{
    for (size_t i = 0; i < l->count; i++) {
        const struct launch_sum *row = &l->row[i];
        counts_row(&l->counts, row->head.rank, row->head.stage)->count[row->kind] += row->calls;
    }
}

void launch_sums_end(struct launch_sums *l)
{
    if (l->wants_counts) add_counts(l);
    rows_sort(l->row, l->count, sizeof *l->row, &l->model->names);
}

void launch_sums_free(struct launch_sums *l)
{
    counts_free(&l->counts);
    left_rows_free(&l->left);
    keyed_free(&l->keyed);
    map_free(&l->kind_of);
    map_free(&l->is_native);
}
