/* et.c - writes PyTorch's execution trace of one process from our records of libtorch's functions, or a given one again with
 * the times and the device work of a trace. The sources of compiled modules in our records go into a folder beside it. */
#include "commands/session.h"
#include "write/execution/et.h"
#include "write/execution/joined.h"
#include "write/execution/resources.h"
#include "write/export_tfr.h"

/* The parts of the model that joining a given trace needs. */
#define WANT_JOINING (WANT_RANGES | WANT_OPERATORS | WANT_LAUNCHES | WANT_DEVICE | WANT_EVENT_NUMBERS)

/* Closes the output, and writes the sources into the folder beside it if it is a file. */
static void end(struct session *session, const struct process *p, const struct sources *sources)
{
    const char *output = session->options.output;
    struct resource_counts counts = {0};
    bool is_file = session->out.file.directory >= 0, good = true;
    session_end(session, true);
    if (session->status == STATUS_NOTHING) return;
    if (is_file) good = resources_write(output, &session->inputs.input[p->input].trace, sources, &counts);
    else if (sources->count)
        complain(p->path, "the sources of %zu compiled modules are not written: they need a regular file as --output",
                 sources->count);
    if (counts.partial)
        complain(p->path, "the sources of %llu compiled modules are not whole in the trace: they are left out",
                 (unsigned long long)counts.partial);
    if (counts.unnamed)
        complain(p->path, "the sources of %llu compiled modules have names that torch does not give: they are left out",
                 (unsigned long long)counts.unnamed);
    if (sources->unkept)
        complain(p->path, "%llu pieces of sources are beyond the limits of a trace: they are left out",
                 (unsigned long long)sources->unkept);
    if (sources->bad_pieces)
        complain(p->path, "%llu pieces of sources are complete but not valid: they are left out",
                 (unsigned long long)sources->bad_pieces);
    if (!good || counts.partial || counts.unnamed || sources->unkept || sources->bad_pieces) session_spoil(session);
}

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
    struct trace *trace = &session->inputs.input[p->input].trace;
    executions_read(&executions, trace);
    if (!executions.edges) {
        complain(p->path, "has no records of libtorch's functions: record with TFI_TENSOR_ADDRESSES=1 and `ops` in "
                          "TFI_ACTIVITIES, under PyTorch 2.15");
        session->status = STATUS_NOTHING;
    } else if (out_open(&session->out, session->options.output)) {
        et_write(&session->out, p, trace, &executions, &counts);
        say(session, p, &counts, &executions);
        end(session, p, &executions.sources);
    } else {
        session->status = STATUS_NOTHING;
    }
    executions_free(&executions);
}

/* ---- a given trace ---- */

static void say_joined(struct session *session, const char *file, const struct joined_counts *counts,
                       const struct functions *functions)
{
    unsigned long long nodes = counts->nodes;
    if (counts->unmatched)
        complain(file, "%llu of %llu functions have no times: no function of the trace has their rf_id",
                 (unsigned long long)counts->unmatched, nodes);
    if (counts->misnamed)
        complain(file, "%llu of %llu functions have no times: the function with their rf_id has another name",
                 (unsigned long long)counts->misnamed, nodes);
    if (counts->timed)
        complain(file, "%llu of %llu functions have times already: they are unchanged",
                 (unsigned long long)counts->timed, nodes);
    if (counts->repeated)
        complain(file, "%llu of %llu functions have the rf_id of an earlier node, which has their device work",
                 (unsigned long long)counts->repeated, nodes);
    if (counts->bad)
        complain(file, "%llu items of `nodes` are no nodes: they are unchanged", (unsigned long long)counts->bad);
    if (counts->bare)
        complain(file,
                 "%llu nodes of device work lack the inputs, outputs and attributes of their function: copies of "
                 "large nodes have a limit",
                 (unsigned long long)counts->bare);
    if (functions->outside)
        complain(file, "%llu kernels, copies and sets have no node: no function with a number launched them",
                 (unsigned long long)functions->outside);
    if (functions->doubled)
        complain(file, "%llu functions of the trace have the number of another one: they are left out",
                 (unsigned long long)functions->doubled);
    bool is_of_other_run = nodes && !counts->joined && !counts->timed;
    if (is_of_other_run || counts->misnamed || counts->repeated || counts->bad || counts->bare || functions->doubled)
        session_spoil(session);
}

