/* launches_budget.c - prints how the counts of a run compare with a budget, and writes the budget that a run keeps.
 *
 * A gate must not pass by mistake. Filters that can hide calls are therefore refused, and counts that were not recorded
 * fail like those above the budget.
 */
#include "commands/launches_budget.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ask/ranks/absent_ranks.h"

static const char budget_keys[] = "rank,stage,counter,allowed,found,verdict";

bool launches_budget_begin(struct session *session, struct budget *budget)
{
    const struct options *o = &session->options;
    const char *given = o->budget ? "--budget" : "--write-budget", *other = NULL;
    if (!o->budget && !o->write_budget) return true;
    if (o->budget && o->write_budget) other = "--write-budget";
    else if (o->rules != RULES_EXACT) other = "--rules";
    else if (o->device.count) other = "--device";
    else if (o->stream.count) other = "--stream";
    else if (!isnan(o->from)) other = "--from";
    else if (!isnan(o->to)) other = "--to";
    else if (o->budget && o->top) other = "--top";
    if (other)
        complain(NULL, "%s and %s exclude each other: %s", given, other,
                 strcmp(other, "--write-budget") == 0 ? "judge a run by one budget, or make a new one from it"
                                                      : "a budget counts all calls of a stage");
    if (!other && (!o->budget || budget_read(budget, o->budget))) return true;
    session->status = STATUS_USAGE;
    return false;
}

/* True if no call can be missing from a trace. */
static bool is_whole(const struct session *session)
{
    bool whole = session->status != STATUS_PARTIAL;
    for (size_t i = 0; i < session->chosen.processes; i++)
        whole &= session->chosen.process[i]->complete && !session->chosen.process[i]->lost;
    return whole;
}

/* ---- the gate ---- */

static void emit_judgement(struct session *session, const struct judgement *j)
{
    struct emit *e = &session->emit;
    const struct stage_counts *row = j->row;
    emit_row(e);
    emit_known(e, "rank", row ? row->rank : -1);
    if (row) emit_stage(e, names_get(&session->model.names, row->stage));
    else emit_bytes_text(e, "stage", j->entry->stage, strlen(j->entry->stage));
    emit_text(e, "counter", call_kind_keys[j->kind]);
    emit_count(e, "allowed", j->entry->most[j->kind]);
    if (row && (j->verdict == EXCEEDED || j->verdict == WITHIN || !row->unknown[j->kind]))
        emit_count(e, "found", row->count[j->kind]);
    else emit_null(e, "found");
    emit_text(e, "verdict", verdict_names[j->verdict]);
    emit_row_end(e);
}

static const struct judgement *first_of(const struct judgements *judgements, enum verdict verdict)
{
    size_t i = 0;
    while (judgements->judgement[i].verdict != verdict) i++;
    return &judgements->judgement[i];
}

/* Says in one line how many counts have a verdict other than WITHIN, and names the first of them. */
static void say_verdict(const struct session *session, const struct judgements *judgements, enum verdict verdict,
                        const char *absent)
{
    static const char *const advice[NR_VERDICTS] = {
        [EXCEEDED] = "exceed the budget",
        [STAGE_ABSENT] = "cannot be judged, as no rank has the stage",
        [NOT_RECORDED] = "cannot be judged, as the calls in the stage were not recorded; ENABLE_PROFILER_NAMES, "
                         "TFI_ACTIVITIES and the schedule must include them",
        [TRACE_INCOMPLETE] = "cannot be judged, as a trace is not whole; `tfanalyze info` shows what it lacks",
        [RANK_ABSENT] = "cannot be judged, as"};
    size_t count = judgements->of_verdict[verdict];
    if (!count || verdict == WITHIN) return;
    const struct judgement *first = first_of(judgements, verdict);
    struct text line = {0};
    text_format(&line, "%zu of %zu counts %s", count, judgements->count, advice[verdict]);
    if (verdict == RANK_ABSENT) text_format(&line, " %s (--rank judges the others)", absent);
    text_format(&line, "; the first: stage %s, %s, %llu allowed", first->entry->stage, call_kind_keys[first->kind],
                (unsigned long long)first->entry->most[first->kind]);
    if (verdict == EXCEEDED) {
        char *stage = budget_name(&session->model, first->row->stage);
        text_free(&line);
        text_format(&line, "%zu of %zu counts %s; the first: stage %s, rank %lld, %s, %llu allowed, %llu found", count,
                    judgements->count, advice[verdict], stage, (long long)first->row->rank, call_kind_keys[first->kind],
                    (unsigned long long)first->entry->most[first->kind],
                    (unsigned long long)first->row->count[first->kind]);
        free(stage);
    }
    complain(session->options.budget, "%s", line.data);
    text_free(&line);
}

