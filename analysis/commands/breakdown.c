/* breakdown.c - sums up device work: one row per rank, stage and kernel (or operator, or category of device work).
 *
 * Each piece of work counts once, for the innermost stage it was launched in, so the sum over all rows is the total.
 * With --stage it counts for the innermost of the chosen stages.
 * Rows of kernels include only kernels. Rows of operators include copies and sets too (TraceLens, ops_summary:
 * total_direct_kernel_time). A call of an operator counts if it launched work itself. Work that no operator launched
 * is in the row (none).
 * Work replayed from a CUDA graph belongs to the operator it was captured in; each replay is then one call of that
 * operator.
 * Percentiles are interpolated between neighbours (numpy.percentile), std has ddof 1.
 */
#include "commands/breakdown.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask/row_order.h"
#include "base/sets/keyed.h"
#include "base/statistics.h"
#include "write/short_names.h"

struct row {
    struct row_head head; /* must be first; its time is the total of the values */
    int kind;             /* enum work_kind, SEVERAL, or NOT_YET */
    int64_t of_rank;      /* total time of all rows of its rank */
    struct values values;
};
enum { SEVERAL = -1, NOT_YET = -2 };

struct breakdown {
    struct session *session;
    const struct breakdown_rules *rules;
    KEYED_ROWS(struct row);
    struct work_kinds kinds;
    int64_t kernel_time;
    uint64_t launches, via[NR_VIAS], unlinked, replayed, uncaptured;
    struct map kernels; /* by name */
    struct short_names shorts;
};

/* ---- rows ---- */

static struct row *row_of(struct breakdown *b, int64_t rank, uint32_t stage, uint32_t name)
{
    const struct row_head head = {.rank = rank, .stage = stage, .name = name};
    struct row *row = keyed_row(&b->keyed, &head, ROW_KEY, sizeof *row);
    if (!row->values.count) row->kind = NOT_YET;
    return row;
}

static uint32_t category_name(struct breakdown *b, enum event_class event_class)
{
    static const char *const names[] = {
        [CLASS_KERNEL] = "kernel", [CLASS_MEMCPY] = "gpu_memcpy", [CLASS_MEMSET] = "gpu_memset"};
    return names_add(&b->session->model.names, names[event_class], strlen(names[event_class]));
}

static void add_kernel(struct breakdown *b, uint32_t name, int64_t time, const struct belonging *at)
{
    b->kernel_time = add_ns(b->kernel_time, time);
    b->launches++;
    b->via[at->via]++;
    map_put(&b->kernels, name, 1);
}

/* One value per operator call: the time of the work that the call launched itself. */
struct by_operator {
    struct map last; /* index in `value` by operator call */
    struct {
        uint32_t stage, name;
        int64_t time;
        int kind; /* as in a row */
    } * value;
    size_t count, capacity;
};

/* Sets `name` to a work's operator and returns a number for that operator's call; each replay has its own number.
 * NO_ID: no operator. */
static uint64_t call_of(const struct attribution *a, size_t work, bool launched, uint32_t *name)
{
    uint32_t op = a->op[work];
    *name = op == NO_PLACE ? NAME_OUTSIDE : a->process->spans.name[op];
    if (launched || !captured_operator(a, work, name)) return op == NO_PLACE ? NO_ID : op;
    if (*name == NAME_NONE) {
        *name = NAME_OUTSIDE;
        return NO_ID;
    }
    op = a->node_op[a->captured[work]];
    op = op == NO_PLACE ? a->captured[work] | 0x80000000u : op;
    return (uint64_t)(a->launch[work] + 1u) << 32 | op;
}

/* The kind of what has had one kind and gets another work. */
static int with_kind(int known, int kind)
{
    return known == NOT_YET || known == kind ? kind : SEVERAL;
}

