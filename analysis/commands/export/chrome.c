/* chrome.c - writes a trace in the Chrome trace event format, for Perfetto and chrome://tracing.
 *
 * One process keeps its numbers, and the events of a Kineto trace stay as they are. Several are merged (merge.h), and so is
 * a dftracer trace, whose events need another form.
 */
#include "commands/export/each.h"
#include "commands/export/merge.h"
#include "write/export/export.h"

/* Writes the only chosen process. */
static void write_one(struct session *session, const struct selection *chosen)
{
    if (!out_open(&session->out, session->options.output)) {
        session->status = STATUS_NOTHING;
        return;
    }
    uint64_t events = export_file(chosen, chosen->process[0], &session->out, "chrome");
    session_end(session, events || !is_filtered(&session->options));
}

static bool write_again(void *session, const struct selection *chosen, const struct process *process)
{
    (void)process;
    write_one(session, chosen);
    return true;
}

/* Reads the only chosen one of several inputs again, as a whole. */
static void read_and_write_one(struct session *session)
{
    const struct process *p = session->chosen.process[0];
    const struct again again = {export_needs(&session->options), {0}, session->model.start};
    if (session_read_again(session, p, &again, write_again, session)) return;
    complain(p->path, "cannot be read a second time");
    session->status = STATUS_NOTHING;
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
