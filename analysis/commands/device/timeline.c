/* timeline.c - divides the time of devices into computing, communicating, copying and idle: one row per rank.
 *
 * Names and definitions are TraceLens's (gpu_event_analyser.py). total is the last end less the first start of the
 * device work, busy the union of all device work. Exposed communication is communication that no computation
 * overlaps; exposed copies are copies that neither overlaps.
 */
#include <math.h>
#include <stdio.h>

#include "commands/device/answers.h"

struct shares {
    int64_t total, busy, kind[NR_WORK_KINDS], exposed_communication, exposed_memory;
};

static struct shares shares_of(const struct rank_time *rank)
{
    const struct intervals *kind = rank->kind;
    struct intervals hidden = intervals_union(&kind[WORK_COMPUTATION], &kind[WORK_COMMUNICATION]);
    struct shares s = {.total = rank->total};
    for (int i = 0; i < NR_WORK_KINDS; i++) s.kind[i] = intervals_total(&kind[i]);
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

void emit_timeline(struct emit *e, const struct timeline *timeline, const struct rank_time *rank)
{
    struct shares s = shares_of(rank);
    emit_row(e);
    emit_known(e, "rank", rank->rank);
    emit_hide(e, rank->unknown);
    if (rank->works) emit_us(e, "total_us", timeline_ns(timeline, s.total));
    else emit_null(e, "total_us");
    emit_share(e, timeline, rank, "busy", s.busy);
    emit_share(e, timeline, rank, "idle", s.total - s.busy);
    emit_share(e, timeline, rank, "computation", s.kind[WORK_COMPUTATION]);
    emit_share(e, timeline, rank, "communication", s.kind[WORK_COMMUNICATION]);
    emit_share(e, timeline, rank, "memcpy", s.kind[WORK_MEMORY]);
    emit_share(e, timeline, rank, "exposed_communication", s.exposed_communication);
    emit_share(e, timeline, rank, "exposed_memcpy", s.exposed_memory);
    emit_row_end(e);
}

/* Reports why some values are unknown. */
static void say_unknown(const struct timeline *timeline, const struct options *options)
{
    size_t without = 0;
    for (size_t i = 0; i < timeline->count; i++) without += timeline->rank[i].works == 0;
    if (without && (timeline->works || !is_filtered(options))) {
        complain(NULL, "no device work%s in %zu of %zu ranks; `tfanalyze info` shows the recorded events",
                 is_filtered(options) ? " that matches" : "", without, timeline->count);
    }
}

void timeline_answer(struct session *session, const struct timeline *timeline, emit_rank_time *emit_one)
{
    for (size_t i = 0; i < timeline->count; i++) emit_one(&session->emit, timeline, &timeline->rank[i]);
    emit_totals(&session->emit);
    emit_count(&session->emit, "ranks", timeline->count);
    emit_hide(&session->emit, timeline->unknown);
    emit_count(&session->emit, "works", timeline->works);
    emit_end(&session->emit);
    say_unknown(timeline, &session->options);
    session_end(session, timeline->works || !is_filtered(&session->options));
}

void cmd_timeline(struct session *session)
{
    struct timeline timeline;
    if (!session_ask(session, STYLE_TABLE)) return;
    timeline_collect(&timeline, &session->chosen, session_summaries(session));
    timeline_answer(session, &timeline, emit_timeline);
    timeline_free(&timeline);
}
