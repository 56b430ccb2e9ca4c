/* info.c - reports a trace's contents, its completeness and the cost of recording it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ask/unmatched_names.h"
#include "commands/memory/memory_values.h"
#include "commands/session.h"
#include "commands/session_notes.h"
#include "model/host/whole_run.h"

/* Prints a moment as ISO 8601 with microseconds, in UTC. */
static void emit_moment(struct emit *e, const char *key, int64_t ns)
{
    char date[64], whole[96];
    time_t seconds = (time_t)(ns / 1000000000 - (ns % 1000000000 < 0));
    struct tm tm;
    if (!gmtime_r(&seconds, &tm) || !strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm)) {
        emit_null(e, key);
        return;
    }
    int64_t rest = ns - (int64_t)seconds * 1000000000;
    snprintf(whole, sizeof whole, "%s.%06dZ", date, (int)(rest / 1000));
    emit_text(e, key, whole);
}

static void emit_counts(struct emit *e, const struct process *p)
{
    emit_open(e, "events", false);
    for (size_t i = 0; i < p->kind_count; i++) emit_count(e, p->kinds[i].name, p->kinds[i].count);
    emit_close(e);
    for (int lost = 1; lost >= 0; lost--) {
        emit_open(e, lost ? "lost" : "counted", false);
        for (size_t i = 0; i < p->loss_count; i++)
            if (p->losses[i].lost == lost) emit_count(e, p->losses[i].cause, p->losses[i].count);
        emit_close(e);
    }
}

/* Prints the doubts about the trace: {doubt, count, of, worst_us}. */
static void emit_health(struct emit *e, const struct process *p)
{
    emit_open(e, "health", true);
    for (size_t i = 0; i < NR_DOUBTS; i++) {
        const struct doubt *d = &p->health.doubt[i];
        if (!d->count) continue;
        emit_open(e, NULL, false);
        emit_text(e, "doubt", doubt_key(i));
        emit_count(e, "count", d->count);
        emit_count(e, "of", d->of);
        if (d->worst > 0) emit_us(e, "worst_us", d->worst);
        else emit_null(e, "worst_us");
        emit_close(e);
    }
    emit_close(e);
}

static void emit_clock(struct emit *e, const struct process *p)
{
    emit_text(e, "clock", p->clock_name);
    emit_open(e, "clock_steps", true);
    for (size_t i = 0; i < p->clock.steps; i++) {
        emit_open(e, NULL, false);
        emit_us(e, "at_us", p->clock.step[i].at - p->first);
        emit_us(e, "by_us", p->clock.step[i].by);
        emit_close(e);
    }
    emit_close(e);
}

/* Simulated devices are always labelled. */
static void emit_device(struct emit *e, const struct model *model, const struct device *device, uint64_t samples)
{
    char uuid[DEVICE_UUID];
    device_uuid(device, uuid);
    emit_open(e, NULL, false);
    emit_count(e, "device", device->number);
    emit_text(e, "name", model_name(model, device->name));
    emit_bool(e, "simulated", device->simulated);
    emit_text(e, "uuid", uuid);
    emit_bytes(e, "memory_bytes", device->memory);
    emit_count(e, "units", device->units);
    emit_count(e, "samples", samples);
    emit_close(e);
}

/* Prints the devices, each with the number of samples of its clocks. */
static void emit_devices(struct emit *e, const struct model *model, const struct process *p)
{
    uint64_t *samples = mem_zero(p->devices, sizeof *samples);
    for (size_t i = 0; i < p->samples; i++) {
        const struct device *device = find_device(p, p->sample[i].device);
        if (device) samples[device - p->device]++;
    }
    emit_open(e, "devices", true);
    for (size_t i = 0; i < p->devices; i++) emit_device(e, model, &p->device[i], samples[i]);
    emit_close(e);
    free(samples);
}

