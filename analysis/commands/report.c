/* report.c - writes all files of a run, and prints one screen that sums it up. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/choice.h"
#include "commands/page/page.h"
#include "commands/report/report.h"
#include "write/export/export_tfr.h"
#include "write/page/page_file.h"
#include "write/stage_files.h"

/* Returns the union of a unit's work over its devices. */
static struct intervals busy_of(const struct stage_row *all)
{
    struct intervals busy = {0};
    for (size_t i = 0; i < all->devices; i++)
        for (size_t k = 0; k < all->device[i].busy.count; k++)
            intervals_add(&busy, all->device[i].busy.interval[k].start, all->device[i].busy.interval[k].end);
    intervals_merge(&busy);
    return busy;
}

/* True if some work that ran meanwhile is not in the traces. */
static bool lacks_work(const struct unit *unit)
{
    struct left_rows left = {0};
    for (size_t i = 0; i < unit->processes; i++) scope_left_rows(unit->scope[i], &left);
    left_rows_free(&left);
    return left.any;
}

static void emit_unit(struct emit *e, const struct unit *unit)
{
    const struct stage_row *all = &unit->sums.all;
    struct intervals busy = busy_of(all);
    int64_t span = busy.count ? busy.interval[busy.count - 1].end - busy.interval[0].start : 0;
    int64_t total = intervals_total(&busy);
    emit_row(e);
    emit_known(e, "rank", unit->rank);
    struct window span_of = report_window(unit);
    if (span_of.from <= span_of.to) emit_us(e, "span_us", span_of.to - span_of.from);
    else emit_null(e, "span_us");
    emit_count(e, "stages", unit->stages);
    emit_hide(e, lacks_work(unit));
    if (unit->has_device && stage_kernels_known(all)) {
        emit_us(e, "busy_us", total);
        emit_pct(e, "busy_pct", span ? 100.0 * (double)total / (double)span : NAN);
        emit_us(e, "idle_us", span - total);
        emit_count(e, "kernels", all->kernels.count);
        emit_count(e, "launches", all->launches);
    } else {
        static const char *const unknown[] = {"busy_us", "busy_pct", "idle_us", "kernels", "launches"};
        for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) emit_null(e, unknown[i]);
    }
    emit_row_end(e);
    intervals_free(&busy);
}

static void emit_devices(struct emit *e, const struct session *session, const struct process *process)
{
    for (size_t i = 0; i < process->devices; i++) {
        const struct device *device = &process->device[i];
        emit_open(e, NULL, false);
        emit_known(e, "rank", process->rank);
        emit_count(e, "device", device->number);
        emit_text(e, "name", model_name(&session->model, device->name));
        emit_bool(e, "simulated", device->simulated);
        emit_close(e);
    }
}

static void emit_report(const struct report *report, const char *directory)
{
    struct session *session = report->session;
    struct emit *e = &session->emit;
    for (size_t i = 0; i < report->units; i++) emit_unit(e, &report->unit[i]);
    emit_totals(e);
    emit_text(e, "directory", directory);
    emit_open(e, "devices", true);
    for (size_t i = 0; i < session->chosen.processes; i++) emit_devices(e, session, session->chosen.process[i]);
    emit_close(e);
    emit_count(e, "out_of_memory", report_refused(report));
    emit_count(e, "traces_left_out", report->left_out);
    emit_open(e, "files", true);
    for (size_t i = 0; i < report->files; i++) emit_text(e, NULL, report->file[i]);
    emit_close(e);
    emit_end(e);
}

/* Starts the answer, always on stdout: for this command --output names the directory of the files. */
static bool begin_report(struct session *session)
{
    char *directory = session->options.output;
    session->options.output = NULL;
    bool good = session_begin(session, STYLE_TABLE);
    session->options.output = directory;
    return good;
}

struct needs report_needs(const struct options *options)
{
    (void)options;
    return needs_union(export_tfr_needs, (struct needs){.grants = true,
                                                        .captures = true,
                                                        .operators_of_work = true,
                                                        .stages_of_spans = true,
                                                        .stream = STREAM_HELD});
}

/* Collects the data of the page first, while nothing else is in memory. The report reads the same inputs afterwards, and
 * says what is wrong with them. */
static void collect_page(struct session *session, struct out *data)
{
    const int status = session->status;
    struct text said = {0};
    complain_into(&said);
    if (!page_collect(session, data)) data->used = 0;
    complain_into(NULL);
    session->status = status;
    text_free(&said);
}

/* Writes the page beside the other files. Where that fails a message says so, and the report goes on. */
static void write_page(struct report *report, const char *directory, const struct out *data)
{
    struct out out;
    char *path = report_path(report, directory, "report", ".html");
    if (report_open(report, &out, path, FILE_PRIVATE)) {
        page_write(&out, data->buffer, data->used);
        report_finish(report, &out, path);
    }
    free(path);
}

static void write_report(struct session *session, const struct out *page)
{
    struct report report = {0};
    char *directory = session->options.output ? string_format("%s", session->options.output)
                                              : directory_of(session->chosen.process[0]->path);
    report_collect(&report, session);
    report_choose_directories(&report, session->options.output);
    bool found = false;
    for (size_t i = 0; i < report.units; i++) found |= report.unit[i].stages != 0;
    found |= !is_filtered(&session->options);
    bool good = !found || report_write(&report, directory);
    if (good && page->used) write_page(&report, directory, page);
    if (!good) {
        session->status = 1;
    } else if (begin_report(session)) {
        if (session->options.format == FORMAT_TEXT && found) report_print(&report, directory);
        else if (found) emit_report(&report, directory);
        session_end(session, found);
    }
    report_free(&report);
    free(directory);
}

void cmd_report(struct session *session)
{
    struct out page;
    if (session->options.html) {
        page_of_run(session);
        return;
    }
    out_memory(&page);
    if (!is_filtered(&session->options)) collect_page(session, &page); /* a page is of whole processes */
    if (session_load(session)) write_report(session, &page);
    out_discard(&page);
}
