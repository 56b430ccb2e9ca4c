/* export_tfr.c - writes .tfr traces in the Chrome trace event format, for Perfetto, chrome://tracing, HTA and
 * TensorBoard.
 *
 * Stages and calls are complete events (X), which a viewer draws as nested boxes. Boxes of one thread must nest, but
 * started ranges, ranges of several NVTX domains and unfinished ranges may cross. A range that would cross another
 * event is written as an asynchronous pair (b, e) instead. Times count from the start of the three-month period that
 * Kineto uses as a base, so that traces of several ranks share one axis and doubles keep every nanosecond.
 */
#include "write/export/export_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask/left_out.h"
#include "ask/stages/order.h"
#include "model/join.h"
#include "read/stream/stream.h"
#include "write/chrome/chrome_file.h"
#include "write/chrome/chrome_merge.h"
#include "write/values.h"

const struct needs export_tfr_needs = {.traces = true,
                                       .ranges = true,
                                       .details = true,
                                       .marks = true,
                                       .calls = true,
                                       .device = true,
                                       .launches = true,
                                       .operators = true,
                                       .operator_details = true,
                                       .memory = true,
                                       .samples = true,
                                       .looks = true,
                                       .signatures = true,
                                       .io = true};

enum { BASE_SECONDS = 7889238 };

/* ---- events ---- */

/* Writes the members common to all events of threads. */
static void put_common(struct export *x, const char *category, const struct name *name, uint32_t thread, int64_t time)
{
    emit_text(&x->e, "cat", category);
    emit_bytes_text(&x->e, "name", name->text, name->length);
    put_place(x, x->pid, tid_of(x, thread), time);
}

static void put_detail(struct export *x, uint32_t domain, const struct range_detail *detail)
{
    struct emit *e = &x->e;
    const struct model *model = x->chosen->model;
    if (domain) emit_text(e, "domain", model_name(model, domain));
    const char *category = detail->category ? find_category(model, x->process, domain, detail->category) : NULL;
    if (category) emit_text(e, "category", category);
    else if (detail->category) emit_count(e, "category", detail->category);
    if (detail->color) {
        char color[16];
        snprintf(color, sizeof color, "#%08x", detail->color);
        emit_text(e, "color", color);
    }
    if (detail->payload_type) emit_payload(e, "payload", detail->payload, detail->payload_type);
}

static const char *range_category(const struct export *x, size_t i)
{
    const struct ranges *r = &x->process->ranges;
    if (r->flags[i] & TFI_RANGE_STAGE) return "user_annotation";
    return r->domain[i] ? model_name(x->chosen->model, r->domain[i]) : "range";
}

static void put_range(struct export *x, size_t i)
{
    const struct ranges *r = &x->process->ranges;
    struct name step;
    const struct name *name = range_name(x, i, &step);
    bool pair = x->shared->crosses[i];
    begin_event(x, pair ? "b" : "X");
    put_common(x, range_category(x, i), name, r->thread[i], r->start[i]);
    if (pair) emit_hex(&x->e, "id", ++x->pairs);
    else emit_us(&x->e, "dur", r->end[i] - r->start[i]);
    emit_open(&x->e, "args", false);
    put_detail(x, r->domain[i], &r->detail[i]);
    const struct op_detail *inputs = range_inputs(x->process, i);
    if (inputs) put_inputs(x, inputs);
    put_range_details(x, i);
    if (r->flags[i] & RANGE_UNFINISHED) emit_bool(&x->e, "unfinished", true);
    if (r->flags[i] & RANGE_CONTINUED) emit_bool(&x->e, "continued", true);
    emit_close(&x->e);
    end_event(x);
    if (pair) {
        begin_event(x, "e");
        put_common(x, range_category(x, i), name, r->thread[i], r->end[i]);
        emit_hex(&x->e, "id", x->pairs);
        end_event(x);
    }
    if (name == &step) free(step.text);
}