static void add_to_operator(struct by_operator *o, const struct attribution *a, size_t work, bool launched,
                            uint32_t stage, int64_t time, int kind)
{
    uint32_t name;
    uint64_t call = call_of(a, work, launched, &name);
    uint32_t place = call == NO_ID ? MAP_NONE : map_get(&o->last, call);
    if (place == MAP_NONE) {
        o->value = mem_grow(o->value, &o->capacity, o->count + 1, sizeof *o->value);
        o->value[o->count].stage = stage;
        o->value[o->count].name = name;
        o->value[o->count].time = 0;
        o->value[o->count].kind = NOT_YET;
        place = (uint32_t)o->count++;
        if (call != NO_ID) map_put(&o->last, call, place);
    }
    o->value[place].time = add_ns(o->value[place].time, time);
    o->value[place].kind = with_kind(o->value[place].kind, kind);
}

static void end_operators(struct breakdown *b, struct by_operator *o, int64_t rank)
{
    for (size_t i = 0; i < o->count; i++) {
        struct row *row = row_of(b, rank, o->value[i].stage, o->value[i].name);
        row->kind = with_kind(row->kind, o->value[i].kind);
        values_add(&row->values, o->value[i].time);
    }
    map_free(&o->last);
    free(o->value);
}

static void add_work(struct breakdown *b, const struct choice *choice, struct by_operator *operators, size_t i)
{
    const struct attribution *a = choice->attribution;
    const struct works *w = &choice->process->works;
    enum group_by group = b->session->options.group_by;
    struct interval when;
    uint32_t stage;
    bool is_kernel = w->event_class[i] == CLASS_KERNEL;
    if (!choice_work(choice, i, &when) || !choice_stage_name(choice, &a->work[i], &stage)) return;
    int64_t time = when.end - when.start;
    if (is_kernel) add_kernel(b, w->name[i], time, &a->work[i]);
    bool launched = b->rules->launched;
    if (group == GROUP_OP && launched && (a->launch[i] == NO_PLACE || a->op[i] == NO_PLACE)) return;
    int kind = (int)work_kind_of(&b->kinds, choice->process, i);
    if (group == GROUP_OP) {
        add_to_operator(operators, a, i, launched, stage, time, kind);
    } else if (is_kernel || group == GROUP_CATEGORY) {
        uint32_t name = group == GROUP_CATEGORY ? category_name(b, w->event_class[i]) : w->name[i];
        struct row *row = row_of(b, choice->process->rank, stage, name);
        row->kind = with_kind(row->kind, kind);
        values_add(&row->values, time);
    }
}

static void add_process(struct breakdown *b, struct scope *scope)
{
    const struct process *process = scope->process;
    const struct attribution *a = scope_attribute(scope);
    struct by_operator operators = {0};
    for (size_t i = 0; i < process->works.table.count; i++) add_work(b, &scope->choice, &operators, i);
    end_operators(b, &operators, process->rank);
    b->unlinked += a->unlinked;
    b->replayed += a->replayed;
    b->uncaptured += a->uncaptured;
    scope_end(scope);
}

/* ---- order of rows ---- */

static void sort_rows(struct breakdown *b)
{
    for (size_t i = 0; i < b->count; i++) b->row[i].head.time = b->row[i].values.total;
    rows_sort(b->row, b->count, sizeof *b->row, &b->session->model.names);
    for (size_t i = 0, from = 0; i <= b->count; i++) {
        if (i == b->count || b->row[i].head.rank != b->row[from].head.rank) {
            int64_t total = 0;
            for (size_t k = from; k < i; k++) total = add_ns(total, b->row[k].head.time);
            for (; from < i; from++) b->row[from].of_rank = total;
        }
    }
}

/* ---- printing ---- */

static void emit_values(struct emit *e, struct values *values)
{
    values_sort(values);
    emit_count(e, "calls", values->count);
    emit_us(e, "total_us", values->total);
    emit_us(e, "mean_us", values_mean(values));
    emit_us(e, "median_us", values_percentile(values, 0.5));
    emit_us(e, "p95_us", values_percentile(values, 0.95));
    emit_us(e, "min_us", values->value[0]);
    emit_us(e, "max_us", values->value[values->count - 1]);
    if (values->count > 1) emit_us(e, "std_us", values_deviation(values));
    else emit_null(e, "std_us");
}

