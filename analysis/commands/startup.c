/* startup.c - reports how a process started: its interpreter, imports, loading of models, compilation, slow first calls.
 *
 * One row a piece: those that lie in no other come first, then those inside; of each the ones with the most time first.
 * Pieces lie in each other: own_us is a piece's time without those inside it, so that the imports' own times add up. The shares are of the rank's span, which begins with the start here.
 */
#include "ask/stages/start_times.h"

#include <math.h>
#include <stdlib.h>

#include "commands/session.h"

struct line {
    const struct process *process;
    const char *what;
    uint32_t name, id, reason;
    int64_t start, time, own; /* own -1: unknown */
    uint32_t depth;
};

struct lines {
    struct line *line;
    size_t count, capacity;
};

static const char *const kinds[] = {[TFI_STARTUP_INTERPRETER] = "interpreter",
                                    [TFI_STARTUP_IMPORT] = "import",
                                    [TFI_STARTUP_LOADING] = "loading",
                                    [TFI_STARTUP_DEVICE] = "device"};

static void add_line(struct lines *lines, struct line line)
{
    lines->line = mem_grow(lines->line, &lines->capacity, lines->count + 1, sizeof *lines->line);
    lines->line[lines->count++] = line;
}

static void add_process(struct lines *lines, const struct process *p)
{
    const struct startup *s = &p->startup;
    for (size_t i = 0; i < s->pieces; i++) {
        const struct startup_piece *piece = &s->piece[i];
        const char *what = piece->what < ARRAY_SIZE(kinds) ? kinds[piece->what] : NULL;
        add_line(lines, (struct line){p, what, piece->name, NAME_NONE, NAME_NONE, piece->start,
                                      piece->end - piece->start, piece->own, piece->depth});
    }
    for (size_t i = 0; i < s->phases; i++) {
        const struct compile_phase *phase = &s->phase[i];
        bool is_frame = phase->frame != NAME_NONE;
        add_line(lines, (struct line){p, "compile", is_frame ? phase->frame : phase->name, phase->id, phase->reason,
                                      phase->start, phase->end - phase->start, -1, !is_frame});
    }
    struct first_calls first = first_calls_find(p);
    for (size_t i = 0; i < first.count && has_startup(p); i++) {
        const struct first_call *call = &first.call[i];
        add_line(lines, (struct line){p, "first call", call->name, NAME_NONE, NAME_NONE, call->start, call->time,
                                      call->time - call->median, 0});
    }
    free(first.call);
}

/* Pieces that the script itself began come first, then those inside. */
static int line_by_time(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    if (!x->depth != !y->depth) return x->depth ? 1 : -1;
    if (x->time != y->time) return by_number(y->time, x->time);
    return x->start != y->start ? by_number(x->start, y->start) : by_number(x->depth, y->depth);
}

static void emit_line(struct session *session, const struct line *line)
{
    struct emit *e = &session->emit;
    const struct process *p = line->process;
    int64_t begin = startup_begin(p), span = p->last - begin;
    emit_row(e);
    emit_known(e, "rank", p->rank);
    emit_known(e, "pid", p->pid);
    emit_text(e, "what", line->what);
    emit_name(e, &session->model.names, "name", line->name);
    emit_name(e, &session->model.names, "id", line->id);
    emit_us(e, "start_us", line->start - begin);
    emit_us(e, "total_us", line->time);
    if (line->own < 0) emit_null(e, "own_us");
    else emit_us(e, "own_us", line->own);
    emit_count(e, "depth", line->depth);
    emit_pct(e, "pct", span > 0 ? 100.0 * (double)line->time / (double)span : NAN);
    emit_name(e, &session->model.names, "reason", line->reason);
    emit_row_end(e);
}

struct needs startup_needs(const struct options *options)
{
    (void)options;
    return (struct needs){.ranges = true, .startup = true};
}

void cmd_startup(struct session *session)
{
    struct emit *e = &session->emit;
    struct lines lines = {0};
    int64_t time = 0;
    if (!session_ask(session, STYLE_TABLE)) return;
    for (size_t i = 0; i < session->chosen.processes; i++) {
        struct intervals set = {0};
        add_process(&lines, session->chosen.process[i]);
        startup_times(session->chosen.process[i], &set);
        time = add_ns(time, intervals_total(&set));
        intervals_free(&set);
    }
    if (lines.count) qsort(lines.line, lines.count, sizeof *lines.line, line_by_time);
    for (size_t i = 0; i < lines.count && (!session->options.top || i < session->options.top); i++)
        emit_line(session, &lines.line[i]);
    emit_totals(e);
    emit_count(e, "rows", lines.count);
    emit_us(e, "start_up_us", time);
    emit_end(e);
    if (!lines.count)
        complain(NULL, "these traces do not say how their processes started: only those of Python programs do");
    session_end(session, lines.count || !is_filtered(&session->options));
    free(lines.line);
}
