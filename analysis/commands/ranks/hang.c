/* hang.c - shows which collective of a job is unmatched, which ranks never came, and where each thread is.
 *
 * One row for each thread that is in a call, a collective or a stage, or that has Python frames, and for the thread of
 * each process that called its last collective. Text begins with the verdict, and JSON has it in the totals.
 * ask/hang/hang_answer.h says how an unmatched collective is found.
 */
#include <stdlib.h>
#include <string.h>

#include "ask/hang/verdict.h"
#include "ask/hang/thread_position.h"
#include "commands/session.h"
#include "model/frames.h"

/* ---- rows ---- */

static bool is_missing(const struct hang_rank *r)
{
    return r->role == HANG_MISSING || r->role == HANG_HELD;
}

static bool is_unknown(const struct hang_rank *r)
{
    return r->role == HANG_EARLY || r->role == HANG_PARTIAL || r->role == HANG_ABSENT;
}

static bool is_first(const struct hang_rank *r)
{
    return r->role == HANG_MISSING || r->role == HANG_GONE;
}

static bool is_gone(const struct hang_rank *r)
{
    return r->role == HANG_GONE;
}

static bool is_waiting(const struct hang_rank *r)
{
    return r->role == HANG_WAITS;
}

static bool is_differing(const struct hang_rank *r)
{
    return r->differs != DIFFERS_NOT;
}

/* Writes the list of the chosen ranks; null if there is none. */
static void emit_ranks(struct emit *e, const char *key, const struct hang_unmatched *u,
                       bool (*wanted)(const struct hang_rank *rank))
{
    size_t count = 0;
    for (size_t i = 0; u && i < u->ranks; i++) count += wanted(&u->rank[i]);
    if (!count) {
        emit_null(e, key);
        return;
    }
    emit_open(e, key, true);
    for (size_t i = 0; i < u->ranks; i++)
        if (wanted(&u->rank[i])) emit_known(e, NULL, u->rank[i].rank);
    emit_close(e);
}

static void emit_mismatch(struct emit *e, const struct hang *hang, const struct hang_where *w, int64_t rank)
{
    const struct hang_rank *r = w->unmatched ? hang_rank_in(w->unmatched, rank) : NULL;
    struct text text = {0};
    if (!r || r->differs == DIFFERS_NOT) {
        emit_null(e, "mismatch");
        return;
    }
    hang_difference(hang, w->unmatched, r, &text);
    emit_text(e, "mismatch", text.data);
    text_free(&text);
}

/* Text has the innermost frame only that is not torch's own. */
static void emit_stack(struct emit *e, const struct names *names, uint32_t stack)
{
    size_t depth = stack == NAME_NONE ? 0 : stack_depth(names, stack);
    size_t first = e->format == FORMAT_TEXT && depth ? hang_user_frame(names, stack) : 0;
    depth = e->format == FORMAT_TEXT ? MIN(depth, first + 1) : depth;
    if (!depth) {
        emit_null(e, "stack");
        return;
    }
    emit_open(e, "stack", true);
    for (size_t i = first; i < depth; i++) {
        struct text text = {0};
        hang_frame_text(names, stack, i, &text);
        emit_text(e, NULL, text.data);
        text_free(&text);
    }
    emit_close(e);
}

static void emit_part(struct emit *e, const struct names *names, const struct comm_part *part)
{
    if (part) emit_text(e, "collective", collective_kinds[part->op].name);
    else emit_null(e, "collective");
    emit_name(e, names, "group", part ? part->group : NAME_NONE);
    emit_known(e, "seq", part ? part->sequence : UNKNOWN_NUMBER);
}

static void emit_thread(struct emit *e, const struct hang *hang, size_t place, const struct hang_thread *t)
{
    const struct names *names = hang->job.summary.names;
    const struct process *p = hang->chosen->process[place];
    struct hang_where w = hang_where(hang, place, t);
    emit_row(e);
    emit_known(e, "rank", p->rank);
    emit_known(e, "pid", p->pid);
    emit_known(e, "thread", t->open.tid ? (int64_t)t->open.tid : UNKNOWN_NUMBER);
    emit_name(e, names, "name", t->open.name);
    emit_text(e, "process", w.process);
    emit_text(e, "state", w.state);
    emit_name(e, names, "exception", w.exception);
    emit_name(e, names, "call", w.call);
    if (w.since == UNKNOWN_TIME || hang->end == UNKNOWN_TIME) emit_null(e, "since_us");
    else emit_us(e, "since_us", MAX(add_ns(hang->end, -w.since), 0));
    emit_name(e, names, "stage", w.stage);
    emit_part(e, names, w.part);
    emit_mismatch(e, hang, &w, p->rank);
    emit_ranks(e, "missing_ranks", w.unmatched, is_missing);
    emit_stack(e, names, w.stack);
    emit_row_end(e);
}

static bool is_shown(const struct hang_thread *t, const struct hang_thread *first)
{
    return t == first || (t->has_slot && (t->open.calls || t->open.stage_start != UNKNOWN_TIME)) ||
           t->stack != NAME_NONE || t->open.collective_start != UNKNOWN_TIME;
}

