/* overlap.c - reports how much communication is hidden behind computation: one row per rank.
 *
 * overlap_us is the time in which both run, and overlap_pct its share of the communication time (HTA,
 * get_comm_comp_overlap).
 */
#include <math.h>

#include "commands/device/answers.h"

void emit_overlap(struct emit *e, const struct timeline *timeline, const struct rank_time *rank)
{
    const struct intervals *communication = &rank->kind[WORK_COMMUNICATION];
    int64_t total = intervals_total(communication);
    int64_t overlap = intervals_overlap(communication, &rank->kind[WORK_COMPUTATION]);
    emit_row(e);
    emit_known(e, "rank", rank->rank);
    emit_hide(e, rank->unknown);
    if (rank->works) {
        emit_us(e, "overlap_us", timeline_ns(timeline, overlap));
        emit_us(e, "communication_us", timeline_ns(timeline, total));
    } else {
        emit_null(e, "overlap_us");
        emit_null(e, "communication_us");
    }
    emit_pct(e, "overlap_pct", total ? 100.0 * (double)overlap / (double)total : NAN);
    emit_row_end(e);
}

void cmd_overlap(struct session *session)
{
    struct timeline timeline;
    if (!session_ask(session, STYLE_TABLE)) return;
    timeline_collect(&timeline, &session->chosen, session_summaries(session));
    timeline_answer(session, &timeline, emit_overlap);
    timeline_free(&timeline);
}