void launches_judge(struct session *session, const struct budget *budget, const struct counts *counts)
{
    struct judgements judgements;
    struct emit *e = &session->emit;
    char *absent = absent_ranks(&session->chosen, true);
    judge(&judgements, budget, counts, &session->model, is_whole(session), absent != NULL);
    emit_keys(e, budget_keys);
    for (size_t i = 0; i < judgements.count; i++) emit_judgement(session, &judgements.judgement[i]);
    emit_totals(e);
    emit_bool(e, "passed", all_within(&judgements));
    emit_count(e, "counts", judgements.count);
    emit_count(e, "exceeded", judgements.of_verdict[EXCEEDED]);
    emit_count(e, "not_judged", judgements.count - judgements.of_verdict[EXCEEDED] - judgements.of_verdict[WITHIN]);
    emit_end(e);
    session_end(session, true);
    for (enum verdict v = 0; v < NR_VERDICTS; v++) say_verdict(session, &judgements, v, absent);
    if (!all_within(&judgements)) session->status = STATUS_GATE;
    judgements_free(&judgements);
    free(absent);
}

/* ---- making a budget ---- */

static void put_budget(struct out *out, const struct budget *budget)
{
    out_format(
        out,
        "{\n  \"version\": %d,\n  \"note\": \"the largest allowed number of calls, of any rank\",\n  \"stages\": {",
        BUDGET_VERSION);
    for (size_t i = 0; i < budget->count; i++) {
        const struct budget_entry *entry = &budget->entry[i];
        const char *before = "{";
        out_puts(out, i ? ",\n    " : "\n    ");
        out_json_string(out, entry->stage, strlen(entry->stage));
        out_puts(out, ": ");
        for (int kind = 0; kind < NR_CALL_KINDS; kind++) {
            if (!entry->has[kind]) continue;
            out_format(out, "%s\"%s\": %llu", before, call_kind_keys[kind], (unsigned long long)entry->most[kind]);
            before = ", ";
        }
        out_puts(out, "}");
    }
    out_puts(out, "\n  }\n}\n");
}

/* Writes through no link: a budget lies in a source tree, where a link may lead anywhere. */
static bool write_file(const char *path, const struct budget *budget)
{
    const char *why = NULL;
    char *directory = directory_above(path);
    int fd = directory_open(directory, &why);
    struct out out;
    bool good = fd >= 0;
    if (good) {
        good = out_open_in(&out, fd, path, FILE_SHARED);
        if (good) put_budget(&out, budget);
        if (good) good = out_close(&out);
        else out_discard(&out);
    } else {
        complain(path, "cannot be written (%s: %s)", directory, why);
    }
    if (fd >= 0) close(fd);
    free(directory);
    return good;
}

void launches_write_budget(struct session *session, const struct counts *counts)
{
    const char *path = session->options.write_budget;
    struct budget budget = {0};
    char *absent = absent_ranks(&session->chosen, true);
    if (absent) {
        complain(path, "is not written: %s, and a budget made without them may be too small; --rank chooses the others",
                 absent);
        session_spoil(session);
        free(absent);
        return;
    }
    if (!is_whole(session)) {
        complain(path, "is not written: a trace is not whole, and a budget made from it would be too small");
        session_spoil(session);
        return;
    }
    budget_of(&budget, counts, &session->model);
    if (!budget.count || budget.count > BUDGET_STAGES) {
        complain(path, "is not written: %zu stages have counts, and a budget has 1 to %d%s", budget.count,
                 BUDGET_STAGES,
                 budget.count ? "; choose some with --stage" : "; TFI_ACTIVITIES must include cpu or ops");
        session_spoil(session);
    } else if (!write_file(path, &budget)) {
        session->status = STATUS_NOTHING;
    }
    budget_free(&budget);
}
