/* report_files.c - writes the files of a report: breakdowns and traces of stages.
 *
 * The formats are TeleFuser's. Unknown values are left out or null.
 */
#include <stdlib.h>
#include <string.h>

#include "ask/dump_choice.h"
#include "ask/stages/order.h"
#include "commands/report/report.h"
#include "write/chrome/chrome_file.h"
#include "write/export/export.h"
#include "write/export/export_tfr.h"
#include "write/stage_files.h"

/* ---- names ---- */

static bool is_free(struct report *report, const char *stem)
{
    static const char *const suffixes[] = {".breakdown.json", ".trace.json.gz"};
    bool all = true;
    for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
        char *path = string_format("%s%s", stem, suffixes[i]);
        all &= report_may_take(report, path);
        free(path);
    }
    return all;
}

/* Returns the path of a stage's trace. cache-dit's files have its own names, without a rank in a world of one. */
static char *trace_file(struct report *report, struct stage_files *files, const char *directory,
                        const struct unit *unit, const struct report_stage *stage)
{
    const struct name *name = names_get(&report->session->model.names, stage->name);
    const struct report_asked *asked = &report->asked[stage->name];
    if (!asked->is) return string_format("%s.trace.json.gz", stage->file);
    bool ranked = asked->known ? asked->ranked : unit->process[0]->world > 1;
    char *path = NULL, *suffix = ranked ? string_format("-rank%lld.trace.json.gz", (long long)MAX(unit->rank, 0))
                                        : string_format(".trace.json.gz");
    do {
        free(path);
        path = stage_file_named(files, asked->directory ? asked->directory : directory, "", name->text, name->length,
                                suffix);
    } while (!report_may_take(report, path));
    free(suffix);
    return path;
}

static void name_files(struct report *report, const char *directory)
{
    struct stage_files files = {0};
    for (size_t u = 0; u < report->units; u++) {
        struct unit *unit = &report->unit[u];
        for (size_t i = 0; i < unit->stages; i++) {
            const struct name *name = names_get(&report->session->model.names, unit->stage[i].name);
            do {
                free(unit->stage[i].file);
                unit->stage[i].file = stage_file(&files, directory, name->text, name->length, unit->rank);
            } while (!is_free(report, unit->stage[i].file));
            unit->stage[i].trace_file = trace_file(report, &files, directory, unit, &unit->stage[i]);
        }
    }
    stage_files_free(&files);
}

/* ---- values ---- */

static void put_text(struct out *out, const struct report *report, uint32_t name)
{
    const struct name *text = names_get(&report->session->model.names, name);
    out_json_string(out, text->text, text->length);
}

static void put_ms(struct out *out, double ns)
{
    out_format(out, "%.6f", ns / 1e6);
}

static void put_rank(struct out *out, int64_t rank)
{
    if (rank < 0) out_puts(out, "null");
    else out_number(out, (uint64_t)rank);
}

/* ---- breakdown ---- */

static bool has_known_device(const struct unit *unit)
{
    for (size_t i = 0; i < unit->processes; i++)
        if (unit->process[i]->devices) return true;
    return false;
}

/* An operator's time is its own on the host, so that the times add up. Its
 * time on a device is 0, or unknown if there was a device whose work was not recorded. */
static void put_device_ms(struct out *out, const struct unit *unit, int64_t time)
{
    if (unit->has_device) out_ms(out, time);
    else out_puts(out, has_known_device(unit) ? "null" : "0");
}

static void put_kernels(struct out *out, const struct report *report, const struct unit *unit,
                        const struct stage_row *stage)
{
    out_puts(out, "\"top_kernels\": [");
    for (size_t i = 0; i < MIN(stage->kernels.count, MOST_KERNELS); i++) {
        const struct stage_kernel *k = &stage->kernels.row[i];
        out_puts(out, i ? ",\n    {\"name\": " : "\n    {\"name\": ");
        put_text(out, report, k->name);
        out_puts(out, ", \"ms\": ");
        out_ms(out, k->device);
        out_puts(out, ", \"cuda_ms\": ");
        put_device_ms(out, unit, k->device);
        out_puts(out, ", \"cpu_ms\": ");
        if (k->launched) put_ms(out, k->host);
        else out_puts(out, "null");
        out_format(out, ", \"calls\": %llu}", (unsigned long long)k->calls);
    }
    out_puts(out, stage->kernels.count ? "\n  ]" : "]");
}

