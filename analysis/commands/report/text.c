/* text.c - prints a report on one screen: at most 40 lines of at most 100 columns. */
#include <stdlib.h>
#include <string.h>

#include "ask/ranks/rank_times.h"
#include "commands/report/report.h"
#include "commands/session_notes.h"

enum {
    SHOWN_RANKS = 6,
    SHOWN_STAGES = 8,
    SHOWN_KERNELS = 8,
    SHOWN_LOSSES = 2,
    SHOWN_DEVICES = 2,
    SHOWN_DIRECTORIES = 2,
    SHOWN_KEPT = 4
};

/* ---- names ---- */

/* Writes a path or a device's name. */
static void put_visible(struct out *out, const char *string, size_t most)
{
    struct text text = {0};
    size_t length = strnlen(string, most);
    while (length && !begins_character(string[length])) length--; /* does not cut a character in two */
    text_visible(&text, string, length);
    out_write(out, text.data ? text.data : "", text.length);
    text_free(&text);
}

static void put_share(struct out *out, int64_t part, int64_t whole)
{
    if (whole > 0) out_format(out, "%9.1f %%", 100.0 * (double)part / (double)whole);
    else out_format(out, "%11s", "-");
}

/* ---- inputs ---- */

static void put_head(struct out *out, const struct report *report)
{
    const struct session *session = report->session;
    uint64_t events = 0, complete = 0;
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (size_t i = 0; i < session->chosen.processes; i++) {
        events += session->chosen.process[i]->events;
        complete += session->chosen.process[i]->complete;
    }
    for (size_t i = 0; i < report->units; i++) {
        first = MIN(first, report->unit[i].first);
        last = MAX(last, report->unit[i].last);
    }
    out_format(out, "%zu rank%s, %zu process%s, %llu events", report->units, report->units == 1 ? "" : "s",
               session->chosen.processes, session->chosen.processes == 1 ? "" : "es", (unsigned long long)events);
    if (first <= last) {
        out_puts(out, ", ");
        report_put_time(out, last - first, 0);
    }
    size_t unread = session_unread(session), incomplete = session->chosen.processes - (size_t)complete;
    if (incomplete) out_format(out, "; %zu of the processes incomplete", incomplete);
    if (unread) out_format(out, "; %zu file%s not readable", unread, unread == 1 ? " is" : "s are");
    out_puts(out, incomplete || unread ? "\n" : "; complete\n");
}

static void put_losses(struct out *out, const struct report *report)
{
    size_t shown = 0, more = 0;
    for (size_t i = 0; i < report->session->chosen.processes; i++) {
        const struct process *p = report->session->chosen.process[i];
        for (size_t k = 0; k < p->loss_count; k++) {
            if (!p->losses[k].lost || !p->losses[k].count) continue;
            if (shown == SHOWN_LOSSES) {
                more++;
                continue;
            }
            out_format(out, "%s%llu %s (rank %lld)", shown ? ", " : "lost: ", (unsigned long long)p->losses[k].count,
                       p->losses[k].cause, (long long)p->rank);
            shown++;
        }
    }
    if (more) out_format(out, " and %zu more", more);
    bool doubtful = false;
    for (size_t i = 0; i < report->session->chosen.processes; i++)
        doubtful |= doubts_matter(&report->session->chosen.process[i]->health);
    bool unread = session_unread(report->session) > 0;
    out_puts(out, shown      ? "; `tfanalyze info` shows details\n"
                  : unread   ? "a file could not be read: what it held is not known\n"
                  : doubtful ? "some times or records are doubtful; `tfanalyze info` shows which\n"
                             : "nothing was lost\n");
}

/* ---- devices ---- */

