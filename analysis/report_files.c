/* report_files.c - writes what a report leaves: breakdowns and traces of stages, and timing.json.
 *
 * Formats are TeleFuser's, with what is unknown left out or null. A file of that name that is not ours is somebody's
 * data - TeleFuser gives its own the same names - and stays: ours is then called ~2.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "export_kineto.h"
#include "export_tfr.h"
#include "report.h"
#include "stage_files.h"
#include "stages.h"

/* ---- names ---- */

/* Free to be written: it is not there, or an earlier report wrote it. */
static bool is_ours(const char *path)
{
    char head[512];
    if (access(path, F_OK) != 0) {
        return true;
    }
    gzFile file = gzopen(path, "rb"); /* reads what is not packed as well */
    int length = file ? gzread(file, head, sizeof head) : 0;
    if (file) {
        gzclose(file);
    }
    static const char trace[] = "{\"tfinject\": {\"artefact\": \"stage\"", other[] = "\"writer\": \"tfanalyze ";
    return length > 0 && (memmem(head, (size_t)length, trace, sizeof trace - 1) == head ||
                          memmem(head, (size_t)length, other, sizeof other - 1));
}

char *report_path(const char *directory, const char *name, const char *suffix)
{
    char *path = string_format("%s/%s%s", directory, name, suffix);
    for (unsigned n = 2; !is_ours(path); n++) {
        free(path);
        path = string_format("%s/%s~%u%s", directory, name, n, suffix);
    }
    return path;
}

static bool is_free(const char *stem)
{
    static const char *const suffixes[] = {".breakdown.json", ".trace.json.gz"};
    bool all = true;
    for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
        char *path = string_format("%s%s", stem, suffixes[i]);
        all &= is_ours(path);
        free(path);
    }
    return all;
}

/* cache-dit has names of its own: without a rank in a world of one. */
static char *trace_file(const struct report *report, struct stage_files *files, const char *directory,
                        const struct unit *unit, const struct report_stage *stage)
{
    const struct name *name = names_get(&report->session->model.names, stage->name);
    const struct report_asked *asked = &report->asked[stage->name];
    if (!asked->is) {
        return string_format("%s.trace.json.gz", stage->file);
    }
    char *path = NULL, *suffix = unit->process[0]->world > 1
                                     ? string_format("-rank%lld.trace.json.gz", (long long)MAX(unit->rank, 0))
                                     : string_format(".trace.json.gz");
    do {
        free(path);
        path = stage_file_named(files, asked->directory ? asked->directory : directory, "", name->text, name->length,
                                suffix);
    } while (!is_ours(path));
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
            } while (!is_free(unit->stage[i].file));
            unit->stage[i].trace_file = trace_file(report, &files, directory, unit, &unit->stage[i]);
        }
    }
    stage_files_free(&files);
}

bool report_finish(struct report *report, struct out *out, const char *path)
{
    if (!out_close(out)) {
        return false;
    }
    report->file = mem_grow(report->file, &report->file_capacity, report->files + 1, sizeof *report->file);
    report->file[report->files++] = string_format("%s", path);
    return true;
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
    if (rank < 0) {
        out_puts(out, "null");
    } else {
        out_number(out, (uint64_t)rank);
    }
}

/* ---- breakdown ---- */

static void put_kernels(struct out *out, const struct report *report, const struct report_stage *stage)
{
    out_puts(out, "\"top_kernels\": [");
    for (size_t i = 0; i < MIN(stage->kernel_count, MOST_KERNELS); i++) {
        const struct report_kernel *k = &stage->kernel[i];
        out_puts(out, i ? ",\n    {\"name\": " : "\n    {\"name\": ");
        put_text(out, report, k->name);
        out_puts(out, ", \"ms\": ");
        put_ms(out, (double)k->device);
        out_puts(out, ", \"cuda_ms\": ");
        put_ms(out, (double)k->device);
        out_puts(out, ", \"cpu_ms\": ");
        if (k->launched) {
            put_ms(out, k->host);
        } else {
            out_puts(out, "null");
        }
        out_format(out, ", \"calls\": %llu}", (unsigned long long)k->calls);
    }
    out_puts(out, stage->kernel_count ? "\n  ]" : "]");
}

