/* memory_process.c - `memory --layout process`: threads and memory of each process over time, as the kernel counts them. */
#include "commands/memory/memory_process.h"

#include "commands/memory/memory_values.h"
#include "commands/session.h"

struct sums {
    uint64_t rows, threads, resident, cgroup;
};

static void emit_sample(struct session *session, const struct process *p, const struct process_sample *sample)
{
    struct emit *e = &session->emit;
    int64_t limit = machine_number(&p->machine, "memory_limit");
    emit_row(e);
    emit_known(e, "rank", p->rank);
    emit_known(e, "pid", p->pid);
    emit_us(e, "time_us", sample->time - session->model.start);
    emit_count(e, "threads", sample->threads);
    emit_bytes(e, "resident_bytes", sample->resident);
    emit_total_bytes(e, "cgroup_bytes", sample->cgroup ? sample->cgroup : TOTAL_UNKNOWN);
    emit_total_bytes(e, "limit_bytes", limit < 0 ? TOTAL_UNKNOWN : (uint64_t)limit);
    emit_row_end(e);
}

static void add_process(struct session *session, const struct scope *scope, struct sums *sums)
{
    const struct machine *machine = &scope->process->machine;
    for (size_t i = 0; i < machine->samples; i++) {
        const struct process_sample *sample = &machine->sample[i];
        if (sample->time < scope->choice.window.from || sample->time > scope->choice.window.to) continue;
        sums->threads = MAX(sums->threads, sample->threads);
        sums->resident = MAX(sums->resident, sample->resident);
        sums->cgroup = MAX(sums->cgroup, sample->cgroup);
        if (!session->options.top || sums->rows < session->options.top) emit_sample(session, scope->process, sample);
        sums->rows++;
    }
}

void memory_process(struct session *session)
{
    struct emit *e = &session->emit;
    struct sums sums = {0};
    if (!session_begin(session, STYLE_TABLE)) return;
    emit_keys(e, "rank,pid,time_us,threads,resident_bytes,cgroup_bytes,limit_bytes");
    for (size_t i = 0; i < session->chosen.processes; i++) {
        struct scope *scope = scope_begin(&session->chosen, i);
        add_process(session, scope, &sums);
        scope_end(scope);
    }
    emit_totals(e);
    emit_count(e, "rows", sums.rows);
    emit_hide(e, !sums.rows);
    emit_count(e, "most_threads", sums.threads);
    emit_bytes(e, "peak_resident_bytes", sums.resident);
    emit_total_bytes(e, "peak_cgroup_bytes", sums.cgroup ? sums.cgroup : TOTAL_UNKNOWN);
    emit_end(e);
    if (!sums.rows && !is_filtered(&session->options))
        complain(NULL, "these traces have no samples of the process: older versions of libtfinject.so took none");
    session_end(session, sums.rows || !is_filtered(&session->options));
}
