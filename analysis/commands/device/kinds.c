/* kinds.c - sums up device time by combination of simultaneous kinds of work (HTA, get_gpu_kernel_breakdown).
 *
 * Each moment of a rank counts for exactly one combination of kinds: those at work then. So the rows add up to the busy
 * time of all ranks, and `pct` is the share of that time. A combination that never occurs has no row.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/device/answers.h"

struct kind_row {
    char *kind;
    int64_t total;
};

/* Returns a name such as "COMPUTATION overlapping MEMORY". */
static char *combination(unsigned bits)
{
    struct text text = {0};
    for (unsigned i = 0; i < INTERVALS_SETS; i++)
        if (bits & KIND_BIT(i)) text_format(&text, "%s%s", text.length ? " overlapping " : "", work_kind_names[i]);
    return text.data;
}

static int largest_first(const void *a, const void *b)
{
    const struct kind_row *x = a, *y = b;
    return x->total != y->total ? (x->total > y->total ? -1 : 1) : strcmp(x->kind, y->kind);
}

static void emit_kinds(struct session *session, const struct timeline *timeline,
                       const int64_t total[INTERVALS_COMBINATIONS], round_share *round)
{
    struct emit *e = &session->emit;
    struct kind_row row[INTERVALS_COMBINATIONS];
    size_t rows = 0;
    int64_t all = 0;
    for (unsigned bits = 1; bits < INTERVALS_COMBINATIONS; bits++) {
        if (total[bits]) {
            row[rows++] = (struct kind_row){combination(bits), total[bits]};
            all += total[bits];
        }
    }
    qsort(row, rows, sizeof *row, largest_first);
    for (size_t i = 0; i < rows; i++) {
        if (session->options.top && i >= session->options.top) {
            free(row[i].kind);
            continue;
        }
        double share = 100.0 * (double)row[i].total / (double)all;
        emit_row(e);
        emit_text(e, "kind", row[i].kind);
        emit_hide(e, timeline->unknown);
        emit_us(e, "total_us", timeline_ns(timeline, row[i].total));
        emit_pct(e, "pct", round ? round(share) : share);
        emit_row_end(e);
        free(row[i].kind);
    }
    emit_totals(e);
    emit_hide(e, timeline->unknown);
    emit_us(e, "total_us", timeline_ns(timeline, all));
    emit_end(e);
}

void kinds_add(const struct timeline *timeline, int64_t total[INTERVALS_COMBINATIONS])
{
    for (size_t i = 0; i < timeline->count; i++) intervals_combine(timeline->rank[i].kind, INTERVALS_SETS, total);
}

void kinds_answer(struct session *session, const struct timeline *timeline, const int64_t total[INTERVALS_COMBINATIONS],
                  round_share *round)
{
    emit_kinds(session, timeline, total, round);
    if (!timeline->works && !is_filtered(&session->options))
        complain(NULL, "no device work was recorded; `tfanalyze info` shows the recorded events");
    session_end(session, timeline->works || !is_filtered(&session->options));
}

void cmd_kinds(struct session *session)
{
    int64_t total[INTERVALS_COMBINATIONS] = {0};
    struct timeline timeline;
    if (!session_ask(session, STYLE_TABLE)) return;
    timeline_collect(&timeline, &session->chosen, session_summaries(session));
    kinds_add(&timeline, total);
    kinds_answer(session, &timeline, total, NULL);
    timeline_free(&timeline);
}
