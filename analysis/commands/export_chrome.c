/* export_chrome.c - writes a trace in the Chrome trace event format, for Perfetto and chrome://tracing. */
#include <stdlib.h>

#include "ask/choice.h"
#include "commands/session.h"
#include "write/export_kineto.h"
#include "write/export_tfr.h"

/* True for any number of .tfr traces, or one trace of another profiler. Merging traces of other profilers would take
 * more than putting them into one file. */
static bool can_export(const struct session *session)
{
    size_t others = 0;
    for (size_t i = 0; i < session->chosen.processes; i++) others += is_of_kineto(session->chosen.process[i]);
    if (others && session->chosen.processes > 1) {
        complain(NULL, "export chrome writes one PyTorch trace at a time, not %zu; choose one with --rank",
                 session->chosen.processes);
        return false;
    }
    return true;
}

void cmd_export_chrome(struct session *session)
{
    uint64_t events;
    if (!session_load(session, WANT_FOR_EXPORT | WANT_FOR_EXPORT_TFR, true)) return;
    if (!can_export(session)) {
        session->status = 2;
        return;
    }
    if (!out_open(&session->out, session->options.output)) {
        session->status = 1;
        return;
    }
    const uint32_t *of_name = session->chosen.stages;
    if (is_of_kineto(session->chosen.process[0])) {
        events = export_kineto_whole(&session->chosen, session->chosen.process[0], &session->out, "chrome", of_name);
    } else {
        struct tfr_export asked = {.process = session->chosen.process,
                                   .processes = session->chosen.processes,
                                   .out = &session->out,
                                   .artefact = "chrome",
                                   .of_name = of_name};
        events = export_tfr(&asked, &session->chosen);
    }
    session_end(session, events || !is_filtered(&session->options));
}
