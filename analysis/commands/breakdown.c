/* breakdown.c - prints the sums over device work: one row per rank, stage and kernel (or operator, or category of device
 * work). Percentiles are interpolated between neighbours (numpy.percentile), std has ddof 1.
 */
#include "commands/breakdown.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "write/rows/whole_values.h"
#include "write/short_names.h"

struct breakdown {
    struct session *session;
    struct work_sums sums;
    struct short_names shorts;
};

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

/* Prints what is known of the whole run. */
static void emit_whole_run(struct emit *e, const struct work_sum *row)
{
    emit_count(e, "calls", row->calls);
    emit_us(e, "total_us", row->values.total);
    emit_us(e, "mean_us", row->values.total / (int64_t)MAX(row->calls, 1));
    emit_whole_values(e, row->whole);
    emit_null(e, "std_us");
}

static void emit_row_of(struct breakdown *b, struct work_sum *row)
{
    struct emit *e = &b->session->emit;
    const struct name *name = names_get(&b->session->model.names, short_names_get(&b->shorts, row->head.name));
    emit_row(e);
    if (row->of_whole_run) emit_null(e, "stage");
    else emit_stage(e, names_get(&b->session->model.names, row->head.stage));
    emit_known(e, "rank", row->head.rank);
    emit_bytes_text(e, "name", name->text, name->length);
    emit_text(e, "kind", row->kind < 0 ? NULL : work_kind_names[row->kind]);
    emit_hide(e, left_rows_stage(&b->sums.left, row->head.rank, row->head.stage));
    if (row->of_whole_run) emit_whole_run(e, row);
    else emit_values(e, &row->values);
    emit_hide(e, b->sums.others || left_rows_rank(&b->sums.left, row->head.rank));
    emit_pct(e, "pct", row->of_rank ? 100.0 * (double)row->values.total / (double)row->of_rank : NAN);
    emit_row_end(e);
}

/* Shortens the names of all kernels, including those that --top cuts off: --top does not change a kernel's short
 * name. */
static void find_short_names(struct breakdown *b)
{
    const struct options *options = &b->session->options;
    uint32_t *name = mem_zero(b->sums.count, sizeof *name);
    for (size_t i = 0; i < b->sums.count; i++) name[i] = b->sums.row[i].head.name;
    if (options->names == NAMES_SHORT && options->group_by == GROUP_KERNEL)
        short_names_init(&b->shorts, &b->session->model.names, name, b->sums.count);
    free(name);
}

static void emit_rows(struct breakdown *b)
{
    uint64_t top = b->session->options.top, of_stage = 0;
    for (size_t i = 0; i < b->sums.count; i++) {
        of_stage = i && row_group(&b->sums.row[i], &b->sums.row[i - 1]) == 0 ? of_stage + 1 : 0;
        if (!top || of_stage < top) emit_row_of(b, &b->sums.row[i]);
    }
}

static void emit_sums(struct breakdown *b)
{
    struct emit *e = &b->session->emit;
    emit_totals(e);
    emit_hide(e, b->sums.left.any);
    emit_us(e, "total_kernel_time_us", b->sums.kernel_time);
    if (b->sums.others) emit_null(e, "num_kernels");
    else emit_count(e, "num_kernels", b->sums.kernels.count);
    emit_count(e, "launches", b->sums.launches);
    emit_hide(e, b->sums.left.any || b->sums.of_whole_run);
    for (int i = 0; i < NR_VIAS; i++) {
        char key[32];
        snprintf(key, sizeof key, "via_%s", via_names[i]);
        emit_count(e, key, b->sums.via[i]);
    }
    emit_count(e, "without_launch", b->sums.unlinked);
    emit_count(e, "replayed", b->sums.replayed);
    emit_count(e, "replayed_unknown", b->sums.uncaptured);
    emit_count(e, "replayed_by_order", b->sums.by_order);
    emit_hide(e, false);
    if (b->sums.of_whole_run) emit_count(e, "launches_of_others", b->sums.others);
}

void breakdown_answer(struct session *session, const struct breakdown_rules *rules)
{
    struct breakdown b = {.session = session};
    if (!session_ask(session, STYLE_TABLE)) return;
    work_sums_init(&b.sums, rules, &session->model.names);
    for (size_t i = 0; i < session->chosen.processes; i++) {
        struct scope *scope = scope_begin(&session->chosen, i);
        work_sums_add(&b.sums, scope);
        scope_end(scope);
    }
    work_sums_sort(&b.sums);
    find_short_names(&b);
    emit_rows(&b);
    emit_sums(&b);
    emit_end(&session->emit);
    if (b.sums.of_whole_run)
        complain(NULL,
                 "the rows of TFI_MODE=flight are sums of the whole run, without stages; --from 0 asks for the last "
                 "seconds");
    if (!b.sums.count && !is_filtered(&session->options))
        complain(NULL, "no device work was recorded; `tfanalyze info` shows the recorded events");
    session_end(session, b.sums.count || !is_filtered(&session->options));
    work_sums_free(&b.sums);
    short_names_free(&b.shorts);
}

struct needs breakdown_needs(const struct options *options)
{
    return needs_union(work_needs(options),
                       (struct needs){.operators_of_work = options->group_by == GROUP_OP, .captures = true});
}

void cmd_breakdown(struct session *session)
{
    static const struct breakdown_rules rules = {&exact_kinds, false};
    breakdown_answer(session, &rules);
}
