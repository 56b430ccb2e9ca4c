/* advise.c - `advise`: what to change, the largest gain first, and what could not be judged. */
#include "advise/findings.h"
#include "commands/session.h"

enum { MOST_FINDINGS = 5 };

static void emit_where(struct session *session, const struct finding *f)
{
    struct emit *e = &session->emit;
    emit_open(e, "where", false);
    emit_name(e, &session->model.names, "operator", f->where);
    if (f->file) emit_text(e, "file", f->file);
    else emit_null(e, "file");
    emit_known(e, "line", f->line);
    if (f->function) emit_text(e, "function", f->function);
    else emit_null(e, "function");
    emit_close(e);
    emit_open(e, "evidence", true);
    for (size_t i = 0; i < f->evidences; i++) {
        emit_open(e, NULL, false);
        emit_text(e, "value", f->evidence[i].what);
        emit_text(e, "command", f->evidence[i].command);
        emit_close(e);
    }
    emit_close(e);
}

static void emit_finding(struct session *session, const struct finding *f)
{
    struct emit *e = &session->emit;
    emit_row(e);
    emit_text(e, "id", f->id);
    emit_text(e, "finding", f->text);
    emit_text(e, "severity", severity_names[f->severity]);
    if (f->stage == NAME_NONE) emit_null(e, "stage");
    else emit_stage(e, names_get(&session->model.names, f->stage));
    emit_known(e, "rank", f->rank);
    emit_where(session, f);
    emit_text(e, "cause", f->cause);
    emit_text(e, "fix", f->fix);
    emit_us(e, "headroom_us", f->headroom);
    emit_text(e, "confidence", f->confidence);
    emit_text(e, "confirm", f->confirm);
    emit_row_end(e);
}

static void emit_not_judged(struct emit *e, const struct advice *advice)
{
    emit_open(e, "not_judged", true);
    for (size_t i = 0; i < advice->unjudged; i++) {
        emit_open(e, NULL, false);
        emit_text(e, "what", advice->not_judged[i].what);
        emit_text(e, "why", advice->not_judged[i].why);
        emit_text(e, "how", advice->not_judged[i].how);
        emit_close(e);
    }
    emit_close(e);
}

void cmd_advise(struct session *session)
{
    struct emit *e = &session->emit;
    const struct options *options = &session->options;
    struct roofline roofline = {.gpu = options->gpu};
    struct advice advice;
    if (!session_ask(session, STYLE_BLOCKS)) return;
    const struct walls *walls = session_walls(session);
    roofline_of_model(&roofline, &session->chosen);
    advise(&advice, &session->chosen, walls, &roofline);
    size_t rows = options->all ? advice.findings : MIN(advice.firsts, MOST_FINDINGS);
    for (size_t i = 0; i < rows; i++) emit_finding(session, &advice.finding[i]);
    emit_totals(e);
    emit_count(e, "findings", advice.findings);
    emit_not_judged(e, &advice);
    emit_end(e);
    session_end(session, advice.findings || walls->count);
    advice_free(&advice);
    roofline_free(&roofline);
}
