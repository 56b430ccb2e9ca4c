/* timing.c - writes timing.json in TeleFuser's format, for all ranks.
 *
 * The contents are those that TeleFuser would write. A stage's duration is that of its last call, from entry to exit,
 * waiting included. A context of TeleFuser has waited for its work at its exit; the duration of any other stage goes on
 * until its work was done (ask/stages/done_times.h). total_stages_ms and num_stages cover all calls. A stage of several ranks
 * has the longest of their durations.
 * The values that the program passed to TeleFuser's registry are in the run's metadata, where
 * preload/python/shim/shim_telefuser.py stores them. Only calls since the registry's last reset count; its request_id,
 * metadata and memory go into the file. Additions to the format: `calls`, and `device` of a memory.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/escape.h"
#include "commands/report/report.h"

/* Memory of one device's allocator at the end of the stage's last call, and the peaks during it. */
struct told_memory {
    bool known;
    int64_t device; /* -1: the host */
    uint64_t allocated, reserved, peak_allocated, peak_reserved;
};

/* A stage in one unit. */
struct told {
    const struct stage_row *sums;
    struct told_memory memory;
    struct told *next; /* the same stage in a later unit */
    size_t unit;
};

struct timing {
    struct report *report;
    struct told **told; /* by unit, by stage */
    int64_t total;      /* time of all calls, in the unit with the most */
    uint64_t calls;
};

/* ---- values from the program ---- */

/* Returns the first process, by rank, that used TeleFuser's registry. */
static const struct process *requester(const struct report *report)
{
    for (size_t u = 0; u < report->units; u++) {
        for (size_t i = 0; i < report->unit[u].processes; i++) {
            const struct process *p = report->unit[u].process[i];
            if (!is_of_kineto(p) && pairs_get(p->metadata, "telefuser.request_id")) return p;
        }
    }
    return NULL;
}

/* Returns a moment in ns from the metadata; `otherwise` if it has none. */
static int64_t moment(const struct process *process, const char *key, int64_t otherwise)
{
    uint64_t ns;
    bool known = process && !is_of_kineto(process) && pairs_number(process->metadata, key, &ns) && ns <= INT64_MAX;
    return known ? (int64_t)ns : otherwise;
}

/* Returns JSON that the program passed, if it has that type, else NULL. The caller calls json_decref. */
static json_t *said(const struct process *process, const char *key, json_type type)
{
    const char *text = process ? pairs_get(process->metadata, key) : NULL;
    struct text strict = {0};
    if (text) text_strict_json(&strict, text, strlen(text));
    json_t *value = strict.data ? json_loadb(strict.data, strict.length, JSON_DECODE_ANY, NULL) : NULL;
    text_free(&strict);
    if (value && json_typeof(value) != type) {
        json_decref(value);
        value = NULL;
    }
    return value;
}

static void put_json(struct out *out, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    text ? out_json_raw(out, text, strlen(text)) : out_puts(out, "null");
    free(text);
}

bool report_has_telefuser(const struct report *report)
{
    for (size_t i = 0; i < report->session->chosen.processes; i++) {
        const struct ranges *r = &report->session->chosen.process[i]->ranges;
        for (size_t k = 0; k < r->table.count; k++)
            if (r->flags[k] & TFI_RANGE_TELEFUSER) return true;
    }
    return false;
}

int64_t report_began(const struct process *process, int64_t otherwise)
{
    return moment(process, "telefuser.began", otherwise);
}

/* ---- memory ---- */

static bool parse_bytes(const char *text, uint64_t bytes[4])
{
    json_t *list = json_loads(text, 0, NULL);
    bool good = json_array_size(list) == 4;
    for (size_t i = 0; i < 4 && good; i++) {
        const json_t *number = json_array_get(list, i);
        good = json_is_integer(number) && json_integer_value(number) >= 0;
        bytes[i] = good ? (uint64_t)json_integer_value(number) : 0;
    }
    json_decref(list);
    return good;
}

/* Takes the memory at the end of a last call: of the device that holds the most, of the host if there is no device. The
 * host reserves nothing: what is in use counts as reserved, as in the lines that the program printed. */
static void add_memory(struct told_memory *m, const struct stage_memory *s)
{
    bool better =
        !m->known || (s->device >= 0) > (m->device >= 0) || (s->device >= 0 && s->allocated_peak > m->peak_allocated);
    if (better) {
        bool host = s->device < 0;
        *m = (struct told_memory){true,
                                  s->device,
                                  s->allocated_after,
                                  host ? s->allocated_after : s->reserved_after,
                                  s->allocated_peak,
                                  host ? s->allocated_peak : s->reserved_peak};
    }
}

