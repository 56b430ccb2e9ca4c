/* chrome.c - writes a trace in the Chrome trace event format, for Perfetto and chrome://tracing.
 *
 * One process keeps its numbers, and the events of a Kineto trace stay as they are. Several are merged (merge.h), and so is
 * a dftracer trace, whose events need another form.
 */
#include "ask/part.h"
#include "commands/export/each.h"
#include "commands/export/merge.h"
#include "write/export_kineto.h"
#include "write/export_tfr.h"

/* Writes the only chosen process. */
static void write_one(struct session *session, const struct selection *chosen)
{
    uint64_t events;
    if (!out_open(&session->out, session->options.output)) {
        session->status = 1;
        return;
    }
    if (is_of_kineto(chosen->process[0])) {
        events = export_kineto_whole(chosen, chosen->process[0], &session->out, "chrome", chosen->stages);
    } else {
        struct tfr_export asked = {.process = chosen->process,
                                   .processes = 1,
                                   .out = &session->out,
                                   .artefact = "chrome",
                                   .of_name = chosen->stages};
        events = export_tfr(&asked, chosen);
    }
    session_end(session, events || !is_filtered(&session->options));
}

/* Reads the only chosen one of several inputs again, as a whole. */
static void read_and_write_one(struct session *session)
{
    const struct input *input = &session->inputs.input[session->chosen.process[0]->input];
    struct inputs one = {0};
    struct model model;
    struct selection chosen;
    model_init(&model);
    inputs_add_again(&one, input);
    const struct reading reading = part_reading(&session->options, export_needs(&session->options));
    inputs_read(&one, &model, &reading);
    model.start = session->model.start; /* --from and --to count from the first record of all inputs */
    selection_init(&chosen, &session->options, &one, &model);
    part_load(&chosen, &one);
    if (chosen.processes) {
        session_note_unread(session, session->chosen.process[0], &chosen);
        write_one(session, &chosen);
    } else {
        complain(input->path, "cannot be read a second time");
        session->status = 1;
    }
    selection_free(&chosen);
    inputs_free(&one);
    model_free(&model);
}

void cmd_export_chrome(struct session *session)
{
    bool is_one = session_inputs(session) == 1 && session->inputs.input[0].kind != INPUT_DFTRACER;
    if (is_one) {
        if (session_load(session)) write_one(session, &session->chosen);
    } else if (each_load(session)) {
        if (session->chosen.processes == 1 && !is_of_dftracer(session->chosen.process[0])) read_and_write_one(session);
        else merge_write(session, "chrome");
    }
}
