/* main.c - tfanalyze: the table of its commands, and its start. */
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
#include "ask/ranks/rank_times.h"
#include "base/command.h"
#include "commands/command_line.h"
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
    {name, answers, keys, refuses, takes, {[RULES_EXACT] = {function, needed, reduction}, rules}},
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

int main(int argc, char **argv)
{
    allow_many_files();
    return command_line_run(commands, argc, argv);
}
