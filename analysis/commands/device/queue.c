/* queue.c - reports the depth of launch queues: one row per rank, device and stream. */
#include "commands/device/answers.h"

static void emit_depths(struct emit *e, const struct queue_row *row)
{
    static const char *const unknown[] = {"count", "mean", "std", "min", "q1", "median", "q3", "max", "blocked_us"};
    if (!row->known) {
        for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) emit_null(e, unknown[i]);
        return;
    }
    emit_count(e, "count", row->count);
    emit_double(e, "mean", row->mean);
    emit_double(e, "std", row->std);
    emit_int(e, "min", row->min);
    emit_double(e, "q1", row->q1);
    emit_double(e, "median", row->median);
    emit_double(e, "q3", row->q3);
    emit_int(e, "max", row->max);
    emit_us(e, "blocked_us", row->blocked);
}

static void emit_rows(struct session *session, const struct queue_rows *rows)
{
    struct emit *e = &session->emit;
    uint64_t top = session->options.top;
    int64_t blocked = 0;
    bool known = !rows->unknown;
    for (size_t i = 0; i < rows->count; i++) {
        known &= rows->row[i].known;
        blocked = add_ns(blocked, rows->row[i].blocked);
        if (top && i >= top) continue;
        emit_row(e);
        emit_known(e, "rank", rows->row[i].rank);
        emit_known(e, "device", rows->row[i].device);
        emit_known(e, "stream", rows->row[i].stream);
        emit_depths(e, &rows->row[i]);
        emit_row_end(e);
    }
    emit_totals(e);
    if (known) {
        emit_count(e, "works", rows->works);
        emit_us(e, "blocked_us", blocked);
    } else {
        emit_null(e, "works");
        emit_null(e, "blocked_us");
    }
    emit_end(e);
}

void queue_answer(struct session *session, const struct queue_rows *rows)
{
    emit_rows(session, rows);
    if (!rows->count && !is_filtered(&session->options))
        complain(NULL, "no device work with a launch was recorded; `tfanalyze info` shows the recorded events");
    session_end(session, rows->count || !is_filtered(&session->options));
}

void cmd_queue(struct session *session)
{
    struct queue_rows rows;
    if (!session_ask(session, STYLE_TABLE)) return;
    queue_collect(&rows, session_summaries(session), session->chosen.processes);
    queue_answer(session, &rows);
    queue_free(&rows);
}
