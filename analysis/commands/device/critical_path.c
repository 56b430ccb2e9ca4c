/* critical_path.c - reports what the critical path is bound by: one row per kind, or with --nodes one per node. */
#include "ask/critical/critical.h"

#include <math.h>
#include <stdlib.h>

#include "commands/session.h"
#include "write/chrome/overlay.h"
#include "write/export/export_tfr.h"

/* The summaries of all chosen processes. */
struct sums {
    struct critical_sum **sum;
    size_t count;
    int64_t total[NR_BOUNDS], length;
    uint64_t steps, failed, hosts; /* hosts: ranks with a path and without work of a device */
};

struct needs critical_path_needs(const struct options *options)
{
    return options->overlay ? needs_union(critical_needs, export_tfr_needs) : critical_needs;
}

/* ---- finding the paths ---- */

/* Writes the trace with its path. A second process has no place in it. */
static void write_overlay(struct session *session, const struct process *process, const struct critical_path *path)
{
    if (path->failure || !path->steps) return;
    if (!overlay_write(session->options.overlay, &session->chosen, process, path)) session->status = STATUS_NOTHING;
}

static struct critical_sum *take_critical_sum(struct session *session, struct scope *scope)
{
    struct critical_path path;
    critical_path_of(&path, scope);
    write_overlay(session, scope->process, &path);
    struct critical_sum *sum = critical_sum_of(&path, scope->process, &session->model.names, session->options.nodes);
    critical_path_free(&path);
    return sum;
}

static void find_paths(struct session *session, struct sums *sums)
{
    const struct selection *chosen = &session->chosen;
    bool own = session->options.overlay;
    void *const *taken = own ? NULL : session_summaries(session);
    sums->count = chosen->processes;
    sums->sum = mem_zero(sums->count, sizeof *sums->sum);
    for (size_t i = 0; i < sums->count; i++) {
        const struct process *process = chosen->process[i];
        struct critical_sum *sum = own ? take_critical_sum(session, scope_begin(chosen, i)) : taken[i];
        sums->sum[i] = sum;
        sums->steps += sum->steps;
        sums->failed += sum->failure != NULL;
        sums->hosts += sum->steps && !sum->works;
        sums->length = add_ns(sums->length, sum->length);
        for (int k = 0; k < NR_BOUNDS; k++) sums->total[k] = add_ns(sums->total[k], sum->total[k]);
        if (sum->failure) complain(process->path, "has no critical path: %s", sum->failure);
    }
}

static void sums_free(struct sums *sums, bool own)
{
    for (size_t i = 0; i < sums->count && own; i++) critical_sum_free(sums->sum[i]);
    free(sums->sum);
}

/* ---- rows ---- */

static void emit_kinds(struct session *session, const struct sums *sums)
{
    struct emit *e = &session->emit;
    uint8_t order[NR_BOUNDS] = {0};
    uint64_t top = session->options.top ? session->options.top : NR_BOUNDS, rows = 0;
    for (uint8_t i = 0; i < NR_BOUNDS; i++) {
        uint8_t at = i;
        for (; at && sums->total[order[at - 1]] < sums->total[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    for (size_t i = 0; i < NR_BOUNDS && rows < top; i++) {
        int64_t total = sums->total[order[i]];
        if (!total) continue;
        rows++;
        emit_row(e);
        emit_text(e, "kind", critical_bound_names[order[i]]);
        emit_us(e, "total_us", total);
        emit_pct(e, "pct", sums->length ? 100.0 * (double)total / (double)sums->length : NAN);
        emit_row_end(e);
    }
}

static void emit_step(struct session *session, const struct critical_sum *sum, const struct critical_step *step)
{
    struct emit *e = &session->emit;
    const struct name *name = names_get(&session->model.names, step->name);
    emit_row(e);
    emit_known(e, "rank", sum->rank);
    emit_us(e, "time_us", step->time - session->model.start);
    emit_text(e, "node", step->is_end ? "end" : "start");
    emit_bytes_text(e, "name", name->text, name->length);
    emit_known(e, "device", step->device);
    emit_known(e, "stream", step->stream);
    if (step->is_work) emit_null(e, "tid");
    else emit_count(e, "tid", step->tid);
    emit_known(e, "event", step->number == NO_PLACE ? -1 : (int64_t)step->number);
    emit_text(e, "edge", step->is_first ? NULL : critical_type_names[step->type]);
    emit_text(e, "kind", step->is_first || step->bound == BOUND_NONE ? NULL : critical_bound_names[step->bound]);
    if (step->is_first) emit_null(e, "weight_us");
    else emit_us(e, "weight_us", step->weight);
    emit_row_end(e);
}

static void emit_nodes(struct session *session, const struct sums *sums)
{
    uint64_t top = session->options.top;
    for (size_t i = 0; i < sums->count; i++)
        for (size_t k = 0; k < sums->sum[i]->listed && (!top || k < top); k++)
            emit_step(session, sums->sum[i], &sums->sum[i]->step[k]);
}

static void emit_sums(struct session *session, const struct sums *sums)
{
    struct emit *e = &session->emit;
    uint64_t nodes = 0, edges = 0, ranks = 0;
    int64_t span = 0;
    for (size_t i = 0; i < sums->count; i++) {
        nodes += sums->sum[i]->nodes;
        edges += sums->sum[i]->edges;
        ranks += sums->sum[i]->steps > 0;
        span = add_ns(span, sums->sum[i]->span);
    }
    emit_totals(e);
    if (sums->steps) emit_us(e, "path_us", sums->length);
    else emit_null(e, "path_us");
    if (sums->steps) emit_us(e, "span_us", span);
    else emit_null(e, "span_us");
    emit_hide(e, sums->failed && !sums->steps);
    emit_count(e, "paths", ranks);
    emit_count(e, "path_nodes", sums->steps + ranks);
    emit_count(e, "nodes", nodes);
    emit_count(e, "edges", edges);
    emit_end(e);
}

void cmd_critical_path(struct session *session)
{
    struct sums sums = {0};
    const struct options *o = &session->options;
    if (!session_load(session)) return;
    if (o->overlay && session->chosen.processes > 1) {
        complain(NULL, "--overlay writes the trace of one process, and %zu are chosen; choose one with --rank or --pid",
                 session->chosen.processes);
        session->status = STATUS_USAGE;
        return;
    }
    if (!session_begin(session, STYLE_TABLE)) return;
    find_paths(session, &sums);
    if (o->nodes) {
        emit_keys(&session->emit, "rank,time_us,node,name,device,stream,tid,event,edge,kind,weight_us");
        emit_nodes(session, &sums);
    } else {
        emit_kinds(session, &sums);
    }
    emit_sums(session, &sums);
    if (!sums.steps && !sums.failed && !is_filtered(o))
        complain(NULL, "no event takes time; `tfanalyze info` shows the recorded events");
    if (sums.hosts)
        complain(
            NULL,
            "no device work in %llu of %zu ranks: their path is what one thread of the host did, and nothing tells "
            "what it waited for but collectives and data loaders",
            (unsigned long long)sums.hosts, sums.count);
    int status = session->status;
    session_end(session, sums.steps || sums.failed || !is_filtered(o));
    if (sums.failed) session_spoil(session);
    if (status) session->status = status;
    sums_free(&sums, o->overlay);
}