static bool write_breakdown(struct report *report, const struct unit *unit, const struct report_stage *stage)
{
    struct out out;
    char *path = string_format("%s.breakdown.json", stage->file);
    bool good = out_open(&out, path);
    out_puts(&out, "{\n  " REPORT_WRITER ",\n  \"name\": ");
    put_text(&out, report, stage->name);
    out_puts(&out, ",\n  \"rank\": ");
    put_rank(&out, unit->rank);
    out_puts(&out, ",\n  \"total_kernel_time_ms\": ");
    if (unit->has_device) {
        put_ms(&out, (double)stage->kernels);
        out_format(&out, ",\n  \"num_kernels\": %zu,\n  \"launches\": %llu,\n  ", stage->kernel_count,
                   (unsigned long long)stage->launches);
    } else {
        out_puts(&out, "null,\n  \"num_kernels\": null,\n  \"launches\": null,\n  ");
    }
    put_kernels(&out, report, stage);
    out_puts(&out, "\n}\n");
    good = report_finish(report, &out, path) && good;
    free(path);
    return good;
}

/* ---- traces ---- */

/* All stages of a unit that get one, in one pass over its file. */
static bool write_kineto_traces(struct report *report, struct unit *unit)
{
    struct target target[MOST_TRACES] = {{.stage = NULL}};
    struct targets targets = {.target = target, .from = INT64_MIN, .to = INT64_MAX};
    char *path[MOST_TRACES];
    uint32_t of_trace[MOST_TRACES];
    const struct process *process = unit->process[0];
    uint32_t *of_name = mem_zero(report->names, sizeof *of_name);
    bool good = true;
    memset(of_trace, 0xff, sizeof of_trace);
    for (size_t i = 0; i < unit->stages && good; i++) {
        const struct report_stage *stage = &unit->stage[i];
        if (stage->trace == NO_PLACE) {
            continue;
        }
        size_t t = targets.count++;
        of_trace[stage->trace] = (uint32_t)t;
        path[t] = string_format("%s", stage->trace_file);
        target[t].artefact = "stage";
        target[t].stage = names_get(&report->session->model.names, stage->name);
        target[t].whole = stage->name == NAME_RUN && !has_stages(process);
        good = out_open(&target[t].out, path[t]);
    }
    for (size_t i = 0; i < report->names; i++) {
        of_name[i] = report->chosen[i] == NO_PLACE ? NO_PLACE : of_trace[report->chosen[i]];
    }
    targets.of_name = of_name;
    good = good && (!targets.count || export_kineto(&targets, report->session, process, &unit->attribution[0]));
    for (size_t t = 0; t < targets.count; t++) {
        if (good) {
            good = report_finish(report, &target[t].out, path[t]);
        } else {
            out_discard(&target[t].out);
        }
        free(path[t]);
    }
    free(of_name);
    return good;
}

static bool write_tfr_trace(struct report *report, const struct unit *unit, const struct report_stage *stage)
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
                               .without = report->asked[stage->name].without};
    bool good = out_open(&out, path);
    if (good) {
        export_tfr(&asked, report->session);
        good = report_finish(report, &out, path);
    } else {
        out_discard(&out);
    }
    return good;
}

static bool write_traces(struct report *report, struct unit *unit)
{
    bool good = true;
    if (is_of_kineto(unit->process[0])) {
        return write_kineto_traces(report, unit);
    }
    for (size_t i = 0; i < unit->stages && good; i++) {
        /* Memory alone is no trace, for cache-dit too. */
        good = unit->stage[i].trace == NO_PLACE || without_calls(report->asked[unit->stage[i].name].without) ||
               write_tfr_trace(report, unit, &unit->stage[i]);
    }
    return good;
}

