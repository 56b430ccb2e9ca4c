/* launches.c - reports the cost of launching: one row per rank, stage and function, over all calls that start or
 * await work.
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
#include <stdlib.h>
#include <string.h>

#include "ask/ops/dispatches.h"
#include "ask/ops/walk.h"
#include "ask/row_order.h"
#include "ask/stages/at.h"
#include "commands/launches_budget.h"
#include "model/join.h"

enum { SLOW = 50000, DELAYED = 100000 }; /* ns */

struct row {
    struct row_head head; /* must be first; its time is host time */
    enum call_kind kind;
    bool has_device, has_operators; /* the traces of its rank have such records */
    uint64_t calls, started, short_kernels, slow, delayed;
    int64_t device, delay;
};

struct launches {
    struct session *session;
    KEYED_ROWS(struct row);
    struct map kind_of;   /* by name */
    struct map is_native; /* by name: 1 for an operator of another library */
    struct counts counts; /* by rank and stage, for a budget */
    bool has_operators;   /* a trace has such records */
};

/* ---- kinds of calls ---- */

static enum call_kind kind_of(struct launches *l, uint32_t name)
{
    uint32_t known = map_get(&l->kind_of, name);
    if (known == MAP_NONE) {
        known = call_kind_of(model_name(&l->session->model, name));
        map_put(&l->kind_of, name, known);
    }
    return (enum call_kind)known;
}

/* ---- rows ---- */

