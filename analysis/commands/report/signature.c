/* signature.c - chooses a description for each stage, and writes it in TeleFuser's format of timing_io_signature.json.
 *
 * TeleFuser's reader treats every argument with a `shape` as a tensor with dtype and device. Other values with a
 * shape (an array, a nested tensor) are wrapped in {"array": ...} or {"tensor": ...}, so that the reader passes them
 * unchanged. Additions to that format: strides and types of tensors, nested values, `output` of any kind, the target,
 * the parts to rebuild its object from (preload/python/shim/shim_rebuild.py), the rank.
 */
#include "commands/report/signature.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "read/json/json.h"
#include "utf8.h"

/* ---- choosing ---- */

static uint32_t stage_of(const struct report *report, const struct signature *g)
{
    return g->stage < report->names ? report->one[g->stage] : NAME_NONE;
}

static int by_first(const void *a, const void *b)
{
    const struct stage_signature *x = a, *y = b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first)
                                : (x->place > y->place) - (x->place < y->place);
}

static void take_arguments(struct stage_signature *s, const struct signature *g)
{
    s->different++;
    s->first = MIN(s->first, g->time);
    if (g->time >= s->time) {
        s->time = g->time;
        s->range = g->range;
        s->arguments = g->text;
    }
}

/* Takes the result of the call whose arguments were taken, else the last result of the stage. Needs all arguments to be
 * known. */
static void take_result(struct stage_signature *s, const struct signature *g)
{
    bool same = g->range == s->range;
    if (same == s->exact ? g->time >= s->latest : same) {
        s->result = g->text;
        s->latest = g->time;
        s->exact = same;
    }
}

/* The descriptions found so far. A stage's description comes only from the process that described it first. */
struct finding {
    const struct report *report;
    struct stage_signature *found;
    size_t count, capacity;
    struct map places; /* by stage */
};

static void find_arguments(struct finding *f, const struct process *p)
{
    for (size_t i = 0; i < p->signatures; i++) {
        const struct signature *g = &p->signature[i];
        uint32_t stage = stage_of(f->report, g);
        if (g->direction != SIGNATURE_ARGUMENTS || stage == NAME_NONE) continue;
        uint32_t place = map_get(&f->places, stage);
        if (place == MAP_NONE) {
            f->found = mem_grow(f->found, &f->capacity, f->count + 1, sizeof *f->found);
            f->found[f->count] = (struct stage_signature){.stage = stage,
                                                          .process = p,
                                                          .first = g->time,
                                                          .time = INT64_MIN,
                                                          .latest = INT64_MIN,
                                                          .place = f->count,
                                                          .result = NAME_NONE};
            map_put(&f->places, stage, place = (uint32_t)f->count++);
        }
        if (f->found[place].process == p) take_arguments(&f->found[place], g);
    }
}

static void find_results(struct finding *f, const struct process *p)
{
    for (size_t i = 0; i < p->signatures; i++) {
        const struct signature *g = &p->signature[i];
        uint32_t stage = stage_of(f->report, g);
        uint32_t place = g->direction == SIGNATURE_RESULT && stage != NAME_NONE ? map_get(&f->places, stage) : MAP_NONE;
        if (place != MAP_NONE && f->found[place].process == p) take_result(&f->found[place], g);
    }
}

struct stage_signature *signatures_find(const struct report *report, size_t *count)
{
    struct finding f = {.report = report};
    for (size_t u = 0; u < report->units; u++) {
        for (size_t k = 0; k < report->unit[u].processes; k++) {
            find_arguments(&f, report->unit[u].process[k]);
            find_results(&f, report->unit[u].process[k]);
        }
    }
    map_free(&f.places);
    if (f.count) qsort(f.found, f.count, sizeof *f.found, by_first);
    *count = f.count;
    return f.found;
}

/* ---- texts ---- */

void put_json_string(struct text *to, const char *bytes, size_t length)
{
    struct text good = {0};
    for (size_t at = 0; at < length;) {
        size_t step = tfi_utf8_length(bytes + at, length - at);
        text_add(&good, step ? bytes + at : "?", step ? step : 1);
        at += MAX(step, 1);
    }
    json_t *string = json_stringn(good.data ? good.data : "", good.length);
    char *shown = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    shown = shown ? shown : mem_text("null", 4);
    text_json(to, shown, strlen(shown));
    free(shown);
    json_decref(string);
    text_free(&good);
}

/* Copies a text that is JSON, with the padding that json.h requires. Returns NULL if it is not JSON: a zero byte
 * counts as the end for the parser, so a text with one is refused. The caller frees the copy. */
static char *json_of(const struct report *report, uint32_t name, struct slice *text)
{
    json_error_t error;
    const struct name *from = names_get(&report->session->model.names, name);
    bool whole = !memchr(from->text, 0, from->length);
    json_t *value =
        whole ? json_loadb(from->text, from->length, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &error) : NULL;
    if (!value) return NULL;
    json_decref(value);
    struct text copy = {0};
    text_json(&copy, from->text, from->length);
    *text = json_padded(&copy);
    return copy.data;
}

/* ---- TeleFuser's format ---- */

enum shape { NO_TENSOR, TENSOR, ARRAY, ODD_TENSOR };