/* Prints each switch of recording: its time, new state and cause. */
static void emit_switchings(struct emit *e, const struct model *model, const struct process *p)
{
    static const char *const states[] = {
        [RECORDING_OFF] = "off", [RECORDING_WARMUP] = "warm-up", [RECORDING_ON] = "on"};
    emit_open(e, "recording", true);
    for (size_t i = 0; i < p->switchings; i++) {
        const struct switching *s = &p->switching[i];
        emit_open(e, NULL, false);
        emit_us(e, "at_us", s->time - p->first);
        emit_text(e, "state", s->state < ARRAY_SIZE(states) ? states[s->state] : NULL);
        emit_text(e, "cause", model_name(model, s->cause));
        emit_count(e, "cycle", s->cycle);
        emit_count(e, "step", s->step);
        emit_close(e);
    }
    emit_close(e);
}

/* Prints the stretches in which another profiler held the device alone. A null end means until the end of the
 * process. */
static void emit_elsewhere(struct emit *e, const struct model *model, const struct process *p)
{
    emit_open(e, "device_elsewhere", true);
    for (size_t i = 0; i < p->elsewheres; i++) {
        const struct elsewhere *stretch = &p->elsewhere[i];
        emit_open(e, NULL, false);
        emit_us(e, "from_us", stretch->from - p->first);
        if (stretch->to == INT64_MAX) emit_null(e, "to_us");
        else emit_us(e, "to_us", stretch->to - p->first);
        emit_text(e, "who", model_name(model, stretch->who));
        emit_close(e);
    }
    emit_close(e);
}

/* Prints what the trace reveals, for users who want to share it. */
static void emit_reveals(struct emit *e, const struct process *p)
{
    const struct reveals *reveals = &p->reveals;
    static const char *const commands[] = {
        [COMMAND_WHOLE] = "whole", [COMMAND_SHORTENED] = "without secrets", [COMMAND_NAME] = "program's name"};
    if (!reveals->known) {
        emit_null(e, "reveals");
        return;
    }
    emit_open(e, "reveals", false);
    emit_text(e, "command_line", commands[reveals->command]);
    emit_count(e, "left_out", reveals->left_out);
    emit_bool(e, "values", reveals->values);
    emit_count(e, "texts", reveals->texts);
    emit_count(e, "source_lines", reveals->lines);
    emit_text(e, "paths", reveals->paths);
    emit_text(e, "environment", reveals->environment);
    emit_close(e);
}

static void emit_fact(struct emit *e, const struct machine *machine, const char *key, const char *fact)
{
    int64_t value = machine_number(machine, fact);
    if (value < 0) emit_null(e, key);
    else if (strstr(key, "_bytes")) emit_bytes(e, key, (uint64_t)value);
    else emit_count(e, key, (uint64_t)value);
}

/* Prints the number of threads that operators ran on, and its changes. */
static void emit_pools(struct emit *e, const struct process *p)
{
    const struct machine *machine = &p->machine;
    emit_open(e, "operator_threads", true);
    for (size_t i = 0; i < machine->pools; i++) {
        uint32_t at = map_get(&p->thread_of, machine->pool[i].thread);
        emit_open(e, NULL, false);
        emit_us(e, "from_us", machine->pool[i].time - p->first);
        if (at == MAP_NONE) emit_null(e, "thread");
        else emit_count(e, "thread", p->thread[at].tid);
        emit_count(e, "threads", machine->pool[i].threads);
        emit_close(e);
    }
    emit_close(e);
}

/* Prints the largest values of the samples of the process, and its last number of threads. */
static void emit_largest(struct emit *e, const struct machine *machine)
{
    uint64_t threads = 0, resident = 0, cgroup = 0;
    for (size_t i = 0; i < machine->samples; i++) {
        threads = MAX(threads, machine->sample[i].threads);
        resident = MAX(resident, machine->sample[i].resident);
        cgroup = MAX(cgroup, machine->sample[i].cgroup);
    }
    if (machine->samples) emit_count(e, "most_threads", threads);
    else emit_null(e, "most_threads");
    emit_total_bytes(e, "peak_resident_bytes", resident ? resident : TOTAL_UNKNOWN);
    emit_total_bytes(e, "peak_cgroup_bytes", cgroup ? cgroup : TOTAL_UNKNOWN);
}