/* Takes the memory that the program passed to TeleFuser; it overrides the allocator's. */
static void take_memory(const struct report *report, struct told_memory *m, const struct signature *g)
{
    uint64_t b[4];
    if (g->direction == SIGNATURE_MEMORY && parse_bytes(model_name(&report->session->model, g->text), b))
        *m = (struct told_memory){true, m->known ? m->device : 0, b[0], b[1], b[2], b[3]};
}

/* Finds the memory records of the last calls in a process. `lasts` maps ranges to indices in `told`. */
static void find_memory(const struct report *report, const struct process *p, const struct map *lasts,
                        struct told **told)
{
    for (size_t i = 0; i < p->stage_memories && lasts->count; i++) {
        uint32_t last = map_get(lasts, p->stage_memory[i].range);
        if (last != MAP_NONE) add_memory(&told[last]->memory, &p->stage_memory[i]);
    }
    for (size_t i = 0; i < p->signatures && lasts->count; i++) {
        uint32_t last = map_get(lasts, p->signature[i].range);
        if (last != MAP_NONE) take_memory(report, &told[last]->memory, &p->signature[i]);
    }
}

static void find_memories(const struct timing *t)
{
    const struct model *model = &t->report->session->model;
    struct map *lasts = mem_zero(model->processes + 1, sizeof *lasts);
    struct told **told = NULL;
    size_t count = 0, capacity = 0;
    for (size_t u = 0; u < t->report->units; u++) {
        for (size_t i = 0; i < t->report->unit[u].stages; i++) {
            struct told *one = &t->told[u][i];
            const struct stage_last *last = &one->sums->last;
            if (last->process) {
                told = mem_grow(told, &capacity, count + 1, sizeof *told);
                map_put(&lasts[last->process - model->process], last->range, (uint32_t)count);
                told[count++] = one;
            }
        }
    }
    for (size_t i = 0; i < model->processes; i++) {
        find_memory(t->report, &model->process[i], &lasts[i], told);
        map_free(&lasts[i]);
    }
    free(told);
    free(lasts);
}

/* ---- the file ---- */

static void put_ms(struct out *out, int64_t ns)
{
    out_format(out, "%.6f", (double)ns / 1e6);
}

static void put_rank(struct out *out, int64_t rank)
{
    if (rank < 0) out_puts(out, "null");
    else out_number(out, (uint64_t)rank);
}

static void put_memory(struct out *out, const struct told_memory *m)
{
    static const double mb = 1 << 20;
    if (!m->known) return;
    out_format(out, ",\n      \"memory\": {\"allocated_mb\": %.2f, \"reserved_mb\": %.2f, ", (double)m->allocated / mb,
               (double)m->reserved / mb);
    out_format(out, "\"peak_allocated_mb\": %.2f, \"peak_reserved_mb\": %.2f, ", (double)m->peak_allocated / mb,
               (double)m->peak_reserved / mb);
    out_format(out, "\"device\": %lld}", (long long)m->device);
}

/* Prints the reserved peak in GiB, as TeleFuser counts it. */
static void put_gb(struct out *out, const struct told_memory *m)
{
    if (m->known) out_format(out, "%.6f", (double)m->peak_reserved / (1 << 30));
    else out_puts(out, "null");
}

/* One stage over all units. Rows are sorted by first entry. */
struct row {
    uint32_t name;
    int64_t first, longest;
    uint64_t calls;
    size_t units;
    struct told *told, *last; /* in the first and the last unit that have it */
};

static int by_first(const void *a, const void *b, void *names)
{
    const struct row *x = a, *y = b;
    return x->first != y->first ? by_number(x->first, y->first) : names_order(names, x->name, y->name);
}

static struct row *all_rows(const struct timing *t, size_t *count)
{
    const struct report *report = t->report;
    struct row *row = NULL;
    struct map places = {0};
    size_t capacity = 0;
    *count = 0;
    for (size_t u = 0; u < report->units; u++) {
        for (size_t i = 0; i < report->unit[u].stages; i++) {
            const struct report_stage *stage = &report->unit[u].stage[i];
            struct told *told = &t->told[u][i];
            uint32_t place = map_get(&places, stage->name);
            if (!told->sums->told) continue;
            if (place == MAP_NONE) {
                row = mem_grow(row, &capacity, *count + 1, sizeof *row);
                row[*count] = (struct row){.name = stage->name, .first = INT64_MAX, .told = told};
                map_put(&places, stage->name, place = (uint32_t)(*count)++);
            }
            row[place].first = MIN(row[place].first, stage->first);
            row[place].longest = MAX(row[place].longest, told->sums->last.time);
            row[place].calls += told->sums->told;
            if (row[place].units++) row[place].last->next = told;
            told->unit = u;
            row[place].last = told;
        }
    }
    map_free(&places);
    if (*count) qsort_r(row, *count, sizeof *row, by_first, &report->session->model.names);
    return row;
}

