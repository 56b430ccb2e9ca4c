/* export_pftrace.c - writes traces as a Perfetto trace, one rank or many. */
#include <stdlib.h>
#include <unistd.h>

#include "ask/choice.h"
#include "commands/session.h"
#include "write/export_kineto.h"
#include "write/export_tfr.h"

/* Returns the number of events that match. */
static uint64_t write_processes(struct session *session, const struct event_taker *taker)
{
    const struct selection *chosen = &session->chosen;
    uint64_t events = 0;
    struct tfr_export asked = {.process = mem_zero(chosen->processes, sizeof *asked.process),
                               .artefact = "pftrace",
                               .of_name = chosen->stages,
                               .taker = taker};
    for (size_t i = 0; i < chosen->processes; i++)
        if (is_of_kineto(chosen->process[i])) export_kineto_events(chosen, chosen->process[i], taker, &events);
        else asked.process[asked.processes++] = chosen->process[i];
    if (asked.processes) events += export_tfr(&asked, chosen);
    free(asked.process);
    return events;
}

void cmd_export_pftrace(struct session *session)
{
    struct pftrace file;
    if (!session->options.output && isatty(STDOUT_FILENO)) {
        complain(NULL, "export pftrace writes bytes that are not text; choose a file with --output FILE");
        session->status = 2;
        return;
    }
    if (!session_load(session, WANT_FOR_EXPORT | WANT_FOR_EXPORT_TFR, true)) return;
    if (!out_open(&session->out, session->options.output)) {
        session->status = 1;
        return;
    }
    pftrace_open(&file, &session->out);
    struct event_taker taker = pftrace_taker(&file);
    uint64_t events = write_processes(session, &taker);
    if (file.unknown) {
        complain(NULL, "%llu events are left out: a Perfetto trace has no form for their phase",
                 (unsigned long long)file.unknown);
        session_spoil(session);
    }
    session->out.failed |= file.failed;
    session_end(session, events || !is_filtered(&session->options));
    pftrace_close(&file);
}
