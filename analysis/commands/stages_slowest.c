/* stages_slowest.c - `stages --slowest N`: the single calls that took longest beyond the median of their stage. */
#include "commands/stages_slowest.h"

#include <math.h>
#include <stdlib.h>

#include "ask/stages/slowest.h"
#include "commands/session.h"

/* Returns what is known of a call's inputs: their shapes by the framework, or the arguments of its function. */
static uint32_t inputs_of(const struct slow_call *call)
{
    const struct process *p = call->process;
    uint64_t id = p->ranges.id[call->range];
    uint32_t at = map_get(&p->range_inputs, id);
    if (at != MAP_NONE && p->range_input[at].shapes != NAME_NONE) return p->range_input[at].shapes;
    for (size_t i = 0; i < p->signatures; i++)
        if (p->signature[i].range == id && p->signature[i].direction == SIGNATURE_ARGUMENTS)
            return p->signature[i].text;
    return NAME_NONE;
}

static void emit_call(struct session *session, const struct slow_call *call)
{
    struct emit *e = &session->emit;
    const struct process *p = call->process;
    int64_t time = call->end - call->start, on_file;
    uint32_t thread = map_get(&p->thread_of, p->ranges.thread[call->range]), file = slow_call_file(call, &on_file);
    emit_row(e);
    emit_stage(e, names_get(&session->model.names, call->name));
    emit_known(e, "rank", p->rank);
    emit_known(e, "pid", p->pid);
    emit_known(e, "worker", call->worker);
    emit_known(e, "thread", thread == MAP_NONE ? -1 : (int64_t)p->thread[thread].tid);
    emit_us(e, "start_us", call->start - session->model.start);
    emit_us(e, "time_us", time);
    emit_us(e, "median_us", call->median);
    emit_double(e, "times_median", call->median > 0 ? (double)time / (double)call->median : NAN);
    emit_us(e, "excess_us", time - call->median);
    emit_name(e, &session->model.names, "file", file);
    if (file == NAME_NONE) emit_null(e, "file_us");
    else emit_us(e, "file_us", on_file);
    emit_name(e, &session->model.names, "inputs", inputs_of(call));
    emit_row_end(e);
}

void stages_slowest(struct session *session)
{
    struct slow_calls calls = {0};
    size_t rows = 0;
    if (!session_ask(session, STYLE_TABLE)) return;
    emit_keys(&session->emit,
              "stage,rank,pid,worker,thread,start_us,time_us,median_us,times_median,excess_us,file,file_us,"
              "inputs");
    for (size_t i = 0; i < session->chosen.processes; i++) {
        struct scope *scope = scope_begin(&session->chosen, i);
        slow_calls_add(&calls, scope);
        scope_end(scope);
    }
    slow_calls_sort(&calls);
    for (size_t i = 0; i < calls.count && i < session->options.slowest; i++, rows++) emit_call(session, &calls.call[i]);
    emit_totals(&session->emit);
    emit_count(&session->emit, "calls", calls.count);
    emit_end(&session->emit);
    if (!rows && !is_filtered(&session->options)) complain(NULL, "no stages were recorded");
    session_end(session, rows || !is_filtered(&session->options));
    free(calls.call);
}