/* Prints each device name once, with the number of processes that have it. Simulated devices are labelled. */
static void put_device_names(struct out *out, const struct report *report)
{
    const struct session *session = report->session;
    const struct device *seen[SHOWN_DEVICES];
    size_t times[SHOWN_DEVICES] = {0}, shown = 0;
    for (size_t i = 0; i < session->chosen.processes; i++) {
        for (size_t k = 0; k < session->chosen.process[i]->devices; k++) {
            const struct device *device = &session->chosen.process[i]->device[k];
            size_t at = 0;
            while (at < shown && (seen[at]->name != device->name || seen[at]->simulated != device->simulated)) at++;
            if (at < SHOWN_DEVICES) {
                seen[at] = device;
                times[at]++;
                shown = MAX(shown, at + 1);
            }
        }
    }
    for (size_t i = 0; i < shown; i++) {
        out_format(out, "%s%s", i ? ", " : "\ndevices: ", seen[i]->simulated ? "simulated: " : "");
        put_visible(out, model_name(&session->model, seen[i]->name), 24);
        if (times[i] > 1) out_format(out, " (by %zu processes)", times[i]);
    }
    out_puts(out, shown ? "\n" : "");
}

static void put_rank(struct out *out, const struct rank_time *rank)
{
    const struct intervals *kind = rank->kind;
    struct intervals some = intervals_union(&kind[WORK_COMPUTATION], &kind[WORK_COMMUNICATION]);
    struct intervals all = intervals_union(&some, &kind[WORK_MEMORY]);
    int64_t span = rank->total, busy = intervals_total(&all);
    int64_t communication = intervals_total(&kind[WORK_COMMUNICATION]);
    int64_t hidden = intervals_overlap(&kind[WORK_COMMUNICATION], &kind[WORK_COMPUTATION]);
    if (rank->rank >= 0) out_format(out, "%6lld", (long long)rank->rank);
    else out_format(out, "%6s", "-");
    report_put_time(out, span, 14);
    put_share(out, busy, span);
    put_share(out, span - busy, span);
    put_share(out, intervals_total(&kind[WORK_COMPUTATION]), span);
    out_puts(out, "    ");
    put_share(out, communication, span);
    put_share(out, communication - hidden, span);
    put_share(out, intervals_total(&kind[WORK_MEMORY]), span);
    out_puts(out, "\n");
    intervals_free(&some);
    intervals_free(&all);
}

static void put_devices(struct out *out, const struct report *report)
{
    struct timeline timeline;
    timeline_of_model(&timeline, &report->session->chosen);
    size_t shown = 0;
    put_device_names(out, report);
    if (timeline.works) {
        out_puts(out, "\ndevice time, from the first to the last work of each rank\n");
        out_format(out, "%6s%14s%11s%11s%11s%15s%11s%11s\n", "rank", "span", "busy", "idle", "computing",
                   "communicating", "exposed", "copying");
    }
    for (size_t i = 0; i < timeline.count && timeline.works; i++)
        if (timeline.rank[i].works && shown++ < SHOWN_RANKS) put_rank(out, &timeline.rank[i]);
    if (shown > SHOWN_RANKS)
        out_format(out, "  and %zu more ranks; `tfanalyze timeline` shows all\n", shown - SHOWN_RANKS);
    if (!timeline.works) out_puts(out, "no device work was recorded\n");
    timeline_free(&timeline);
}

/* ---- stages and kernels, over all ranks ---- */

struct line {
    uint32_t name; /* the key */
    uint64_t calls;
    int64_t host, done, device;
    bool device_unknown;
};

struct lines {
    KEYED_ROWS(struct line);
};

static struct line *line_of(struct lines *lines, uint32_t name)
{
    return keyed_row(&lines->keyed, &name, sizeof name, sizeof *lines->row);
}

static int lines_by_time(const void *a, const void *b, void *names)
{
    const struct line *x = a, *y = b;
    int64_t time_x = x->done ? x->done : x->device, time_y = y->done ? y->done : y->device;
    return time_x != time_y ? by_number(time_y, time_x) : names_order(names, x->name, y->name);
}

static bool has_device(const struct report *report)
{
    bool any = false;
    for (size_t u = 0; u < report->units; u++) any |= report->unit[u].has_device;
    return any;
}