static int by_rank(const void *a, const void *b, void *argument)
{
    const struct hang *hang = argument;
    const struct process *x = hang->chosen->process[*(const size_t *)a], *y = hang->chosen->process[*(const size_t *)b];
    int order = by_number(x->rank, y->rank);
    return order ? order : by_number(x->pid, y->pid);
}

/* Returns the number of threads without a row. */
static size_t emit_rows(struct emit *e, struct hang *hang)
{
    size_t processes = hang->chosen->processes, *order = mem_zero(processes, sizeof *order), left_out = 0;
    for (size_t i = 0; i < processes; i++) order[i] = i;
    if (processes) qsort_r(order, processes, sizeof *order, by_rank, hang);
    for (size_t i = 0; i < processes; i++) {
        const struct hang_taken *taken = hang->taken[order[i]];
        const struct hang_thread *first = hang_main_thread(taken);
        for (size_t k = 0; k < taken->threads; k++) {
            bool shown = is_shown(&taken->thread[k], first);
            left_out += !shown;
            if (shown) emit_thread(e, hang, order[i], &taken->thread[k]);
        }
    }
    free(order);
    return left_out;
}

/* ---- the verdict ---- */

static void emit_lines(struct emit *e, const char *key, const struct hang_lines *lines)
{
    emit_open(e, key, true);
    for (size_t i = 0; i < lines->count; i++) emit_text(e, NULL, lines->line[i]);
    emit_close(e);
}

static void print_lines(struct out *out, const char *head, const struct hang_lines *lines)
{
    if (*head && lines->count) out_format(out, "%s\n", head);
    for (size_t i = 0; i < lines->count; i++) out_format(out, "%s%s\n", *head ? "  " : "", lines->line[i]);
    if (lines->count) out_puts(out, "\n");
}

/* A csv table has no place for the reasons why something is unknown, so messages give them. */
static void say_lines(const struct hang_lines *lines)
{
    for (size_t i = 0; i < lines->count; i++) complain(NULL, "not known: %s", lines->line[i]);
}

static void emit_unmatched(struct emit *e, const struct hang *hang, const struct hang_unmatched *u)
{
    const struct names *names = hang->job.summary.names;
    emit_open(e, NULL, false);
    emit_text(e, "collective", collective_kinds[u->part->op].name);
    emit_name(e, names, "group", u->part->group);
    emit_known(e, "seq", u->part->sequence);
    emit_known(e, "size", u->size);
    emit_text(e, "fault", u->all_came ? "never_ends" : u->differs ? "mismatch" : u->is_first ? "missing" : "held_up");
    if (u->since == UNKNOWN_TIME) emit_null(e, "waited_us");
    else emit_us(e, "waited_us", u->waited);
    emit_ranks(e, "waiting_ranks", u, is_waiting);
    emit_ranks(e, "missing_ranks", u, is_missing);
    emit_ranks(e, "gone_ranks", u, is_gone);
    emit_ranks(e, "blamed_ranks", u, u->differs && u->has_majority ? is_differing : is_first);
    emit_ranks(e, "differing_ranks", u, is_differing);
    emit_ranks(e, "unknown_ranks", u, is_unknown);
    emit_close(e);
}

static void emit_sums(struct emit *e, const struct hang *hang, size_t left_out, const struct hang_lines *verdict,
                      const struct hang_lines *unknown)
{
    emit_totals(e);
    emit_count(e, "ranks", hang->place.count);
    emit_count(e, "groups", hang->groups);
    emit_count(e, "idle_threads", left_out);
    if (e->format == FORMAT_TEXT) {
        emit_count(e, "unmatched", hang->count);
    } else {
        emit_open(e, "unmatched", true);
        for (size_t i = 0; i < hang->count; i++) emit_unmatched(e, hang, &hang->unmatched[i]);
        emit_close(e);
        emit_lines(e, "verdict", verdict);
        emit_lines(e, "not_known", unknown);
    }
    emit_end(e);
}

static bool has_unknown_ranks(const struct hang *hang)
{
    for (size_t i = 0; i < hang->count; i++)
        for (size_t k = 0; k < hang->unmatched[i].ranks; k++)
            if (is_unknown(&hang->unmatched[i].rank[k])) return true;
    return false;
}

void cmd_hang(struct session *session)
{
    struct hang hang;
    struct hang_lines verdict = {0}, unknown = {0};
    if (!session_ask(session, STYLE_TABLE)) return;
    hang_find(&hang, &session->chosen, session_summaries(session));
    hang_where_init(&hang);
    hang_verdict(&hang, &verdict);
    if (hang_unknowns(&hang, &unknown) || has_unknown_ranks(&hang)) session_spoil(session);
    if (hang.unlisted) {
        complain(NULL, "%zu groups list so many ranks that those without a trace were left out", hang.unlisted);
        session_spoil(session);
    }
    if (session->options.format == FORMAT_TEXT) {
        print_lines(&session->out, "", &verdict);
        print_lines(&session->out, "not known:", &unknown);
    }
    if (session->options.format == FORMAT_CSV) say_lines(&unknown);
    size_t left_out = emit_rows(&session->emit, &hang);
    emit_sums(&session->emit, &hang, left_out, &verdict, &unknown);
    session_end(session, true);
    hang_lines_free(&verdict);
    hang_lines_free(&unknown);
    hang_free(&hang);
}
