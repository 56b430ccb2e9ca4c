/* api.c - lists the calls of CUDA and NCCL: one row per function, over all ranks and threads.
 *
 * A PyTorch trace has the calls its profiler recorded (cuda_runtime, cuda_driver and similar), without their results. A
 * .tfr trace has the intercepted calls with their results, and the calls that only the device library reports. A result
 * that says that a stream or event is not ready yet is not an error. With --stage a call counts if it was made in
 * such a stage.
 */
#include <stdlib.h>
#include <string.h>

#include "ask/scope.h"
#include "base/sets/keyed.h"
#include "base/statistics.h"
#include "commands/session.h"
#include "model/join.h"

enum { NOT_READY = 600 }; /* CUDA_ERROR_NOT_READY, cudaErrorNotReady */

struct row {
    uint32_t name; /* the key */
    uint64_t errors;
    bool has_errors; /* the results are known */
    struct values values;
};

struct api {
    struct session *session;
    KEYED_ROWS(struct row);
};

/* One call of either kind of trace. */
struct made {
    uint32_t name, thread;
    int64_t start, end;
    bool has_result, failed;
};

static void add_call(struct api *api, const struct made *made)
{
    struct row *row = keyed_row(&api->keyed, &made->name, sizeof made->name, sizeof *row);
    row->has_errors |= made->has_result;
    row->errors += made->failed;
    values_add(&row->values, made->end - made->start);
}

/* ---- selection of calls ---- */

static void take(struct api *api, const struct scope *scope, struct made made, uint32_t span)
{
    const struct choice *choice = &scope->choice;
    struct belonging at = {made.start, NO_PLACE, 0};
    if (choice_call(choice, made.start, span)) {
        if (choice->by_stage) at.stage = stage_at(&scope->attribution.finder, made.thread, made.start);
        if (choice_in_stage(choice, &at)) add_call(api, &made);
    }
}

static void take_call(struct api *api, const struct scope *scope, const struct made_call *call)
{
    const struct calls *c = &scope->process->calls;
    bool has_result = call->call != NO_PLACE;
    int64_t result = has_result ? c->result[call->call] : 0;
    bool failed = result != 0 && result != NOT_READY;
    take(api, scope, (struct made){call->name, call->thread, call->start, call->end, has_result, failed}, call->span);
}

static void add_process(struct api *api, struct scope *scope)
{
    struct made_calls made;
    struct made_call call;
    if (is_filtered(scope->choice.options)) scope_attribute(scope);
    made_calls_init(&made, scope->process, &api->session->model.names);
    while (made_calls_next(&made, &call)) take_call(api, scope, &call);
    made_calls_free(&made);
    scope_end(scope);
}

/* ---- printing ---- */

static int longest_first(const void *a, const void *b, void *context)
{
    const struct row *x = a, *y = b;
    const struct names *names = context;
    if (x->values.total != y->values.total) return x->values.total > y->values.total ? -1 : 1;
    return strcmp(names_get(names, x->name)->text, names_get(names, y->name)->text);
}

static void emit_call(struct api *api, struct row *row)
{
    struct emit *e = &api->session->emit;
    const struct name *name = names_get(&api->session->model.names, row->name);
    values_sort(&row->values);
    emit_row(e);
    emit_bytes_text(e, "name", name->text, name->length);
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

static void emit_calls(struct api *api)
{
    struct emit *e = &api->session->emit;
    uint64_t top = api->session->options.top, calls = 0;
    int64_t time = 0;
    if (api->count) qsort_r(api->row, api->count, sizeof *api->row, longest_first, &api->session->model.names);
    for (size_t i = 0; i < api->count; i++) {
        calls += api->row[i].values.count;
        time = add_ns(time, api->row[i].values.total);
        if (!top || i < top) emit_call(api, &api->row[i]);
    }
    emit_totals(e);
    emit_count(e, "functions", api->count);
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
    struct api api = {.session = session};
    if (!session_ask(session, STYLE_TABLE)) return;
    for (size_t i = 0; i < session->chosen.processes; i++) add_process(&api, scope_begin(&session->chosen, i));
    emit_calls(&api);
    if (!api.count && !is_filtered(&session->options))
        complain(NULL, "no calls of CUDA or NCCL were recorded; `tfanalyze info` shows the recorded events");
    session_end(session, api.count || !is_filtered(&session->options));
    for (size_t i = 0; i < api.count; i++) values_free(&api.row[i].values);
    keyed_free(&api.keyed);
}