static void put_mark(struct export *x, size_t i)
{
    const struct marks *m = &x->process->marks;
    begin_event(x, "i");
    put_common(x, m->domain[i] ? model_name(x->chosen->model, m->domain[i]) : "mark",
               names_get(&x->chosen->model->names, m->name[i]), m->thread[i], m->time[i]);
    emit_text(&x->e, "s", "t");
    emit_open(&x->e, "args", false);
    put_detail(x, m->domain[i], &m->detail[i]);
    emit_close(&x->e);
    end_event(x);
}

/* Sets Kineto's category for device calls, else the function's class. */
static void call_category(char *category, size_t size, const struct func *func)
{
    if (is_device_call(func))
        snprintf(category, size, "%s", strcmp(func->library, "cuda") == 0 ? "cuda_driver" : "cuda_runtime");
    else lower_case(category, size, *func->call_class ? func->call_class : "call");
}

static void put_call(struct export *x, size_t i)
{
    const struct process *p = x->process;
    const struct calls *c = &p->calls;
    const struct func *func = &p->func[c->func[i]];
    char *recorded = name_of_record(x->shared, (uint32_t)i);
    char *text = recorded ? recorded : func->name;
    struct name name = {.text = text, .length = (uint32_t)strlen(text)};
    struct meaning meaning = {.process = p};
    char category[64];
    call_category(category, sizeof category, func);
    begin_event(x, "X");
    put_common(x, category, &name, c->thread[i], c->start[i]);
    emit_us(&x->e, "dur", c->end[i] - c->start[i]);
    emit_open(&x->e, "args", false);
    if (recorded) emit_text(&x->e, "function", func->name);
    free(recorded);
    for (uint64_t k = c->first_arg[i]; k < c->first_arg[i + 1]; k++) {
        unsigned index = (unsigned)(k - c->first_arg[i]);
        char *key = index < func->args ? string_format("%s", func->arg[index]) : string_format("arg%u", index);
        enum tfi_type type = index < func->args ? func->type[index] : TFI_TYPE_HEX;
        emit_typed(&x->e, &meaning, key, type, false, p->args[k]);
        free(key);
    }
    if (c->span[i] != NO_PLACE) put_external_id(x, x->shared->launcher[c->span[i]]);
    put_correlation(x, id_of_call(x->shared, (uint32_t)i));
    emit_int(&x->e, "result", c->result[i]);
    if (c->error[i]) emit_int(&x->e, "errno", c->error[i]);
    emit_close(&x->e);
    end_event(x);
}

/* ---- head of a process ---- */

static void put_process(struct export *x)
{
    const struct process *p = x->process;
    const char *program = p->command ? p->command : p->path;
    char *name =
        p->rank >= 0 ? string_format("rank %lld: %.60s", (long long)p->rank, program) : string_format("%.60s", program);
    struct text left_out = {0};
    left_out_describe(&left_out, p);
    char *label = string_format("pid %lld on %s%s%s%s", (long long)p->pid, p->host ? p->host : "an unknown host",
                                p->complete ? "" : ", incomplete", left_out.length ? ", " : "",
                                left_out.length ? left_out.data : "");
    put_metadata(x, "process_name", x->pid, 0, "name", name, 0);
    put_metadata(x, "process_labels", x->pid, 0, "labels", label, 0);
    put_metadata(x, "process_sort_index", x->pid, 0, "sort_index", NULL,
                 is_alone(x) ? MAX(p->rank, 0) : x->place * ROWS_OF_PROCESS);
    for (size_t i = 0; i < p->threads; i++) {
        const struct thread *thread = &p->thread[i];
        const char *thread_name = model_name(x->chosen->model, thread->name);
        if (*thread_name) put_metadata(x, "thread_name", x->pid, tid_of(x, thread->serial), "name", thread_name, 0);
    }
    free(name);
    free(label);
    text_free(&left_out);
}

