/* launches.c - reports the cost of launching: one row per rank, stage and function, over all calls that start or
 * await work.
 */
#include "ask/device/launch_sums.h"
#include "commands/launches_budget.h"

/* Prints the counts and times of a row, or of the sum of all rows. */
static void emit_values(struct emit *e, const struct launch_sum *row, const uint64_t *calls, bool has_device)
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

static void emit_launch(struct session *session, const struct launch_sums *l, const struct launch_sum *row)
{
    struct emit *e = &session->emit;
    const struct name *stage = names_get(&session->model.names, row->head.stage);
    const struct name *name = names_get(&session->model.names, row->head.name);
    uint64_t calls[NR_CALL_KINDS] = {0};
    calls[row->kind] = row->calls;
    emit_row(e);
    emit_known(e, "rank", row->head.rank);
    emit_stage(e, stage);
    emit_bytes_text(e, "name", name->text, name->length);
    emit_hide(e, left_rows_stage(&l->left, row->head.rank, row->head.stage));
    emit_values(e, row, calls, row->has_device && !row->lacks_links && row->kind != DISPATCH);
    emit_row_end(e);
}

static void emit_launches(struct session *session, const struct launch_sums *l)
{
    uint64_t calls[NR_CALL_KINDS] = {0}, top = session->options.top, of_stage = 0;
    struct launch_sum sum = {.has_operators = l->has_operators};
    for (size_t i = 0; i < l->count; i++) {
        const struct launch_sum *row = &l->row[i];
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
        sum.lacks_links |= row->lacks_links;
        if (!top || of_stage < top) emit_launch(session, l, row);
    }
    emit_totals(&session->emit);
    emit_hide(&session->emit, l->left.any);
    emit_values(&session->emit, &sum, calls, sum.has_device && !sum.lacks_links);
    emit_end(&session->emit);
}

static void answer(struct session *session, struct launch_sums *l, const struct budget *budget)
{
    bool found = l->count || !is_filtered(&session->options);
    if (session->options.budget) {
        launches_judge(session, budget, &l->counts);
        return;
    }
    emit_launches(session, l);
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
    struct launch_sums l = {.model = &session->model,
                            .wants_counts = session->options.budget || session->options.write_budget};
    struct budget budget = {0};
    if (!launches_budget_begin(session, &budget) || !session_ask(session, STYLE_TABLE)) goto out;
    for (size_t i = 0; i < session->chosen.processes; i++) {
        struct scope *scope = scope_begin(&session->chosen, i);
        launch_sums_add(&l, scope);
        scope_end(scope);
    }
    launch_sums_end(&l);
    answer(session, &l, &budget);
out:
    budget_free(&budget);
    launch_sums_free(&l);
}