static int longest_first(const void *a, const void *b)
{
    return by_number(*(const int64_t *)b, *(const int64_t *)a);
}

/* Keeps the stages with the longest times, as many as the library's own files have at most: a name with the id of a request
 * makes a stage of each request. Returns how many are left, and sets the number of calls of the others. */
static size_t keep_longest(struct row *row, size_t count, uint64_t *calls)
{
    enum { MOST = 65536 };
    *calls = 0;
    if (count <= MOST) return count;
    int64_t *times = mem_zero(count, sizeof *times);
    for (size_t i = 0; i < count; i++) times[i] = row[i].longest;
    qsort(times, count, sizeof *times, longest_first);
    int64_t least = times[MOST - 1]; /* of those with this time, the first ones */
    size_t kept = 0, equal = MOST;
    for (size_t i = 0; i < MOST; i++) equal -= times[i] > least;
    free(times);
    for (size_t i = 0; i < count; i++) {
        bool keep = row[i].longest > least || (row[i].longest == least && equal);
        if (keep && row[i].longest == least) equal--;
        if (keep) row[kept++] = row[i];
        else *calls += row[i].calls;
    }
    return kept;
}

static void put_parallel(struct out *out, const struct timing *t, const struct row *row)
{
    const char *comma = "";
    out_format(out, ",\n      \"parallel_info\": {\"num_ranks\": %zu, \"ranks\": [", row->units);
    for (const struct told *told = row->told; told; told = told->next) {
        out_format(out, "%s\n        {\"rank\": ", comma);
        put_rank(out, t->report->unit[told->unit].rank);
        out_puts(out, ", \"duration_ms\": ");
        put_ms(out, told->sums->last.time);
        out_format(out, ", \"calls\": %llu, \"peak_memory_gb\": ", (unsigned long long)told->sums->told);
        put_gb(out, &told->memory);
        out_puts(out, "}");
        comma = ",";
    }
    out_puts(out, "]}");
}

static void put_stages(struct out *out, const struct timing *t)
{
    size_t all;
    uint64_t others;
    struct row *row = all_rows(t, &all);
    size_t count = keep_longest(row, all, &others);
    t->report->untimed = all - count;
    out_format(out, "  \"num_stages\": %llu,\n", (unsigned long long)t->calls);
    if (others) out_format(out, "  \"calls_left_out\": %llu,\n", (unsigned long long)others);
    out_puts(out, "  \"stages\": {");
    for (size_t i = 0; i < count; i++) {
        const struct name *name = names_get(&t->report->session->model.names, row[i].name);
        out_puts(out, i ? ",\n    " : "\n    ");
        out_json_string(out, name->text, name->length);
        out_puts(out, ": {\"duration_ms\": ");
        put_ms(out, row[i].longest);
        if (t->total) out_format(out, ", \"percentage\": %.1f", 100.0 * (double)row[i].longest / (double)t->total);
        else out_puts(out, ", \"percentage\": null");
        out_format(out, ", \"calls\": %llu", (unsigned long long)row[i].calls);
        if (row[i].units > 1) put_parallel(out, t, &row[i]);
        else put_memory(out, &row[i].told->memory);
        out_puts(out, "}");
    }
    out_puts(out, count ? "\n  },\n" : "},\n");
    free(row);
}

static void find_span(const struct report *report, int64_t *first, int64_t *last)
{
    *first = INT64_MAX;
    *last = INT64_MIN;
    for (size_t u = 0; u < report->units; u++) {
        *first = MIN(*first, report->unit[u].first);
        *last = MAX(*last, report->unit[u].last);
    }
}