static bool wants_function(const struct export *x, const struct func *func)
{
    uint32_t without = x->asked->without;
    return is_device_call(func) ? !without_calls(without) : !(without & WITHOUT_CPU);
}

static void put_events(struct export *x)
{
    const struct process *p = x->process;
    for (size_t i = 0; i < p->ranges.table.count; i++)
        if (wants_range(x, i)) put_range(x, i);
    for (size_t i = 0; i < p->marks.table.count; i++)
        if (is_wanted(x, p->marks.thread[i], p->marks.time[i], p->marks.time[i])) put_mark(x, i);
    for (size_t i = 0; i < p->calls.table.count; i++)
        if (wants_function(x, &p->func[p->calls.func[i]]) &&
            is_wanted_call(x, p->calls.thread[i], p->calls.start[i], p->calls.end[i], p->calls.span[i]))
            put_call(x, i);
}

/* Chooses the process's pid. In a file of one process devices have the pids that Kineto gives them; a process with
 * the same number gets another one. */
static void number_process(struct export *x)
{
    const struct process *p = x->process;
    for (size_t i = 0; i < p->lanes && is_alone(x); i++) {
        if (p->lane[i].device == p->pid) {
            x->pid = free_pid(x, -1);
            return;
        }
    }
    x->pid = free_pid(x, p->pid);
}

/* True if the whole process is written. A process without stages counts as one stage, NAME_RUN. */
static bool is_whole(const struct export *x)
{
    const uint32_t *of_name = x->asked->of_name;
    return !of_name || (of_name[NAME_RUN] == x->asked->target && !has_stages(x->process));
}

/* Makes what the exports of the process share, unless an earlier one made it. */
static void share(struct export *x)
{
    struct tfr_shared *shared = x->shared;
    x->scope = &shared->scope;
    if (shared->is_made) return;
    shared->is_made = true;
    scope_init(&shared->scope, x->chosen, x->process,
               (struct needs){.operators_of_work = true, .stages_of_spans = !x->whole || x->asked->shared});
    scope_attribute(&shared->scope);
    find_crossings(shared);
    find_launchers(shared);
    find_details(shared);
    find_event_waits(shared);
}

void tfr_shared_free(struct tfr_shared *shared, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!shared[i].is_made) continue;
        scope_free(&shared[i].scope);
        free(shared[i].crosses);
        free(shared[i].launcher);
        map_free(&shared[i].details);
        map_free(&shared[i].record_of);
        map_free(&shared[i].record_id);
        map_free(&shared[i].awaited);
    }
}

static uint64_t put_one(struct export *x)
{
    number_process(x);
    x->whole = is_whole(x);
    share(x);
    if (!x->whole) x->paths = chosen_paths(&x->scope->attribution, x->asked->of_name, x->asked->target);
    const struct event_taker *taker = x->asked->taker;
    if (taker) taker->begin(taker->context, x->process, x->pid);
    put_process(x);
    put_devices(x);
    uint64_t before = x->events;
    put_events(x);
    put_wholes(x);
    if (!(x->asked->without & WITHOUT_CPU)) put_ios(x);
    put_python(x);
    put_stack_samples(x);
    put_operators(x);
    put_forwards(x);
    put_blocks(x);
    put_spans(x);
    put_works(x);
    put_samples(x);
    if (taker) taker->end(taker->context);
    x->operators += x->process->spans.table.count;
    stage_paths_free(&x->paths);
    map_free(&x->device_of);
    free(x->device_pid);
    return x->events - before;
}

static uint64_t put_processes(struct export *x)
{
    uint64_t events = 0;
    for (size_t i = 0; i < x->asked->processes; i++) {
        struct tfr_shared own = {0};
        x->process = x->asked->process[i];
        x->shared = x->asked->shared ? &x->asked->shared[i] : &own;
        x->place = x->taken ? x->place : (int64_t)i;
        events += put_one(x);
        tfr_shared_free(&own, 1);
    }
    map_free(&x->json);
    return events;
}