static enum shape shape_of(struct slice value)
{
    if (!value.length || *value.at != '{') return NO_TENSOR;
    struct slice shape = json_member(value, "shape"), dtype = json_member(value, "dtype");
    if (!shape.at || !dtype.at) return NO_TENSOR;
    return !json_member(value, "device").at ? ARRAY : *shape.at == '[' ? TENSOR : ODD_TENSOR;
}

static void put_value(struct text *to, struct slice value)
{
    enum shape shape = shape_of(value);
    bool wrapped = shape == ARRAY || shape == ODD_TENSOR;
    text_puts(to, shape == ARRAY ? "{\"array\": " : shape == ODD_TENSOR ? "{\"tensor\": " : "");
    text_add(to, value.at, value.length);
    text_puts(to, wrapped ? "}" : "");
}

/* Writes the arguments, all or only the scalar ones. The members "" (the function), "." (its object) and "#" (torch's
 * threads) are not arguments. */
static void put_arguments(struct text *to, struct slice object, bool scalars)
{
    struct slice key, value;
    const char *comma = "";
    while (json_next(&object, &key, &value)) {
        bool is_scalar = value.length && !strchr("{[n", *value.at);
        bool is_argument = key.length && !(key.length == 1 && strchr(".#", *key.at));
        if (!is_argument || (scalars && !is_scalar)) continue;
        text_format(to, "%s\n        \"", comma);
        text_add(to, key.at, key.length);
        text_puts(to, "\": ");
        put_value(to, value);
        comma = ",";
    }
    text_puts(to, *comma ? "\n      }" : "}");
}

static void put_result(struct text *to, const struct report *report, uint32_t result)
{
    struct slice value;
    char *copy = result != NAME_NONE ? json_of(report, result, &value) : NULL;
    if (!copy) {
        text_puts(to, "\"output_signature\": null");
        return;
    }
    bool is_tensor = shape_of(value) == TENSOR;
    text_puts(to, is_tensor ? "\"output_signature\": " : "\"output_signature\": null,\n      \"output\": ");
    put_value(to, value);
    free(copy);
}

/* Returns the target of a function of the script itself. The script is the first Python file on the command line. */
static char *in_script(const struct process *process, const char *name)
{
    const char *command = process->command, *end = command ? strstr(command, ".py") : NULL;
    while (end && end[3] && end[3] != ' ') end = strstr(end + 3, ".py");
    if (!end) return NULL;
    const char *begin = end;
    while (begin > command && begin[-1] != ' ') begin--;
    bool relative = *begin != '/' && process->directory;
    return string_format("%s%s%.*s:%s", relative ? process->directory : "", relative ? "/" : "", (int)(end + 3 - begin),
                         begin, name);
}

/* Returns the function as `module:Qual.name` or `file.py:Qual.name`; NULL if the arguments do not name it. The caller
 * frees it. */
static char *target_of(const struct process *process, struct slice arguments)
{
    static const char script[] = "__main__:";
    char *name = arguments.at ? json_text(json_member(arguments, "")) : NULL;
    if (name && strncmp(name, script, sizeof script - 1) == 0) {
        char *target = in_script(process, name + sizeof script - 1);
        free(name);
        return target;
    }
    return name;
}

/* Writes how long the stage took in the run that was recorded, and with how many of torch's threads. */
static void put_recorded(struct text *to, const struct report *report, const struct stage_signature *s,
                         struct slice threads)
{
    for (size_t u = 0; u < report->units; u++) {
        const struct unit *unit = &report->unit[u];
        for (size_t i = 0; i < unit->stages && unit->rank == s->process->rank; i++) {
            struct stage_row *row = (struct stage_row *)unit->stage[i].sums;
            if (unit->stage[i].name != s->stage || !row->calls) continue;
            values_sort(&row->each);
            text_format(to, ",\n      \"recorded\": {\"calls\": %llu, \"median_ms\": %.6f",
                        (unsigned long long)row->calls, (double)values_percentile(&row->each, 0.5) / 1e6);
            if (unit->has_device && !row->done_unknown)
                text_format(to, ", \"done_ms\": %.6f", (double)row->done / 1e6 / (double)row->calls);
            if (threads.length) text_format(to, ", \"threads\": %.*s", (int)threads.length, threads.at);
            text_puts(to, "}");
            return;
        }
    }
}

void signature_put(struct text *to, const struct report *report, const struct stage_signature *s)
{
    const struct name *stage = names_get(&report->session->model.names, s->stage);
    struct slice arguments = {NULL, 0};
    char *copy = json_of(report, s->arguments, &arguments), *target = target_of(s->process, arguments);
    text_puts(to, "\"stage_name\": ");
    put_json_string(to, stage->text, stage->length);
    text_puts(to, ",\n      \"input_signatures\": {");
    put_arguments(to, arguments, false);
    text_puts(to, ",\n      ");
    put_result(to, report, s->result);
    text_puts(to, ",\n      \"metadata\": {");
    put_arguments(to, arguments, true);
    text_puts(to, ",\n      \"target\": ");
    if (target) put_json_string(to, target, strlen(target));
    else text_puts(to, "null");
    struct slice object = arguments.at ? json_member(arguments, ".") : arguments;
    if (object.length) {
        text_puts(to, ",\n      \"object\": ");
        text_add(to, object.at, object.length);
    }
    put_recorded(to, report, s, arguments.at ? json_member(arguments, "#") : arguments);
    text_format(to, ",\n      \"rank\": %lld,\n      \"signatures\": %zu", (long long)MAX(s->process->rank, 0),
                s->different);
    free(copy);
    free(target);
}