/* Adds up the stages of all units. `outside` receives the work in no stage. */
static void sum_stages(const struct report *report, struct lines *lines, struct line *outside)
{
    for (size_t u = 0; u < report->units; u++) {
        const struct unit *unit = &report->unit[u];
        for (size_t i = 0; i < unit->stages; i++) {
            const struct report_stage *stage = &unit->stage[i];
            struct line *line = line_of(lines, stage->name);
            line->calls += stage->sums->calls;
            line->host = add_ns(line->host, stage->sums->host);
            line->done = add_ns(line->done, stage->sums->done);
            line->device = add_ns(line->device, stage->sums->work);
            line->device_unknown |= !stage_work_known(stage->sums);
        }
        if (!unit->outside) continue;
        outside->device = add_ns(outside->device, unit->outside->work);
        outside->device_unknown |= !stage_work_known(unit->outside);
    }
}

static void put_stage(struct out *out, const struct report *report, const struct line *line)
{
    const struct name *name = names_get(&report->session->model.names, line->name);
    struct text stage = {0};
    out_format(out, "%12llu", (unsigned long long)line->calls);
    report_put_time(out, line->done, 14);
    report_put_time(out, line->host, 14);
    if (has_device(report) && !line->device_unknown) report_put_time(out, line->device, 14);
    else out_format(out, "%14s", "-");
    out_puts(out, "  ");
    short_stage(name->text, name->length, &stage);
    report_put_name(out, stage.data, stage.length, 56);
    text_free(&stage);
}

static void put_stages(struct out *out, const struct report *report)
{
    struct lines lines = {0};
    struct line outside = {0};
    size_t shown = report_shown(report, SHOWN_STAGES);
    sum_stages(report, &lines, &outside);
    if (lines.count) {
        qsort_r(lines.row, lines.count, sizeof *lines.row, lines_by_time, &report->session->model.names);
        out_format(out, "\nstages, all ranks together (done: from entry until the work launched inside was done)\n");
        out_format(out, "%12s%14s%14s%14s  stage\n", "calls", "done", "host", "device");
    } else {
        out_puts(out, "\nno stages were recorded; mark them with NVTX ranges or torch's record_function\n");
    }
    for (size_t i = 0; i < MIN(lines.count, shown); i++) put_stage(out, report, &lines.row[i]);
    if (lines.count > shown) out_format(out, "  and %zu more; `tfanalyze stages` shows all\n", lines.count - shown);
    if (outside.device && !outside.device_unknown) {
        out_format(out, "%12s%14s%14s", "-", "-", "-");
        report_put_time(out, outside.device, 14);
        out_puts(out, "  (none): launched in no stage\n");
    }
    keyed_free(&lines.keyed);
}

/* Returns short names for kernels; empty with --names short, as the names are already short. */
static struct short_names short_kernels(const struct report *report)
{
    struct short_names shorts = {0};
    uint32_t *name = NULL;
    size_t count = 0, capacity = 0;
    for (size_t u = 0; u < report->units && report->session->options.names != NAMES_SHORT; u++) {
        const struct stage_row *all = &report->unit[u].sums.all;
        for (size_t i = 0; i < all->kernels.count; i++) {
            name = mem_grow(name, &capacity, count + 1, sizeof *name);
            name[count++] = all->kernels.row[i].name;
        }
    }
    short_names_init(&shorts, &report->session->model.names, name, count);
    free(name);
    return shorts;
}