/* Says that sums over the events of this file are of a part only. */
static void put_left_out(struct export *x)
{
    struct text text = {0};
    for (size_t i = 0; i < x->asked->processes && !text.length; i++) left_out_describe(&text, x->asked->process[i]);
    if (text.length) emit_text(&x->e, "left_out", text.data);
    text_free(&text);
}

/* Writes what describes the whole trace. Readers search for `"rank": N` with the space. */
static void put_trace(struct export *x, int64_t rank)
{
    const struct process *first = x->asked->process[0];
    if (rank >= 0) put_distributed(x, first, rank);
    emit_open(&x->e, "metadata", false);
    emit_text(&x->e, "writer", "tfanalyze " TFI_VERSION);
    put_left_out(x);
    for (size_t i = 0; i < first->metadata->count; i++)
        if (strcmp(first->metadata->pair[i].key, "left_out") != 0)
            emit_text(&x->e, first->metadata->pair[i].key, first->metadata->pair[i].value);
    emit_close(&x->e);
    put_given(x, first->metadata);
    put_device_properties(x);
}

static void put_head(struct export *x)
{
    const struct tfr_export *asked = x->asked;
    int64_t rank = asked->process[0]->rank;
    for (size_t i = 1; i < asked->processes; i++) rank = asked->process[i]->rank == rank ? rank : -1;
    out_puts(asked->out, "{");
    put_writer(asked->out, asked->artefact, asked->stage, rank);
    x->e.filled[0] = true;
    emit_int(&x->e, "schemaVersion", 1);
    put_trace(x, rank);
    emit_text(&x->e, "displayTimeUnit", "ms");
    emit_int(&x->e, "baseTimeNanoseconds", x->base);
    out_puts(asked->out, ",\n\"traceEvents\": [");
}

static uint64_t write_file(struct export *x)
{
    put_head(x);
    uint64_t events = put_processes(x);
    out_puts(x->out, "\n]}\n");
    return events;
}

int64_t export_base(int64_t start)
{
    int64_t period = BASE_SECONDS * (int64_t)1000000000;
    return start > 0 ? start / period * period : MIN(start, 0);
}

static void init(struct export *x, const struct tfr_export *asked, const struct selection *chosen)
{
    *x = (struct export){.asked = asked, .chosen = chosen, .e = {.format = FORMAT_JSON}};
    x->out = x->e.out = asked->out;
    x->e.values = asked->taker ? &x->values : NULL;
    selection_window(chosen, &x->from, &x->to);
}

uint64_t export_tfr(const struct tfr_export *asked, const struct selection *chosen)
{
    struct export x;
    init(&x, asked, chosen);
    x.base = export_base(MAX(chosen->model->start, 0));
    uint64_t events = asked->taker ? put_processes(&x) : write_file(&x);
    event_values_free(&x.values);
    map_free(&x.pids);
    return events;
}

uint64_t export_tfr_merged(const struct tfr_export *asked, const struct selection *chosen, struct merged *file,
                           size_t place)
{
    struct export x;
    init(&x, asked, chosen);
    x.taken = &file->one[place].pids;
    x.place = (int64_t)place;
    x.base = file->base;
    x.events = file->events;
    x.pids = file->pids;
    x.pairs = x.arrows = x.operators = x.pythons = x.forwards = x.calls = x.most = file->ids;
    uint64_t events = put_processes(&x);
    file->pids = x.pids;
    file->events = x.events;
    file->ids = 1 + MAX(MAX(MAX(x.arrows, x.operators), MAX(x.forwards, x.pairs)), MAX(x.pythons, x.most));
    return events;
}

void export_tfr_metadata(struct out *out, const struct process *process, const struct selection *chosen)
{
    struct tfr_export asked = {.process = &process, .processes = 1, .out = out};
    struct export x;
    init(&x, &asked, chosen);
    put_trace(&x, process->rank);
}
