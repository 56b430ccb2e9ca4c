/* capture_files.c - finds and reads the traces in which the CUDA graphs of the inputs were captured.
 *
 * vLLM, SGLang and xDiT write them into the folder `capture_traces` beside the traces of the replays, or beside the folder
 * of these. Who moves them next to the traces leaves their names: graph_capture_rank_0.N.pt.trace.json.gz (vLLM),
 * [RUNNER_]bs_N[_VARIANT]_rankR.json.gz (SGLang), capture_rank_R.json.gz and capture_trace_rank_R.json.gz (xDiT). A list
 * execution_details.json, as TraceLens writes it, names others; it is compared with the files of its own folder, and opens
 * none.
 */
#include "model/replays/capture_files.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "model/ranges/step_ranges.h"

#define DETAILS "execution_details.json"
enum { DETAILS_MOST = 4 << 20 };

/* ---- names ---- */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Returns the text behind a number that `before` stands in front of; NULL: there is no such number. */
static const char *behind_number(const char *text, const char *before)
{
    const char *number = text ? strstr(text, before) : NULL;
    size_t digits = number ? strspn(number + strlen(before), "0123456789") : 0;
    return digits ? number + strlen(before) + digits : NULL;
}

/* SGLang's names: bs_N and the rank, which is the last word. */
static bool is_of_batch(const char *name)
{
    const char *size = strstr(name, "bs_"), *end = behind_number(size, "bs_");
    if (!end || (size != name && size[-1] != '_') || *end != '_') return false;
    end = behind_number(end, "_rank");
    return end && (strcmp(end, ".json") == 0 || strcmp(end, ".json.gz") == 0);
}

static bool is_capture_name(const char *name)
{
    return begins(name, "graph_capture_rank") || begins(name, "capture_rank_") || begins(name, "capture_trace_rank_") ||
           is_of_batch(name);
}

/* Returns the list of captures of a folder; NULL: it has none. */
static json_t *read_details(const char *folder)
{
    char *path = string_format("%s" DETAILS, folder), *why = NULL;
    size_t length = 0;
    char *bytes = file_whole(path, DETAILS_MOST, &length, &why);
    json_t *details = bytes ? json_loadb(bytes, length, 0, NULL) : NULL;
    free(bytes);
    free(why);
    free(path);
    return details;
}

/* True if the list names the file as a capture: its other entries are parts of replays. */
static bool is_listed(const json_t *details, const char *name)
{
    const json_t *entry;
    size_t i;
    json_array_foreach(details, i, entry)
    {
        const char *file = json_string_value(json_object_get(entry, "file"));
        if (file && json_object_get(entry, "mode") && strcmp(file, name) == 0) return true;
    }
    return false;
}

/* ---- captures in the folder of the inputs ---- */

static size_t folder_length(const char *path)
{
    const char *name = strrchr(path, '/');
    return name ? (size_t)(name + 1 - path) : 0;
}

/* True if the input was found in a folder, and is the trace of a capture. `*folder` is that of the input before. */
static bool is_aside(const struct input *input, char **folder, json_t **details)
{
    size_t length = folder_length(input->path);
    if (input->how != FILE_FOUND || input->kind != INPUT_KINETO) return false;
    if (!*folder || strlen(*folder) != length || memcmp(*folder, input->path, length) != 0) {
        free(*folder);
        json_decref(*details);
        *folder = mem_text(input->path, length);
        *details = read_details(*folder);
    }
    return is_capture_name(input->path + length) || is_listed(*details, input->path + length);
}