static void emit_machine(struct emit *e, const struct process *p)
{
    const struct machine *machine = &p->machine;
    if (!machine->facts || !machine->facts->count) {
        emit_null(e, "machine");
        return;
    }
    int64_t quota = machine_number(machine, "quota_millis");
    emit_open(e, "machine", false);
    emit_fact(e, machine, "processors", "processors");
    emit_fact(e, machine, "usable_processors", "usable_processors");
    emit_text(e, "affinity", pairs_get(machine->facts, "affinity"));
    if (quota < 0) emit_null(e, "cpu_quota");
    else emit_double(e, "cpu_quota", (double)quota / 1000);
    emit_fact(e, machine, "memory_bytes", "memory");
    emit_fact(e, machine, "memory_limit_bytes", "memory_limit");
    emit_fact(e, machine, "gpus", "gpus");
    emit_open(e, "settings", false);
    for (size_t i = 0; i < machine->settings->count; i++)
        emit_text(e, machine->settings->pair[i].key, machine->settings->pair[i].value);
    emit_close(e);
    emit_pools(e, p);
    emit_largest(e, machine);
    emit_close(e);
}

static void emit_words(struct emit *e, const struct model *model, const struct process *p)
{
    emit_count(e, "threads", p->threads);
    emit_devices(e, model, p);
    emit_machine(e, p);
    emit_text(e, "command", p->command);
    emit_text(e, "directory", p->directory);
    emit_text(e, "version", p->version);
    emit_open(e, "metadata", false);
    for (size_t i = 0; p->metadata && i < p->metadata->count; i++)
        emit_text(e, p->metadata->pair[i].key, p->metadata->pair[i].value);
    emit_close(e);
    emit_reveals(e, p);
    emit_switchings(e, model, p);
    emit_open(e, "messages", true);
    for (size_t i = 0; i < p->messages.table.count; i++) {
        const struct name *text = names_get(&model->names, p->messages.text[i]);
        emit_bytes_text(e, NULL, text->text, text->length);
    }
    emit_close(e);
}

/* Prints the requested names that match no stage: {variable, name, nearest}. `nearest` is null if no stage is near. */
static void emit_unmatched(struct emit *e, const struct model *model, struct unmatched *unmatched,
                           const struct process *p)
{
    unmatched_find(unmatched, p);
    emit_open(e, "unmatched_names", true);
    for (size_t i = 0; i < unmatched->names; i++) {
        const struct unmatched_name *found = &unmatched->name[i];
        const struct name *nearest = names_get(&model->names, found->nearest);
        emit_open(e, NULL, false);
        emit_text(e, "variable", found->variable);
        emit_text(e, "name", names_get(&unmatched->asked, found->name)->text);
        if (found->nearest == NAME_NONE) emit_null(e, "nearest");
        else emit_bytes_text(e, "nearest", nearest->text, nearest->length);
        emit_close(e);
    }
    emit_close(e);
}

/* Prints a moment whose seconds before were kept: the trace has all records from `from` to `end`, which --from and --to take. */
static void emit_moment_kept(struct emit *e, const struct model *model, const struct whole_moment *m)
{
    static const char *const causes[] = {[TFI_MOMENT_SLOW] = "slow", "error", "trigger"};
    emit_open(e, NULL, false);
    emit_text(e, "cause", m->cause < ARRAY_SIZE(causes) ? causes[m->cause] : NULL);
    emit_text(e, "name", m->name == NAME_NONE ? NULL : model_name(model, m->name));
    if (m->from) emit_us(e, "from_us", m->from - model->start);
    else emit_null(e, "from_us");
    emit_us(e, "end_us", m->end - model->start);
    emit_us(e, "took_us", m->end - m->start);
    if (m->cause == TFI_MOMENT_SLOW) emit_us(e, "usual_us", m->usual);
    else emit_null(e, "usual_us");
    emit_bool(e, "whole", !m->is_cut);
    emit_close(e);
}

