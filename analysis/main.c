/* main.c - tfanalyze: parses the command line, runs the commands and returns the exit status. */
#include <stdio.h>
#include <sys/resource.h>

#include "advise/budget/wall.h"
#include "ask/causes/causes.h"
#include "ask/comm/comm_reduction.h"
#include "ask/critical/critical.h"
#include "ask/device/idle_gaps.h"
#include "ask/device/queue_lengths.h"
#include "ask/diff/diff_reduction.h"
#include "ask/hang/hang_reduction.h"
#include "ask/io/io_reduction.h"
#include "ask/steps/step_parts.h"
#include "ask/rank_times.h"
#include "base/command.h"
#include "base/gzip_out.h"
#include "commands/help.h"
#include "commands/ranks/reduce.h"
#include "commands/session.h"
#include "compat/dfanalyzer.h"
#include "compat/tracelens.h"

#define EXACT_ONLY
#define GROUP(question)
#define COMMAND(name, function, answers, keys, takes, needed, reduction, rules, refuses)                               \
    void function(struct session *session);                                                                            \
    struct needs needed(const struct options *options);                                                                \
    rules
#define RULE(rules, function, needed, reduction)                                                                       \
    void function(struct session *session);                                                                            \
    struct needs needed(const struct options *options);
#include "commands.def"
#undef COMMAND
#undef RULE

const struct command commands[] = {
#define COMMAND(name, function, answers, keys, takes, needed, reduction, rules, refuses)                               \
    {name, keys, refuses, takes, {[RULES_EXACT] = {function, needed, reduction}, rules}},
#define RULE(rules, function, needed, reduction) [RULES_##rules] = {function, needed, reduction},
#include "commands.def"
#undef COMMAND
#undef RULE
    {0}};

/* Raises the limit of open files: a run of many ranks has more files than the default allows. */
static void allow_many_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void ask(struct session *session)
{
    gzip_out_jobs(session->options.jobs);
    for (size_t i = 0; i < session->options.questions; i++) {
        session->options.command = session->options.question[i];
        definition_of(session->options.command, &session->options)->answer(session);
    }
    session_close(session);
}

int main(int argc, char **argv)
{
    struct session session = {0};
    allow_many_files();
    if (!options_parse(&session.options, commands, argc, argv)) session.status = 2;
    else if (session.options.help) help_print(session.options.command);
    else if (session.options.version) printf("tfanalyze %s\n", TFI_VERSION);
    else ask(&session);
    session_free(&session);
    return session.status;
}
