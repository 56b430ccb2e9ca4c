/* steps.c - reports the time of each profiler step by what the process did, and the use of the devices. */
#include "ask/steps/step_parts.h"

#include "commands/session.h"

static const char *const part_keys[NR_PARTS] = {
    [PART_KERNEL] = "kernel_us",     [PART_MEMCPY] = "memcpy_us",
    [PART_MEMSET] = "memset_us",     [PART_COMMUNICATION] = "communication_us",
    [PART_RUNTIME] = "runtime_us",   [PART_DATALOADER] = "dataloader_us",
    [PART_CPU_EXEC] = "cpu_exec_us", [PART_OTHER] = "other_us"};

static void emit_step(struct emit *e, const struct step_row *row)
{
    emit_row(e);
    emit_known(e, "rank", row->rank);
    emit_known(e, "pid", row->pid);
    if (row->number == NO_PLACE) emit_null(e, "step");
    else emit_count(e, "step", row->number);
    if (row->known) emit_us(e, "total_us", row->total);
    else emit_null(e, "total_us");
    for (int part = 0; part < NR_PARTS; part++)
        if (row->known >> part & 1) emit_us(e, part_keys[part], row->part[part]);
        else emit_null(e, part_keys[part]);
    emit_row_end(e);
}

static void emit_shares(struct emit *e, const struct step_device *device)
{
    emit_pct(e, "gpu_utilization_pct", device_utilization(device));
    emit_pct(e, "sm_efficiency_pct", device_sm_efficiency(device));
    emit_pct(e, "occupancy_pct", device_occupancy(device));
    emit_pct(e, "tensor_core_pct", device_tensor_core(device));
    emit_pct(e, "tensor_core_plugin_pct", device_tensor_core_plugin(device));
}

static void emit_sums(struct emit *e, const struct steps *steps)
{
    struct step_device sum = steps_sum(steps);
    emit_totals(e);
    emit_count(e, "steps", steps->count);
    emit_hide(e, steps->unknown);
    emit_shares(e, &sum);
    if (e->format != FORMAT_JSON) return;
    emit_open(e, "devices", true);
    for (size_t i = 0; i < steps->devices && !steps->unknown; i++) {
        emit_open(e, NULL, false);
        emit_known(e, "rank", steps->device[i].rank);
        emit_known(e, "device", steps->device[i].device);
        emit_shares(e, &steps->device[i]);
        emit_close(e);
    }
    emit_close(e);
}

/* Says what the answer leaves out or assumes. */
static void say(const struct session *session, const struct steps *steps)
{
    struct step_device sum = steps_sum(steps);
    if (steps->whole)
        complain(NULL,
                 "%llu %s no steps (ProfilerStep#N): the row of such a trace lasts from its first operator to its "
                 "last; without operators it is the whole trace",
                 (unsigned long long)steps->whole, steps->whole == 1 ? "trace has" : "traces have");
    if (steps->cut)
        complain(NULL,
                 "%llu %s left out, because the profiler may have missed some kernels; --step shows all that it names",
                 (unsigned long long)steps->cut, steps->cut == 1 ? "step at the end is" : "steps at the end are");
    if (sum.unsized && sum.unsized < sum.counted)
        complain(NULL, "the blocks of %llu of %llu kernels are unknown: sm_efficiency_pct is too low",
                 (unsigned long long)sum.unsized, (unsigned long long)sum.counted);
    if (!steps->count && !is_filtered(&session->options))
        complain(NULL, "no steps, operators or device work were recorded; `tfanalyze info` shows the recorded events");
}

/* --device and --stream choose device work: steps without any on them do not match. */
static bool is_anything_found(const struct options *options, const struct steps *steps)
{
    bool by_lane = options->device.count || options->stream.count;
    return !is_filtered(options) || (steps->count && (steps->works || !by_lane));
}

void cmd_steps(struct session *session)
{
    struct steps steps;
    uint64_t top = session->options.top;
    if (!session_ask(session, STYLE_TABLE)) return;
    steps_collect(&steps, session_summaries(session), session->chosen.processes);
    for (size_t i = 0; i < steps.count && (!top || i < top); i++) emit_step(&session->emit, &steps.row[i]);
    emit_sums(&session->emit, &steps);
    emit_end(&session->emit);
    say(session, &steps);
    session_end(session, is_anything_found(&session->options, &steps));
    steps_free(&steps);
}