static void put_kernels(struct out *out, const struct report *report)
{
    struct lines lines = {0};
    struct short_names shorts = short_kernels(report);
    int64_t total = 0;
    for (size_t u = 0; u < report->units; u++) {
        const struct stage_row *all = &report->unit[u].sums.all;
        total = add_ns(total, all->kernel_time);
        for (size_t i = 0; i < all->kernels.count; i++) {
            struct line *line = line_of(&lines, all->kernels.row[i].name);
            line->calls += all->kernels.row[i].calls;
            line->device = add_ns(line->device, all->kernels.row[i].device);
        }
    }
    if (lines.count) {
        qsort_r(lines.row, lines.count, sizeof *lines.row, lines_by_time, &report->session->model.names);
        out_puts(out, "\nkernels, all ranks together\n");
        out_format(out, "%12s%14s%11s  kernel\n", "calls", "time", "share");
    }
    for (size_t i = 0; i < MIN(lines.count, report_shown(report, SHOWN_KERNELS)); i++) {
        const struct line *line = &lines.row[i];
        const struct name *name = names_get(&report->session->model.names, short_names_get(&shorts, line->name));
        out_format(out, "%12llu", (unsigned long long)line->calls);
        report_put_time(out, line->device, 14);
        put_share(out, line->device, total);
        out_puts(out, "  ");
        report_put_name(out, name->text, name->length, 39);
    }
    if (lines.count > report_shown(report, SHOWN_KERNELS)) {
        out_format(out, "  and %zu more; `tfanalyze breakdown` shows all\n",
                   lines.count - report_shown(report, SHOWN_KERNELS));
    }
    short_names_free(&shorts);
    keyed_free(&lines.keyed);
}

/* ---- written files and the next command ---- */

/* True if the file lies directly in the directory. */
static bool lies_in(const char *file, const char *directory)
{
    size_t length = strlen(directory);
    return strncmp(file, directory, length) == 0 && file[length] == '/' && !strchr(file + length + 1, '/');
}

static size_t count_files(const struct report *report, const char *directory, const char *suffix)
{
    size_t count = 0, length = strlen(suffix);
    for (size_t i = 0; i < report->files; i++) {
        size_t n = strlen(report->file[i]);
        count += n > length && strcmp(report->file[i] + n - length, suffix) == 0 && lies_in(report->file[i], directory);
    }
    return count;
}

static bool is_listed(const struct report *report, size_t before, const char *directory)
{
    for (size_t i = 0; i < before; i++)
        if (report->asked[i].directory && strcmp(report->asked[i].directory, directory) == 0) return true;
    return false;
}

/* Prints the directories that cache-dit's arguments requested for its files. */
static void put_elsewhere(struct out *out, const struct report *report, const char *main)
{
    size_t shown = 0;
    for (size_t i = 0; i < report->asked_count; i++) {
        const char *directory = report->asked[i].directory;
        size_t files = directory && strcmp(directory, main) != 0 && !is_listed(report, i, directory)
                           ? count_files(report, directory, "")
                           : 0;
        if (files && shown++ < SHOWN_DIRECTORIES) {
            out_puts(out, "written to ");
            put_visible(out, directory, SIZE_MAX);
            out_format(out, ", cache-dit's directory: %zu file%s\n", files, files == 1 ? "" : "s");
        }
    }
    if (shown > SHOWN_DIRECTORIES) out_format(out, "  and to %zu more directories\n", shown - SHOWN_DIRECTORIES);
}

/* Prints the lines that TeleFuser logs after writing these files. */
static void put_telefusers_lines(struct out *out, const struct report *report, const char *directory)
{
    bool ours = report_has_telefuser(report);
    for (size_t i = 0; i < report->files && ours; i++) {
        if (lies_in(report->file[i], directory) && strstr(report->file[i], "/timing")) {
            bool signatures = strstr(report->file[i] + strlen(directory), "_io_signature") != NULL;
            out_format(out, "[Profiler] %s saved to: ", signatures ? "Stage I/O signatures" : "Layer 1 timing report");
            out_puts(out, report->file[i]);
            out_puts(out, "\n");
        }
    }
}

/* True if a path is that of a file which stays, with a number: NAME~2 of NAME. */
static bool is_instead_of(const char *path, const char *kept)
{
    const char *number = strrchr(path, '~');
    size_t before = number ? (size_t)(number - path) : 0;
    return number && strncmp(path, kept, before) == 0 &&
           strcmp(number + 1 + strspn(number + 1, "0123456789"), kept + before) == 0;
}

