/* capture_files.c - reads the traces in which the CUDA graphs of the inputs were captured. */
#include "model/replays/capture_files.h"

#include <stdlib.h>
#include <string.h>

#include "model/ranges/step_ranges.h"

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
    char *before = NULL;
    for (size_t i = 0; i < from->count; i++) {
        const char *path = from->input[i].path, *name = strrchr(path, '/');
        if (from->input[i].kind != INPUT_KINETO) continue;
        char *folder = string_format("%.*scapture_traces", name ? (int)(name + 1 - path) : 0, path);
        if ((!before || strcmp(before, folder) != 0) && has_files(folder)) inputs_add(to, folder);
        free(before);
        before = folder;
    }
    free(before);
}

/* Reads one file. Several are no ranks of one job, among which copies would be left out. Returns false if it is no trace. */
static bool read_capture(struct captures *captures, const struct options *options, struct needs needs,
                         const struct input *input, struct names *names)
{
    const struct reading reading = {.needs = {.device = true,
                                              .launches = true,
                                              .operators = true,
                                              .operator_details = needs.operator_details,
                                              .all_spans = needs.all_spans,
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

bool captures_read(struct captures *captures, const struct options *options, struct needs needs,
                   const struct inputs *inputs, struct names *names)
{
    const struct strings_list *named = &options->graph_capture;
    struct inputs files = {0};
    bool good = true;
    for (size_t i = 0; i < named->count; i++) inputs_add(&files, named->text[i]);
    if (!named->count) add_folders(inputs, &files);
    for (size_t i = 0; i < files.count; i++) good &= read_capture(captures, options, needs, &files.input[i], names);
    if (files.count && !captures->patterns) {
        complain(files.input[0].path, "shows no captured launch: the operators of replayed graphs stay unknown");
        good = false;
    }
    inputs_free(&files);
    return good;
}