/* Tells what is wrong with the file. Returns true if it is damaged. */
static bool say_notes(const char *file, const struct notes *notes)
{
    for (size_t i = 0; i < notes->count; i++) complain(file, "%s", notes->note[i].text);
    return notes->count > 0;
}

static void write_joined(struct session *session, const struct process *p, const char *file,
                         const struct functions *functions, const struct sources *sources, bool is_missing)
{
    struct joining joining = {.names = &session->model.names, .process = p, .functions = functions};
    struct joined_counts counts;
    struct notes notes = {0};
    joining.base = is_of_kineto(p) ? kineto_base(p) : export_base(MAX(session->model.start, 0));
    bool usable = joined_look(file, &joining, &notes), is_damaged = say_notes(file, &notes);
    notes_free(&notes);
    session->status = STATUS_NOTHING;
    if (!usable) return;
    if (joining.span.pid > 0 && p->pid > 0 && joining.span.pid != p->pid) {
        complain(file, "is of process %lld, and %s is of process %lld", (long long)joining.span.pid, p->path,
                 (long long)p->pid);
        return;
    }
    if (!out_open(&session->out, session->options.output)) return;
    session->status = 0;
    bool read = joined_write(&session->out, file, &joining, &counts);
    say_joined(session, file, &counts, functions);
    if (!read || is_damaged || is_missing) session_spoil(session);
    end(session, p, sources);
}

/* Collects the functions, and the sources of a trace of ours. Returns false, after a message, if there are no functions. */
static bool find_functions(struct session *session, const struct process *p, struct functions *functions,
                           struct sources *sources, bool *is_missing)
{
    struct trace *trace = &session->inputs.input[p->input].trace;
    struct executions executions;
    if (is_of_kineto(p)) {
        functions_of_kineto(functions, p);
    } else {
        executions_read(&executions, trace);
        *is_missing = say_missing(p, &executions);
        functions_of_executions(functions, p, trace, &executions);
        *sources = executions.sources;
        executions.sources = (struct sources){0};
        executions_free(&executions);
    }
    if (functions->count) return true;
    complain(p->path, is_of_kineto(p)
                          ? "has no `Record function id`: torch.profiler writes it"
                          : "has no records of libtorch's functions: record with TFI_TENSOR_ADDRESSES=1 and "
                            "`ops` in TFI_ACTIVITIES, under PyTorch 2.15");
    return false;
}

static void join(struct session *session, const struct process *p)
{
    struct functions functions = {0};
    struct sources sources = {0};
    struct attribution attribution;
    bool is_missing = false;
    if (find_functions(session, p, &functions, &sources, &is_missing)) {
        attribute(&attribution, p, 0);
        functions_link(&functions, p, &attribution);
        write_joined(session, p, session->options.et, &functions, &sources, is_missing);
        attribution_free(&attribution);
    } else {
        session->status = STATUS_NOTHING;
    }
    sources_free(&sources);
    functions_free(&functions);
}

void cmd_export_et(struct session *session)
{
    const char *given = session->options.et;
    if (!session_load(session, given ? WANT_JOINING : 0, true)) return;
    const struct selection *chosen = &session->chosen;
    if (chosen->processes > 1) {
        complain(NULL, "export et writes one process, and there are %zu: choose one with --rank or --pid",
                 chosen->processes);
        session->status = STATUS_USAGE;
    } else if (given) {
        join(session, chosen->process[0]);
    } else if (is_of_kineto(chosen->process[0])) {
        complain(chosen->process[0]->path,
                 "is a PyTorch trace, which lacks the values of its operators: export et needs a trace of ours, or an "
                 "execution trace of the same run as --et FILE");
        session->status = STATUS_NOTHING;
    } else {
        export(session, chosen->process[0]);
    }
}