/* Prints what is known of the whole run: where the sums end, how many there are, the values that are in no sum of their own. */
static void emit_whole_run(struct emit *e, const struct model *model, const struct whole_run *whole)
{
    uint64_t others = 0;
    for (size_t i = 0; whole && i < whole->sums; i++)
        if (whole->sum[i].name == NAME_NONE) others += whole->sum[i].count;
    if (whole && whole->sums) emit_moment(e, "sums_until", whole->until);
    else emit_null(e, "sums_until");
    emit_count(e, "sums", whole ? whole->sums : 0);
    emit_count(e, "values_of_others", others);
    emit_open(e, "moments", true);
    for (size_t i = 0; whole && i < whole->moments; i++) emit_moment_kept(e, model, &whole->moment[i]);
    emit_close(e);
    emit_count(e, "moments_left_out", whole ? whole->left_out : 0);
}

/* Prints what TFI_MODE=flight kept of the run; null if all records are there. */
static void emit_ring(struct emit *e, const struct model *model, const struct process *p)
{
    if (!p->ring.chunks) {
        emit_null(e, "flight");
        return;
    }
    emit_open(e, "flight", false);
    if (p->clock.has_rate) emit_us(e, "kept_us", MAX(p->last - (int64_t)p->ring.since, 0));
    else emit_null(e, "kept_us");
    emit_count(e, "left_out", p->ring.records);
    emit_whole_run(e, model, p->ring.whole);
    emit_close(e);
}

static void emit_process(struct session *session, struct unmatched *unmatched, const struct process *p)
{
    struct emit *e = &session->emit;
    const struct model *model = &session->model;
    emit_row(e);
    emit_text(e, "path", p->path);
    emit_text(e, "kind", p->kind);
    emit_known(e, "rank", p->rank);
    emit_known(e, "world", p->world);
    emit_text(e, "host", p->host);
    emit_known(e, "pid", p->pid);
    if (p->has_time && p->clock.has_axis) emit_moment(e, "start", p->first);
    else emit_null(e, "start");
    if (p->has_time && p->clock.has_rate) emit_us(e, "duration_us", p->last - p->first);
    else emit_null(e, "duration_us");
    emit_text(e, "ended", p->ended);
    emit_bool(e, "complete", p->complete);
    emit_ring(e, model, p);
    emit_counts(e, p);
    emit_health(e, p);
    if (p->has_cost) emit_us(e, "own_cost_us", (int64_t)p->own_cost_ns);
    else emit_null(e, "own_cost_us");
    emit_clock(e, p);
    emit_unmatched(e, model, unmatched, p);
    emit_elsewhere(e, model, p);
    emit_words(e, model, p);
    emit_row_end(e);
}

struct needs info_needs(const struct options *options)
{
    (void)options;
    return (struct needs){.messages = true, .stage_names = true, .samples = true, .machine = true, .health = true};
}

void cmd_info(struct session *session)
{
    struct emit *e = &session->emit;
    struct unmatched unmatched;
    uint64_t events = 0, lost = 0, complete = 0;
    if (!session_ask(session, STYLE_BLOCKS)) return;
    unmatched_init(&unmatched, &session->chosen);
    for (size_t i = 0; i < session->chosen.processes; i++) {
        const struct process *p = session->chosen.process[i];
        emit_process(session, &unmatched, p);
        events += p->events;
        lost += p->lost;
        complete += p->complete;
    }
    if (unmatched.gave_up) {
        complain(NULL,
                 "the %zu stages are too many to compare every name of ENABLE_PROFILER_NAMES and TFI_STAGES with them",
                 unmatched.stages);
        session_spoil(session);
    }
    unmatched_free(&unmatched);
    emit_totals(e);
    emit_count(e, "processes", session->chosen.processes);
    emit_count(e, "complete", complete);
    emit_count(e, "events", events);
    emit_count(e, "lost", lost);
    emit_count(e, "unreadable", session_unread(session));
    emit_end(e);
    session_end(session, true);
}
