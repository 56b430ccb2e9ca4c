/* command_line.c - parses a command line, runs its commands and returns the exit status: for main(), and for `mcp`. */
#include "commands/command_line.h"

#include <stdio.h>

#include "base/command.h"
#include "base/gzip/gzip_out.h"
#include "base/progress.h"
#include "commands/help.h"
#include "commands/session.h"

static void answer_questions(struct session *session)
{
    gzip_out_jobs(session->options.jobs);
    progress_begin(session->options.question[0]->name);
    for (size_t i = 0; i < session->options.questions; i++) {
        session->options.command = session->options.question[i];
        definition_of(session->options.command, &session->options)->answer(session);
    }
    session_close(session);
    progress_end();
}

int command_line_run(const struct command *commands, int argc, char **argv)
{
    struct session session = {0};
    if (!options_parse(&session.options, commands, argc, argv)) session.status = STATUS_USAGE;
    else if (session.options.help) help_print(session.options.command);
    else if (session.options.version) printf("tfanalyze %s\n", TFI_VERSION);
    else answer_questions(&session);
    session_free(&session);
    return session.status;
}
