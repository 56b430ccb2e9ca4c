/* cmd_timeline.c - computing, communicating, copying or idle: one row a rank.
 *
 * Names and definitions are TraceLens's (gpu_event_analyser.py): total is last end - first start of the device's work,
 * busy the union of all of it, exposed communication is what no computation hides, exposed copies what neither does.
 * --rules hta answers in HTA's own words instead (hta.h).
 */
#include <math.h>
#include <stdio.h>

#include "choice.h"
#include "hta.h"
#include "timeline.h"

struct shares {
    int64_t total, busy, kind[NR_WORK_KINDS], exposed_communication, exposed_memory;
};

static struct shares shares_of(const struct rank_time *rank)
{
    const struct intervals *kind = rank->kind;
    struct intervals hidden = intervals_union(&kind[WORK_COMPUTATION], &kind[WORK_COMMUNICATION]);
    struct shares s = {.total = rank->total};
    for (int i = 0; i < NR_WORK_KINDS; i++) {
        s.kind[i] = intervals_total(&kind[i]);
    }
    s.exposed_communication =
        s.kind[WORK_COMMUNICATION] - intervals_overlap(&kind[WORK_COMMUNICATION], &kind[WORK_COMPUTATION]);
    s.exposed_memory = s.kind[WORK_MEMORY] - intervals_overlap(&kind[WORK_MEMORY], &hidden);
    s.busy = intervals_total(&hidden) + s.exposed_memory;
    intervals_free(&hidden);
    return s;
}

static void emit_share(struct emit *e, const struct timeline *timeline, const struct rank_time *rank, const char *name,
                       int64_t time)
{
    char us[64], pct[64];
    int64_t total = rank->total;
    snprintf(us, sizeof us, "%s_us", name);
    snprintf(pct, sizeof pct, "%s_pct", name);
    if (!rank->works) {
        emit_null(e, us);
        emit_null(e, pct);
        return;
    }
    emit_us(e, us, timeline_ns(timeline, time));
    emit_pct(e, pct, total ? 100.0 * (double)time / (double)total : NAN);
}

static void emit_rank(struct emit *e, const struct timeline *timeline, const struct rank_time *rank)
{
    struct shares s = shares_of(rank);
    emit_row(e);
    emit_known(e, "rank", rank->rank);
    if (rank->works) {
        emit_us(e, "total_us", timeline_ns(timeline, s.total));
    } else {
        emit_null(e, "total_us");
    }
    emit_share(e, timeline, rank, "busy", s.busy);
    emit_share(e, timeline, rank, "idle", s.total - s.busy);
    emit_share(e, timeline, rank, "computation", s.kind[WORK_COMPUTATION]);
    emit_share(e, timeline, rank, "communication", s.kind[WORK_COMMUNICATION]);
    emit_share(e, timeline, rank, "memcpy", s.kind[WORK_MEMORY]);
    emit_share(e, timeline, rank, "exposed_communication", s.exposed_communication);
    emit_share(e, timeline, rank, "exposed_memcpy", s.exposed_memory);
    emit_row_end(e);
}

void cmd_timeline(struct session *session)
{
    if (session->options.rules == RULES_HTA) {
        hta_timeline(session);
    } else {
        timeline_answer(session, emit_rank);
    }
}