/* Names the report's files that stand beside older ones of their name. */
static void put_kept(struct out *out, const struct report *report)
{
    size_t shown = 0;
    for (size_t i = 0; i < report->kepts; i++) {
        size_t k = 0;
        while (k < report->files && !is_instead_of(report->file[k], report->kept[i])) k++;
        if (k == report->files || shown++ >= SHOWN_KEPT) continue;
        out_puts(out, "  ");
        put_visible(out, strrchr(report->file[k], '/') + 1, SIZE_MAX);
        out_puts(out, " is new: ");
        put_visible(out, strrchr(report->kept[i], '/') + 1, SIZE_MAX);
        out_puts(out, " is not of a report, or was edited, and stays\n");
    }
    if (shown > SHOWN_KEPT)
        out_format(out, "  %zu more files are called ~2, for the same reason\n", shown - SHOWN_KEPT);
}

static void put_files(struct out *out, const struct report *report, const char *directory)
{
    size_t breakdowns = count_files(report, directory, ".breakdown.json"),
           traces = count_files(report, directory, ".trace.json.gz");
    size_t length = strlen(directory) + 1;
    out_puts(out, "\nwritten to ");
    put_visible(out, directory, SIZE_MAX);
    out_puts(out, "\n");
    for (size_t i = 0; i < report->files && i < 1; i++)
        out_format(out, "  %-40s times of each stage\n", report->file[i] + length);
    if (count_files(report, directory, ".html"))
        out_format(out, "  %-40s all of it as one page for a browser\n", "report.html");
    size_t scripts = count_files(report, directory, ".py"),
           signatures = count_files(report, directory, "_io_signature.json");
    if (signatures)
        out_format(out, "  %-40s arguments and results of stages that are functions\n", "timing_io_signature.json");
    if (scripts) {
        out_format(out, "  %-40s runs one stage (a function) alone (%zu file%s)\n", "profile_STAGE.py", scripts,
                   scripts == 1 ? "" : "s");
    }
    if (breakdowns) {
        out_format(out, "  %-40s kernels of a stage (%zu file%s)\n", "STAGE_rankN.breakdown.json", breakdowns,
                   breakdowns == 1 ? "" : "s");
    }
    if (traces) {
        out_format(out, "  %-40s trace for Perfetto, HTA and others (%zu file%s)\n", "STAGE_rankN.trace.json.gz",
                   traces, traces == 1 ? "" : "s");
    }
    if (report->untimed)
        out_format(out,
                   "  %zu shorter stages are not in timing.json: a name with an id or a number of each call makes a "
                   "stage of each;\n  give the calls one name\n",
                   report->untimed);
    if (report->left_out)
        out_format(out, "  %zu shorter stages have no trace file; --stage NAME writes one\n", report->left_out);
    put_kept(out, report);
    put_elsewhere(out, report, directory);
    put_telefusers_lines(out, report, directory);
}

/* Writes a word quoted for a shell. */
static void put_word(struct out *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-=:,+@%";
    if (*word && word[strspn(word, plain)] == 0) {
        out_puts(out, word);
        return;
    }
    out_puts(out, "'");
    for (; *word; word++) {
        if (*word == '\'') {
            out_puts(out, "'\\''");
        } else {
            size_t length = strcspn(word, "'");
            put_visible(out, word, length);
            word += length - 1;
        }
    }
    out_puts(out, "'");
}

static void put_next(struct out *out, const struct report *report)
{
    const struct options *options = &report->session->options;
    const char *what = !has_device(report) ? "stages" : report->units > 1 ? "timeline" : "breakdown";
    out_format(out, "next: tfanalyze %s", what);
    for (size_t i = 0; i < MIN(options->inputs.count, 3); i++) {
        out_puts(out, " ");
        put_word(out, options->inputs.text[i]);
    }
    out_puts(out, options->inputs.count > 3 ? " ...\n" : "\n");
}

void report_print(struct report *report, const char *directory)
{
    struct out *out = &report->session->out;
    put_head(out, report);
    put_losses(out, report);
    put_devices(out, report);
    put_stages(out, report);
    put_kernels(out, report);
    if (!has_device(report)) report_print_host(out, report);
    report_print_refused(out, report);
    put_files(out, report, directory);
    put_next(out, report);
}
