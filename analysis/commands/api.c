/* api.c - lists the calls of CUDA and NCCL: one row per function, over all ranks and threads.
 *
 * A PyTorch trace has the calls its profiler recorded (cuda_runtime, cuda_driver and similar), without their results. A
 * .tfr trace has the intercepted calls with their results, and the calls that only the device library reports. With
 * --stage a call counts if it was made in such a stage.
 */
#include "ask/device/call_sums.h"
#include "commands/session.h"

static void emit_call(struct session *session, struct call_sum *row, bool unknown)
{
    struct emit *e = &session->emit;
    const struct name *name = names_get(&session->model.names, row->name);
    values_sort(&row->values);
    emit_row(e);
    emit_bytes_text(e, "name", name->text, name->length);
    emit_hide(e, unknown);
    emit_count(e, "calls", row->values.count);
    if (row->has_errors) emit_count(e, "errors", row->errors);
    else emit_null(e, "errors");
    emit_us(e, "total_us", row->values.total);
    emit_us(e, "mean_us", values_mean(&row->values));
    emit_us(e, "median_us", values_percentile(&row->values, 0.5));
    emit_us(e, "p95_us", values_percentile(&row->values, 0.95));
    emit_us(e, "max_us", row->values.value[row->values.count - 1]);
    emit_row_end(e);
}

static void emit_calls(struct session *session, const struct call_sums *sums)
{
    struct emit *e = &session->emit;
    uint64_t top = session->options.top, calls = 0;
    int64_t time = 0;
    for (size_t i = 0; i < sums->count; i++) {
        calls += sums->row[i].values.count;
        time = add_ns(time, sums->row[i].values.total);
        if (!top || i < top) emit_call(session, &sums->row[i], sums->unknown);
    }
    emit_totals(e);
    emit_hide(e, sums->unknown);
    emit_count(e, "functions", sums->count);
    emit_count(e, "calls", calls);
    emit_us(e, "total_us", time);
    emit_end(e);
}

struct needs api_needs(const struct options *options)
{
    bool by_device = options->device.count || options->stream.count;
    return (struct needs){.ranges = true, .calls = true, .launches = true, .device = by_device};
}

void cmd_api(struct session *session)
{
    struct call_sums sums = {.names = &session->model.names};
    if (!session_ask(session, STYLE_TABLE)) return;
    for (size_t i = 0; i < session->chosen.processes; i++) {
        struct scope *scope = scope_begin(&session->chosen, i);
        call_sums_add(&sums, scope);
        scope_end(scope);
    }
    call_sums_sort(&sums);
    emit_calls(session, &sums);
    if (!sums.count && !is_filtered(&session->options))
        complain(NULL,
                 "no calls of a device's library or of NCCL were recorded; `tfanalyze info` shows the recorded events");
    session_end(session, sums.count || !is_filtered(&session->options));
    call_sums_free(&sums);
}