void report_put_moment(struct out *out, const struct report *report)
{
    int64_t first, last;
    char date[64], id[64];
    const struct process *asker = requester(report);
    json_t *request = said(asker, "telefuser.request_id", JSON_STRING);
    find_span(report, &first, &last);
    first = report_began(asker, first < last ? first : 0);
    time_t seconds = (time_t)(first / 1000000000);
    struct tm tm;
    int us = (int)(first % 1000000000 / 1000);
    bool is_date = report->session->chosen.process[0]->clock.has_axis && first > 0 && gmtime_r(&seconds, &tm) &&
                   strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm) &&
                   strftime(id, sizeof id, "%Y%m%d_%H%M%S", &tm);
    out_puts(out, "  \"request_id\": ");
    if (request) put_json(out, request);
    else if (report_has_telefuser(report)) out_puts(out, "\"\""); /* its registry was never reset */
    else if (is_date) out_format(out, "\"req_%s_%06d\"", id, us);
    else out_puts(out, "null");
    if (is_date) out_format(out, ",\n  \"timestamp\": \"%s.%06d+00:00\",\n", date, us);
    else out_puts(out, ",\n  \"timestamp\": null,\n");
    json_decref(request);
}

/* True for metadata that tfinject writes for its own use. */
static bool is_note(const char *key)
{
    static const char *const notes[] = {"telefuser.", "cache_dit.", "torch.operators", "distributedInfo"};
    for (size_t i = 0; i < ARRAY_SIZE(notes); i++)
        if (strncmp(key, notes[i], strlen(notes[i])) == 0) return true;
    return false;
}

static void put_metadata(struct out *out, const struct report *report)
{
    const struct process *asker = requester(report), *p = asker ? asker : report->session->chosen.process[0];
    json_t *metadata = said(asker, "telefuser.metadata", JSON_OBJECT);
    metadata = metadata ? metadata : json_object();
    bool of_telefuser = asker || report_has_telefuser(report);
    for (size_t i = 0; !is_of_kineto(p) && i < p->metadata->count; i++) {
        const struct pair *pair = &p->metadata->pair[i];
        struct text key = {0}, value = {0};
        text_utf8(&key, pair->key, strlen(pair->key));
        text_utf8(&value, pair->value, strlen(pair->value));
        const char *name = key.data ? key.data : "";
        if (!(of_telefuser && is_note(pair->key)) && !json_object_get(metadata, name))
            json_object_set_new(metadata, name, json_stringn(value.data ? value.data : "", value.length));
        text_free(&key);
        text_free(&value);
    }
    json_t *memory = said(asker, "telefuser.memory", JSON_OBJECT);
    out_puts(out, "  \"metadata\": ");
    put_json(out, metadata);
    if (json_object_size(memory)) {
        out_puts(out, ",\n  \"memory\": ");
        put_json(out, memory);
    }
    out_puts(out, "\n}\n");
    json_decref(metadata);
    json_decref(memory);
}

static void collect(struct timing *t)
{
    for (size_t u = 0; u < t->report->units; u++) {
        const struct unit *unit = &t->report->unit[u];
        int64_t sum = 0;
        uint64_t calls = 0;
        t->told[u] = mem_zero(unit->stages + 1, sizeof **t->told);
        for (size_t i = 0; i < unit->stages; i++) {
            const struct stage_row *sums = t->told[u][i].sums = unit->stage[i].sums;
            sum = add_ns(sum, sums->told_time);
            calls += sums->told;
        }
        t->total = MAX(t->total, sum);
        t->calls = MAX(t->calls, calls);
    }
    find_memories(t);
}

static void put_wall_clock(struct out *out, const struct report *report)
{
    const struct process *asker = requester(report);
    const struct window *window = &report->unit[0].scope[0]->choice.window;
    int64_t first, last, began = report_began(asker, 0), ended = moment(asker, "telefuser.ended", 0);
    find_span(report, &first, &last);
    first = MAX(first, window->from);
    last = MIN(last, window->to);
    out_puts(out, "  \"wall_clock_ms\": ");
    if (began) put_ms(out, MAX(ended ? ended : asker->last, began) - began);
    else if (first <= last) put_ms(out, last - first);
    else out_puts(out, "null");
}

bool report_write_timing(struct report *report, const char *directory)
{
    struct out out;
    struct timing timing = {.report = report, .told = mem_zero(report->units + 1, sizeof *timing.told)};
    char *path = report_path(report, directory, "timing", ".json");
    collect(&timing);
    bool good = report_open(report, &out, path, FILE_PRIVATE);
    out_puts(&out, "{\n  " REPORT_WRITER ",\n");
    report_put_moment(&out, report);
    put_wall_clock(&out, report);
    out_puts(&out, ",\n  \"total_stages_ms\": ");
    put_ms(&out, timing.total);
    out_puts(&out, ",\n");
    put_stages(&out, &timing);
    put_metadata(&out, report);
    good = report_finish(report, &out, path) && good;
    for (size_t u = 0; u < report->units; u++) free(timing.told[u]);
    free(timing.told);
    free(path);
    return good;
}