/* ---- timing.json ---- */

/* A stage over all units, in the order they were first entered in. */
struct timing {
    uint32_t name;
    int64_t first, longest;
    uint64_t calls;
    size_t units;
};

static int by_first(const void *a, const void *b)
{
    const struct timing *x = a, *y = b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first)
                                : (x->name > y->name) - (x->name < y->name);
}

static struct timing *all_timings(const struct report *report, size_t *count)
{
    struct timing *timing = NULL;
    struct map places = {0};
    size_t capacity = 0;
    *count = 0;
    for (size_t u = 0; u < report->units; u++) {
        for (size_t i = 0; i < report->unit[u].stages; i++) {
            const struct report_stage *stage = &report->unit[u].stage[i];
            uint32_t place = map_get(&places, stage->name);
            if (place == MAP_NONE) {
                timing = mem_grow(timing, &capacity, *count + 1, sizeof *timing);
                timing[*count] = (struct timing){.name = stage->name, .first = INT64_MAX};
                map_put(&places, stage->name, place = (uint32_t)(*count)++);
            }
            timing[place].first = MIN(timing[place].first, stage->first);
            timing[place].longest = MAX(timing[place].longest, stage->host);
            timing[place].calls += stage->calls;
            timing[place].units++;
        }
    }
    map_free(&places);
    if (*count) {
        qsort(timing, *count, sizeof *timing, by_first);
    }
    return timing;
}

/* The most that was reserved, as TeleFuser counts it, in GiB; of the host, where nothing is reserved, in use. */
static void put_gb(struct out *out, const struct report_memory *memory)
{
    if (memory->known) {
        uint64_t peak = memory->device < 0 ? memory->peak_allocated : memory->peak_reserved;
        out_format(out, "%.6f", (double)peak / (1 << 30));
    } else {
        out_puts(out, "null");
    }
}

/* Of the one unit that has the stage. */
static void put_memory(struct out *out, const struct report *report, uint32_t name)
{
    static const double mb = 1 << 20;
    for (size_t u = 0; u < report->units; u++) {
        for (size_t i = 0; i < report->unit[u].stages; i++) {
            const struct report_memory *m = &report->unit[u].stage[i].memory;
            if (report->unit[u].stage[i].name != name || !m->known) {
                continue;
            }
            out_format(out, ",\n      \"memory\": {\"allocated_mb\": %.6f, \"reserved_mb\": %.6f, ",
                       (double)m->allocated / mb, (double)m->reserved / mb);
            out_format(out, "\"peak_allocated_mb\": %.6f, \"peak_reserved_mb\": %.6f, ", (double)m->peak_allocated / mb,
                       (double)m->peak_reserved / mb);
            out_format(out, "\"device\": %lld}", (long long)m->device);
        }
    }
}

static void put_parallel(struct out *out, const struct report *report, const struct timing *timing)
{
    const char *comma = "";
    out_format(out, ",\n      \"parallel_info\": {\"num_ranks\": %zu, \"ranks\": [", timing->units);
    for (size_t u = 0; u < report->units; u++) {
        const struct unit *unit = &report->unit[u];
        for (size_t i = 0; i < unit->stages; i++) {
            if (unit->stage[i].name == timing->name) {
                out_format(out, "%s\n        {\"rank\": ", comma);
                put_rank(out, unit->rank);
                out_puts(out, ", \"duration_ms\": ");
                put_ms(out, (double)unit->stage[i].host);
                out_format(out, ", \"calls\": %llu, \"peak_memory_gb\": ", (unsigned long long)unit->stage[i].calls);
                put_gb(out, &unit->stage[i].memory);
                out_puts(out, "}");
                comma = ",";
            }
        }
    }
    out_puts(out, "]}");
}