static struct row *row_of(struct launches *l, int64_t rank, uint32_t stage, uint32_t name)
{
    const struct row_head head = {.rank = rank, .stage = stage, .name = name};
    struct row *row = keyed_row(&l->keyed, &head, ROW_KEY, sizeof *row);
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

static void take_call(struct launches *l, const struct taking *t, const struct made_call *call)
{
    uint32_t stage;
    bool known = t->attribution->span &&
                 call->span != NO_PLACE; /* attributed by all rules, including that of backward operators */
    if (kind_of(l, call->name) == NO_KIND || !choice_call(t->choice, call->start, call->span)) return;
    struct belonging at =
        known ? t->attribution->span[call->span]
              : (struct belonging){call->start, stage_at(&t->attribution->finder, call->thread, call->start), 0};
    if (!choice_stage_name(t->choice, &at, &stage)) return;
    struct row *row = row_of(l, t->process->rank, stage, call->name);
    row->has_operators |= t->has_operators;
    const struct started *started = call->span == NO_PLACE ? NULL : &t->started[call->span];
    row->has_device |= t->has_device;
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

static void take_dispatches(struct launches *l, const struct taking *t)
{
    struct op_walk walk;
    struct walked_op op;
    op_walk_begin(&walk, t->process, t->attribution, &l->session->options, &l->session->model.names);
    while (op_walk_next(&walk, &op)) {
        uint32_t stage;
        if (is_dispatch(&l->session->model, op.name, op.scope, &l->is_native) &&
            choice_call(t->choice, op.start, NO_PLACE) && choice_stage_name(t->choice, &op.at, &stage)) {
            struct row *row = row_of(l, t->process->rank, stage, op.name);
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
    if (process->unheld.ops) return true;
    for (size_t i = 0; i < process->spans.table.count; i++)
        if (process->spans.event_class[i] == CLASS_OPERATOR) return true;
    return false;
}

static bool wants_counts(const struct launches *l)
{
    return l->session->options.budget || l->session->options.write_budget;
}

static void add_process(struct launches *l, struct scope *scope)
{
    const struct process *process = scope->process;
    struct made_calls made;
    struct made_call call;
    struct taking t = {.process = process, .attribution = scope_attribute(scope), .choice = &scope->choice};
    t.has_operators = has_operators(process);
    find_started(&t);
    bool calls = false;
    made_calls_init(&made, process, &l->session->model.names);
    while (made_calls_next(&made, &call)) {
        calls |= kind_of(l, call.name) != NO_KIND;
        take_call(l, &t, &call);
    }
    take_dispatches(l, &t);
    l->has_operators |= t.has_operators;
    if (wants_counts(l)) counts_add_stages(&l->counts, scope, calls, t.has_operators);
    made_calls_free(&made);
    free(t.started);
    scope_end(scope);
}

/* ---- printing ---- */

/* Prints the counts and times of a row, or of the sum of all rows. */
static void emit_values(struct emit *e, const struct row *row, const uint64_t *calls, bool has_device)
{
    static const char *const unknown[] = {"gpu_us", "delay_us", "short_kernels", "slow_launches", "delayed"};
    for (int k = 0; k < NR_CALL_KINDS; k++)
        if (k != DISPATCH || row->has_operators) emit_count(e, call_kind_keys[k], calls[k]);
        else emit_null(e, call_kind_keys[k]);
    emit_us(e, "cpu_us", row->head.time);
    if (has_device) {
        emit_us(e, "gpu_us", row->device);
        emit_us(e, "delay_us", row->delay);
        emit_count(e, "short_kernels", row->short_kernels);
        emit_count(e, "slow_launches", row->slow);
        emit_count(e, "delayed", row->delayed);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) emit_null(e, unknown[i]);
}

static void emit_launch(struct launches *l, const struct row *row)
{
    struct emit *e = &l->session->emit;
    const struct name *stage = names_get(&l->session->model.names, row->head.stage);
    const struct name *name = names_get(&l->session->model.names, row->head.name);
    uint64_t calls[NR_CALL_KINDS] = {0};
    calls[row->kind] = row->calls;
    emit_row(e);
    emit_known(e, "rank", row->head.rank);
    emit_stage(e, stage);
    emit_bytes_text(e, "name", name->text, name->length);
    emit_values(e, row, calls, row->has_device && row->kind != DISPATCH);
    emit_row_end(e);
}

static void emit_launches(struct launches *l)
{
    uint64_t calls[NR_CALL_KINDS] = {0}, top = l->session->options.top, of_stage = 0;
    struct row sum = {.has_operators = l->has_operators};
    rows_sort(l->row, l->count, sizeof *l->row, &l->session->model.names);
    for (size_t i = 0; i < l->count; i++) {
        const struct row *row = &l->row[i];
        of_stage = i && row_group(row, row - 1) == 0 ? of_stage + 1 : 0;
        calls[row->kind] += row->calls;
        sum.head.time = add_ns(
            sum.head.time, row->kind == DISPATCH ? 0 : row->head.time); /* a dispatch's time includes its launches */
        sum.device = add_ns(sum.device, row->device);
        sum.delay = add_ns(sum.delay, row->delay);
        sum.short_kernels += row->short_kernels;
        sum.slow += row->slow;
        sum.delayed += row->delayed;
        sum.has_device |= row->has_device;
        if (!top || of_stage < top) emit_launch(l, row);
    }
    emit_totals(&l->session->emit);
    emit_values(&l->session->emit, &sum, calls, sum.has_device);
    emit_end(&l->session->emit);
}

/* Adds up the rows of each rank and stage. */
static void add_counts(struct launches *l)
{
    for (size_t i = 0; i < l->count; i++) {
        const struct row *row = &l->row[i];
        counts_row(&l->counts, row->head.rank, row->head.stage)->count[row->kind] += row->calls;
    }
}

static void answer(struct launches *l, const struct budget *budget)
{
    struct session *session = l->session;
    bool found = l->count || !is_filtered(&session->options);
    if (wants_counts(l)) add_counts(l);
    if (session->options.budget) {
        launches_judge(session, budget, &l->counts);
        return;
    }
    emit_launches(l);
    if (!l->count && found) complain(NULL, "no launches were recorded; `tfanalyze info` shows the recorded events");
    session_end(session, found);
    if (session->options.write_budget && found) launches_write_budget(session, &l->counts);
}

struct needs launches_needs(const struct options *options)
{
    struct needs needs = {
        .calls = true, .operators = true, .operator_details = true, .stages_of_spans = true, .stream = STREAM_UNLINKED};
    return needs_union(work_needs(options), needs);
}

void cmd_launches(struct session *session)
{
    struct launches l = {.session = session};
    struct budget budget = {0};
    if (!launches_budget_begin(session, &budget)) goto out;
    if (!session_ask(session, STYLE_TABLE)) goto out;
    for (size_t i = 0; i < session->chosen.processes; i++) add_process(&l, scope_begin(&session->chosen, i));
    answer(&l, &budget);
out:
    budget_free(&budget);
    counts_free(&l.counts);
    keyed_free(&l.keyed);
    map_free(&l.kind_of);
    map_free(&l.is_native);
}