/* A stage without content has no file. */
static bool write_breakdown(struct report *report, const struct unit *unit, const struct report_stage *stage)
{
    struct out out;
    if (!stage_kernels_known(stage->sums) || !stage->sums->kernels.count) return true;
    char *path = string_format("%s.breakdown.json", stage->file);
    bool good = report_open(report, &out, path, FILE_SHARED);
    out_puts(&out, "{\n  " REPORT_WRITER ",\n  \"name\": ");
    put_text(&out, report, stage->name);
    out_puts(&out, ",\n  \"rank\": ");
    put_rank(&out, unit->rank);
    if (!unit->has_device) out_puts(&out, ",\n  \"of\": \"operators\"");
    out_puts(&out, ",\n  \"total_kernel_time_ms\": ");
    out_ms(&out, stage->sums->kernel_time);
    out_format(&out, ",\n  \"num_kernels\": %zu,\n  \"launches\": %llu,\n  ", stage->sums->kernels.count,
               (unsigned long long)stage->sums->launches);
    put_kernels(&out, report, unit, stage->sums);
    out_puts(&out, "\n}\n");
    good = report_finish(report, &out, path) && good;
    free(path);
    return good;
}

/* ---- traces ---- */

/* Writes the traces of all stages of a unit that get one, in one pass over its file. */
static bool write_kineto_traces(struct report *report, struct unit *unit)
{
    struct target target[MOST_TRACES] = {{.whole = false}};
    struct chrome_file file[MOST_TRACES] = {{.out = NULL}};
    struct out out[MOST_TRACES];
    struct targets targets = {.target = target};
    struct dump_choice filter;
    char *path[MOST_TRACES];
    uint32_t of_trace[MOST_TRACES];
    const struct process *process = unit->process[0];
    uint32_t *of_name = mem_zero(report->names, sizeof *of_name);
    bool good = true;
    memset(of_trace, 0xff, sizeof of_trace);
    for (size_t i = 0; i < unit->stages && good; i++) {
        const struct report_stage *stage = &unit->stage[i];
        if (stage->trace == NO_PLACE) continue;
        size_t t = targets.count++;
        of_trace[stage->trace] = (uint32_t)t;
        path[t] = string_format("%s", stage->trace_file);
        file[t] = (struct chrome_file){
            .out = &out[t], .artefact = "stage", .stage = names_get(&report->session->model.names, stage->name)};
        target[t].taker = chrome_taker(&file[t]);
        target[t].whole = stage->name == NAME_RUN && !has_stages(process);
        good = report_open(report, &out[t], path[t], FILE_PRIVATE);
    }
    for (size_t i = 0; i < report->names; i++)
        of_name[i] = report->chosen[i] == NO_PLACE ? NO_PLACE : of_trace[report->chosen[i]];
    targets.of_name = of_name;
    selection_window(&report->session->chosen, &targets.from, &targets.to);
    dump_choice_init(&filter, &report->session->chosen, process);
    targets.filter = filter.asked ? &filter : NULL;
    good = good && (!targets.count ||
                    export_targets(&targets, &report->session->chosen, process, &unit->scope[0]->attribution));
    for (size_t t = 0; t < targets.count; t++) {
        if (good) good = report_finish(report, &out[t], path[t]);
        else out_discard(&out[t]);
        free(path[t]);
    }
    dump_choice_free(&filter);
    free(of_name);
    return good;
}

static bool write_tfr_trace(struct report *report, const struct unit *unit, const struct report_stage *stage,
                            struct tfr_shared *shared)
{
    struct out out;
    const char *path = stage->trace_file;
    struct tfr_export asked = {.process = unit->process,
                               .processes = unit->processes,
                               .out = &out,
                               .artefact = "stage",
                               .stage = names_get(&report->session->model.names, stage->name),
                               .of_name = report->chosen,
                               .target = stage->trace,
                               .without = report->asked[stage->name].without,
                               .shared = shared};
    bool good = report_open(report, &out, path, FILE_PRIVATE);
    if (good) {
        export_tfr(&asked, &report->session->chosen);
        good = report_finish(report, &out, path);
    } else {
        out_discard(&out);
    }
    return good;
}

static bool write_traces(struct report *report, struct unit *unit)
{
    bool good = true;
    if (is_of_kineto(unit->process[0])) return write_kineto_traces(report, unit);
    struct tfr_shared *shared = mem_zero(unit->processes, sizeof *shared);
    for (size_t i = 0; i < unit->stages && good; i++) {
        /* Memory alone makes no trace, as in cache-dit. */
        good = unit->stage[i].trace == NO_PLACE || without_calls(report->asked[unit->stage[i].name].without) ||
               write_tfr_trace(report, unit, &unit->stage[i], shared);
    }
    tfr_shared_free(shared, unit->processes);
    free(shared);
    return good;
}

/* ---- all files ---- */

bool report_write(struct report *report, const char *directory)
{
    const struct session *session = report->session;
    bool good = report_add_place(report, directory, REPORT_TYPED) &&
                (session->options.output ||
                 report_is_beside(report, &session->inputs.input[session->chosen.process[0]->input]));
    if (good) {
        name_files(report, directory);
        good = report_write_timing(report, directory) && report_write_signatures(report, directory);
    }
    for (size_t u = 0; u < report->units && good; u++) {
        struct unit *unit = &report->unit[u];
        for (size_t i = 0; i < unit->stages && good; i++) good = write_breakdown(report, unit, &unit->stage[i]);
        good = good && write_traces(report, unit) && report_write_memory(report, directory, unit);
    }
    return good;
}