static void put_stages(struct out *out, const struct report *report, int64_t total)
{
    size_t count;
    struct timing *timing = all_timings(report, &count);
    out_format(out, "  \"num_stages\": %zu,\n  \"stages\": {", count);
    for (size_t i = 0; i < count; i++) {
        out_puts(out, i ? ",\n    " : "\n    ");
        put_text(out, report, timing[i].name);
        out_puts(out, ": {\"duration_ms\": ");
        put_ms(out, (double)timing[i].longest);
        if (total) {
            out_format(out, ", \"percentage\": %.1f", 100.0 * (double)timing[i].longest / (double)total);
        } else {
            out_puts(out, ", \"percentage\": null");
        }
        out_format(out, ", \"calls\": %llu", (unsigned long long)timing[i].calls);
        if (timing[i].units > 1) {
            put_parallel(out, report, &timing[i]);
        } else {
            put_memory(out, report, timing[i].name);
        }
        out_puts(out, "}");
    }
    out_puts(out, count ? "\n  },\n" : "},\n");
    free(timing);
}

void report_put_moment(struct out *out, const struct report *report)
{
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (size_t u = 0; u < report->units; u++) {
        first = MIN(first, report->unit[u].first);
        last = MAX(last, report->unit[u].last);
    }
    first = first < last ? first : 0;
    char date[64], id[64];
    time_t seconds = (time_t)(first / 1000000000);
    struct tm tm;
    bool is_date = report->session->process[0]->clock.has_axis && first > 0 && gmtime_r(&seconds, &tm) &&
                   strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm) &&
                   strftime(id, sizeof id, "%Y%m%d_%H%M%S", &tm);
    if (!is_date) {
        out_puts(out, "  \"request_id\": null,\n  \"timestamp\": null,\n");
        return;
    }
    int us = (int)(first % 1000000000 / 1000);
    out_format(out, "  \"request_id\": \"req_%s_%06d\",\n  \"timestamp\": \"%s.%06d+00:00\",\n", id, us, date, us);
}

static void put_metadata(struct out *out, const struct report *report)
{
    const struct process *p = report->session->process[0];
    out_puts(out, "  \"metadata\": {");
    for (size_t i = 0; i < p->metadata->count && !is_of_kineto(p); i++) {
        const struct pair *pair = &p->metadata->pair[i];
        out_puts(out, i ? ", " : "");
        out_json_string(out, pair->key, strlen(pair->key));
        out_puts(out, ": ");
        out_json_string(out, pair->value, strlen(pair->value));
    }
    out_puts(out, "}\n}\n");
}

static bool write_timing(struct report *report, const char *directory)
{
    struct out out;
    char *path = report_path(directory, "timing", ".json");
    int64_t first = INT64_MAX, last = INT64_MIN, total = 0;
    for (size_t u = 0; u < report->units; u++) {
        first = MIN(first, report->unit[u].first);
        last = MAX(last, report->unit[u].last);
        total = MAX(total, report->unit[u].in_stages);
    }
    bool good = out_open(&out, path);
    out_puts(&out, "{\n  " REPORT_WRITER ",\n");
    report_put_moment(&out, report);
    out_puts(&out, "  \"wall_clock_ms\": ");
    if (first <= last) {
        put_ms(&out, (double)(last - first));
    } else {
        out_puts(&out, "null");
    }
    out_puts(&out, ",\n  \"total_stages_ms\": ");
    put_ms(&out, (double)total);
    out_puts(&out, ",\n");
    put_stages(&out, report, total);
    put_metadata(&out, report);
    good = report_finish(report, &out, path) && good;
    free(path);
    return good;
}

/* ---- all of them ---- */

bool report_write(struct report *report, const char *directory)
{
    bool good = make_directory(directory);
    if (good) {
        name_files(report, directory);
        good = write_timing(report, directory) && report_write_signatures(report, directory);
    }
    for (size_t u = 0; u < report->units && good; u++) {
        struct unit *unit = &report->unit[u];
        for (size_t i = 0; i < unit->stages && good; i++) {
            good = write_breakdown(report, unit, &unit->stage[i]);
        }
        good = good && write_traces(report, unit) && report_write_memory(report, directory, unit);
    }
    return good;
}
