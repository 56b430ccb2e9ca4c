/* et_export.c - writes PyTorch's execution trace of one process from our records of libtorch's functions. */
#include "commands/session.h"
#include "write/execution/et.h"

/* Tells which records are missing. Returns true if there are any. */
static bool say_missing(const struct process *p, const struct executions *e)
{
    if (e->bad_records)
        complain(p->path, "%llu records are complete but not valid: they are left out",
                 (unsigned long long)e->bad_records);
    if (e->unread) complain(p->path, UNREAD, (unsigned long long)e->unread);
    return e->bad_records || e->unread;
}

static void say(struct session *session, const struct process *p, const struct et_counts *counts,
                const struct executions *executions)
{
    bool is_missing = say_missing(p, executions);
    if (counts->failed)
        complain(p->path, "%llu functions failed: their nodes have no outputs (torch leaves such nodes out)",
                 (unsigned long long)counts->failed);
    if (counts->open)
        complain(p->path, "%llu functions have no end: they have no node, as in torch",
                 (unsigned long long)counts->open);
    if (counts->endless)
        complain(p->path, "%llu functions have no start record: they are left out",
                 (unsigned long long)counts->endless);
    if (counts->cut)
        complain(p->path, "%llu nodes lack some of their values: long lists are cut", (unsigned long long)counts->cut);
    if (counts->endless || counts->cut || is_missing) session_spoil(session);
}

static void export(struct session *session, const struct process *p)
{
    struct executions executions;
    struct et_counts counts;
    executions_read(&executions, p->trace);
    if (!executions.edges) {
        complain(p->path, "has no records of libtorch's functions: record with TFI_TENSOR_ADDRESSES=1 and `ops` in "
                          "TFI_ACTIVITIES, under PyTorch 2.15");
        session->status = STATUS_NOTHING;
    } else if (out_open(&session->out, session->options.output)) {
        et_write(&session->out, p, &executions, &counts);
        say(session, p, &counts, &executions);
        session_end(session, true);
    } else {
        session->status = STATUS_NOTHING;
    }
    executions_free(&executions);
}

struct needs et_needs(const struct options *options)
{
    (void)options;
    return (struct needs){.traces = true};
}

void cmd_export_et(struct session *session)
{
    if (!session_load(session)) return;
    const struct selection *chosen = &session->chosen;
    if (chosen->processes > 1) {
        complain(NULL, "export et writes one process, and there are %zu: choose one with --rank or --pid",
                 chosen->processes);
        session->status = STATUS_USAGE;
    } else if (is_of_kineto(chosen->process[0])) {
        complain(chosen->process[0]->path,
                 "is a PyTorch trace, which lacks the values of its operators: export et needs a trace of ours");
        session->status = STATUS_NOTHING;
    } else {
        export(session, chosen->process[0]);
    }
}