static void emit_row_of(struct breakdown *b, struct row *row)
{
    struct emit *e = &b->session->emit;
    const struct name *stage = names_get(&b->session->model.names, row->head.stage);
    const struct name *name = names_get(&b->session->model.names, short_names_get(&b->shorts, row->head.name));
    emit_row(e);
    emit_stage(e, stage);
    emit_known(e, "rank", row->head.rank);
    emit_bytes_text(e, "name", name->text, name->length);
    emit_text(e, "kind", row->kind < 0 ? NULL : work_kind_names[row->kind]);
    emit_values(e, &row->values);
    emit_pct(e, "pct", row->of_rank ? 100.0 * (double)row->values.total / (double)row->of_rank : NAN);
    emit_row_end(e);
}

/* Shortens the names of all kernels, including those that --top cuts off: --top does not change a kernel's short
 * name. */
static void find_short_names(struct breakdown *b)
{
    const struct options *options = &b->session->options;
    uint32_t *name = mem_zero(b->count, sizeof *name);
    for (size_t i = 0; i < b->count; i++) name[i] = b->row[i].head.name;
    if (options->names == NAMES_SHORT && options->group_by == GROUP_KERNEL)
        short_names_init(&b->shorts, &b->session->model.names, name, b->count);
    free(name);
}

static void emit_rows(struct breakdown *b)
{
    uint64_t top = b->session->options.top, of_stage = 0;
    for (size_t i = 0; i < b->count; i++) {
        of_stage = i && row_group(&b->row[i], &b->row[i - 1]) == 0 ? of_stage + 1 : 0;
        if (!top || of_stage < top) emit_row_of(b, &b->row[i]);
    }
}

static void emit_sums(struct breakdown *b)
{
    struct emit *e = &b->session->emit;
    emit_totals(e);
    emit_us(e, "total_kernel_time_us", b->kernel_time);
    emit_count(e, "num_kernels", b->kernels.count);
    emit_count(e, "launches", b->launches);
    for (int i = 0; i < NR_VIAS; i++) {
        char key[32];
        snprintf(key, sizeof key, "via_%s", via_names[i]);
        emit_count(e, key, b->via[i]);
    }
    emit_count(e, "without_launch", b->unlinked);
    emit_count(e, "replayed", b->replayed);
    emit_count(e, "replayed_unknown", b->uncaptured);
}

static void breakdown_free(struct breakdown *b)
{
    for (size_t i = 0; i < b->count; i++) values_free(&b->row[i].values);
    keyed_free(&b->keyed);
    map_free(&b->kernels);
    short_names_free(&b->shorts);
    work_kinds_free(&b->kinds);
}

void breakdown_answer(struct session *session, const struct breakdown_rules *rules)
{
    struct breakdown b = {.session = session, .rules = rules};
    if (!session_ask(session, STYLE_TABLE)) return;
    work_kinds_init(&b.kinds, rules->kinds, &session->model.names);
    for (size_t i = 0; i < session->chosen.processes; i++) add_process(&b, scope_begin(&session->chosen, i));
    sort_rows(&b);
    find_short_names(&b);
    emit_rows(&b);
    emit_sums(&b);
    emit_end(&session->emit);
    if (!b.count && !is_filtered(&session->options))
        complain(NULL, "no device work was recorded; `tfanalyze info` shows the recorded events");
    session_end(session, b.count || !is_filtered(&session->options));
    breakdown_free(&b);
}

struct needs breakdown_needs(const struct options *options)
{
    return needs_union(work_needs(options), (struct needs){.operators_of_work = options->group_by == GROUP_OP});
}

void cmd_breakdown(struct session *session)
{
    static const struct breakdown_rules rules = {&exact_kinds, false};
    breakdown_answer(session, &rules);
}
