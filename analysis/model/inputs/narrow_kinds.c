/* narrow_kinds.c - leaves inputs out that have no meaning for a question. */
#include "model/inputs/narrow_kinds.h"

#include <string.h>

#include "base/command.h"

/* Kinds of inputs that only some questions have a meaning for. */
static const struct narrow {
    enum input_kind kind;
    uint64_t takes; /* what such a question has in its row */
    const char *one, *others, *has;
} narrow_kinds[] = {
    {INPUT_DFTRACER, DFTRACER, "a dftracer trace", "dftracer traces", "stages and file I/O"},
    {INPUT_MEMORY, MEMORY_ROWS, "a file of torch's memory rows", "files of memory rows", "blocks"},
    {INPUT_FLIGHT, COLLECTIVES, "a dump of PyTorch's flight recorder", "dumps of the flight recorder", "collectives"},
    {INPUT_SNAPSHOT, MEMORY_ROWS, "a memory snapshot of torch", "memory snapshots", "blocks and segments"},
};

/* Returns the first question that has no meaning for the kind; NULL if there is none. */
static const struct command *question_without(const struct options *options, const struct narrow *narrow)
{
    for (size_t i = 0; i < options->questions; i++)
        if (!(options->question[i]->takes & narrow->takes)) return options->question[i];
    return NULL;
}

/* Leaves inputs out that have no meaning for a question, with one message; beside others of a directory they are no loss. */
static void leave_out(struct inputs *inputs, const struct options *options, const struct narrow *narrow)
{
    const struct command *question = question_without(options, narrow);
    struct input *first = NULL;
    size_t count = 0;
    if (!question) return;
    for (size_t i = 0; i < inputs->count; i++) {
        struct input *input = &inputs->input[i];
        if (input->kind != narrow->kind) continue;
        first = first ? first : input;
        input->left_out = true;
        count++;
    }
    if (!first) return;
    bool harmless = first->how == FILE_FOUND && count < inputs->count;
    struct text names = {0};
    for (const struct command *command = options->commands; command->name; command++)
        if (command->takes & narrow->takes) text_format(&names, "%s%s", names.length ? ", " : "", command->name);
    notes_add(&first->notes, harmless ? NOTE : UNUSABLE,
              "is left out%s%s%s: %s has %s, but nothing that `%s` asks for; these commands read it: %s",
              count > 1 ? ", as the other " : "", count > 1 ? narrow->others : "", count > 1 ? " are" : "", narrow->one,
              narrow->has, question->name, names.data);
    first->left_out = harmless;
    text_free(&names);
}

/* `hang` asks about the job that wrote the dumps. Traces of a profiler beside them in a directory are of another time. */
static void leave_out_profiles(struct inputs *inputs, const struct options *options)
{
    struct input *dump = NULL;
    size_t profiles = 0;
    bool asks_hang = false;
    for (size_t i = 0; i < options->questions; i++) asks_hang |= strcmp(options->question[i]->name, "hang") == 0;
    for (size_t i = 0; i < inputs->count && !dump; i++)
        if (inputs->input[i].kind == INPUT_FLIGHT) dump = &inputs->input[i];
    for (size_t i = 0; asks_hang && dump && i < inputs->count; i++) {
        struct input *input = &inputs->input[i];
        if (input->kind != INPUT_KINETO || input->how != FILE_FOUND || notes_have(&input->notes, UNUSABLE)) continue;
        input->left_out = true;
        profiles++;
    }
    if (profiles)
        notes_add(&dump->notes, NOTE, "%zu traces of a profiler beside the dumps of the flight recorder were left out",
                  profiles);
}

void inputs_leave_out_kinds(struct inputs *inputs, const struct options *options)
{
    for (size_t i = 0; i < ARRAY_SIZE(narrow_kinds); i++) leave_out(inputs, options, &narrow_kinds[i]);
    leave_out_profiles(inputs, options);
}
