/* idle.c - reports why streams are idle: one row per rank, device and stream. */
#include <math.h>

#include "commands/device/answers.h"

static const char *const causes[NR_IDLE_CAUSES][2] = {[IDLE_HOST] = {"host_wait_us", "host_wait_pct"},
                                                      [IDLE_KERNEL] = {"kernel_wait_us", "kernel_wait_pct"},
                                                      [IDLE_OTHER] = {"other_us", "other_pct"}};

static void emit_times(struct session *session, const int64_t time[NR_IDLE_CAUSES], round_share *round)
{
    int64_t all = 0;
    for (int cause = 0; cause < NR_IDLE_CAUSES; cause++) all = add_ns(all, time[cause]);
    for (int cause = 0; cause < NR_IDLE_CAUSES; cause++) {
        double share = all ? (double)time[cause] / (double)all : NAN;
        emit_us(&session->emit, causes[cause][0], time[cause]);
        emit_pct(&session->emit, causes[cause][1], 100 * (round ? round(share) : share));
    }
}

static void emit_rows(struct session *session, const struct idle_rows *rows, round_share *round)
{
    struct emit *e = &session->emit;
    uint64_t top = session->options.top;
    int64_t sum[NR_IDLE_CAUSES] = {0};
    for (size_t i = 0; i < rows->count; i++) {
        const struct idle_row *row = &rows->row[i];
        for (int cause = 0; cause < NR_IDLE_CAUSES; cause++) sum[cause] = add_ns(sum[cause], row->time[cause]);
        if (top && i >= top) continue;
        emit_row(e);
        emit_known(e, "rank", row->rank);
        emit_known(e, "device", row->device);
        emit_known(e, "stream", row->stream);
        emit_hide(e, row->unknown);
        emit_count(e, "works", row->works);
        emit_times(session, row->time, round);
        emit_row_end(e);
    }
    emit_totals(e);
    emit_hide(e, rows->unknown);
    emit_count(e, "works", rows->works);
    emit_times(session, sum, round);
    emit_end(e);
}

void idle_answer(struct session *session, const struct idle_rows *rows, round_share *round)
{
    emit_rows(session, rows, round);
    if (!rows->works && !is_filtered(&session->options))
        complain(NULL, "no device work was recorded; `tfanalyze info` shows the recorded events");
    session_end(session, rows->count || !is_filtered(&session->options));
}

void cmd_idle(struct session *session)
{
    struct idle_rows rows;
    if (!session_ask(session, STYLE_TABLE)) return;
    idle_collect(&rows, session_summaries(session), session->chosen.processes);
    idle_answer(session, &rows, NULL);
    idle_free(&rows);
}