void captures_set_aside(struct inputs *inputs)
{
    size_t kept = 0, others = 0;
    bool *aside = mem_zero(inputs->count, sizeof *aside);
    char *folder = NULL;
    json_t *details = NULL;
    for (size_t i = 0; i < inputs->count; i++) {
        aside[i] = is_aside(&inputs->input[i], &folder, &details);
        others += !aside[i] && inputs->input[i].kind == INPUT_KINETO;
    }
    for (size_t i = 0; i < inputs->count; i++) {
        struct input *input = &inputs->input[i];
        if (!aside[i] || !others) {
            inputs->input[kept++] = *input;
            continue;
        }
        inputs->capture = mem_resize(inputs->capture, inputs->captures + 1, sizeof *inputs->capture);
        inputs->capture[inputs->captures++] = input->path;
        notes_free(&input->notes);
    }
    inputs->count = kept;
    if (inputs->captures)
        notes_add(&inputs->input[0].notes, NOTE, "%zu traces of captures beside it are no inputs", inputs->captures);
    json_decref(details);
    free(folder);
    free(aside);
}

/* ---- folders of captures ---- */

static int is_visible(const struct dirent *entry)
{
    return *entry->d_name != '.';
}

static bool has_files(const char *folder)
{
    struct dirent **entries = NULL;
    int count = file_list(folder, is_visible, &entries);
    for (int i = 0; i < count; i++) free(entries[i]);
    if (count >= 0) free(entries);
    return count > 0;
}

/* Adds the folders beside the inputs, each once: inputs of one folder are neighbours. */
static void add_folders(const struct inputs *from, struct inputs *to)
{
    static const char *const places[] = {"capture_traces", "../capture_traces"};
    char *before = NULL;
    for (size_t i = 0; i < from->count; i++) {
        const char *path = from->input[i].path;
        size_t length = folder_length(path);
        if (from->input[i].kind != INPUT_KINETO) continue;
        if (before && strlen(before) == length && memcmp(before, path, length) == 0) continue;
        free(before);
        before = mem_text(path, length);
        for (size_t k = 0, found = 0; k < ARRAY_SIZE(places) && !found; k++) {
            char *folder = string_format("%s%s", before, places[k]);
            found = has_files(folder);
            if (found) inputs_add(to, folder);
            free(folder);
        }
    }
    free(before);
}

/* Reads one file. Several are no ranks of one job, among which copies would be left out. Returns false if it is no trace. */
static bool read_capture(struct captures *captures, const struct options *options, bool details,
                         const struct input *input, struct names *names)
{
    const struct reading reading = {.needs = {.device = true,
                                              .launches = true,
                                              .operators = true,
                                              .operator_details = details,
                                              .all_spans = details, /* Python functions */
                                              .captures = true,
                                              .stream = STREAM_HELD},
                                    .jobs = (unsigned)MIN(options->jobs, 256)};
    struct inputs one = {0};
    struct model model;
    inputs_append(&one, input->path, input->how, -1)->kind = input->kind;
    model_init(&model);
    names_choose(&model.names, options);
    inputs_read(&one, &model, &reading);
    bool good = model.processes > 0;
    for (size_t i = 0; i < model.processes; i++) captures_add(captures, &model.process[i], &model.names, names, true);
    for (size_t i = 0; i < one.input[0].notes.count && !good; i++)
        complain(input->path, "%s", one.input[0].notes.note[i].text);
    inputs_free(&one);
    model_free(&model);
    return good;
}

bool captures_read(struct captures *captures, const struct options *options, bool details, const struct inputs *inputs,
                   struct names *names)
{
    const struct strings_list *named = &options->graph_capture;
    struct inputs files = {0};
    bool good = true;
    for (size_t i = 0; i < named->count; i++) inputs_add(&files, named->text[i]);
    for (size_t i = 0; i < inputs->captures && !named->count; i++)
        inputs_append(&files, inputs->capture[i], FILE_FOUND, -1)->kind = INPUT_KINETO;
    if (!named->count) add_folders(inputs, &files);
    for (size_t i = 0; i < files.count; i++) good &= read_capture(captures, options, details, &files.input[i], names);
    if (files.count && !captures->patterns) {
        complain(files.input[0].path, "shows no captured launch: the operators of replayed graphs stay unknown");
        good = false;
    }
    inputs_free(&files);
    return good;
}
