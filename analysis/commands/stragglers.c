/* stragglers.c - names the ranks that hold the others up, from collectives alone.
 *
 * One row for each rank that came last to collectives, by step and stage of its calls; the longest lateness first.
 * ask/comm/late.h defines lateness. The score is late_us as a share of the skew of all collectives of the step: 1 means
 * that nobody else was late, and ranks that take turns have small ones. The totals name the rank of the whole run.
 */
#include <math.h>

#include "ask/comm/late.h"
#include "commands/comm.h"

static void emit_late(struct emit *e, const struct names *names, const struct late *late)
{
    emit_row(e);
    emit_known(e, "rank", late->rank);
    emit_known(e, "step", late->step);
    emit_stage(e, names_get(names, late->stage));
    emit_double(e, "score", late_score(late));
    emit_count(e, "collectives", late->collectives);
    emit_us(e, "late_us", late->time);
    emit_row_end(e);
}

static void emit_sums(struct emit *e, const struct comm *comm, const struct lates *lates)
{
    const struct late *most = &lates->most;
    bool known = most->rank != UNKNOWN_NUMBER;
    emit_totals(e);
    emit_known(e, "rank", most->rank);
    emit_double(e, "score", known ? late_score(most) : NAN);
    emit_time(e, "late_us", known ? most->time : UNKNOWN_TIME);
    emit_count(e, "collectives", lates->collectives);
    emit_count(e, "ranks", comm->job.ranks);
    emit_clocks(e, comm);
    emit_end(e);
}

void cmd_stragglers(struct session *session)
{
    const struct options *options = &session->options;
    struct comm comm;
    struct lates lates;
    if (!session_summarise(session) || !session_begin(session, STYLE_TABLE)) return;
    comm_match(&comm, session);
    lates_make(&lates, &comm.rows, comm.job.summary.names);
    size_t shown = options->top ? MIN(options->top, lates.count) : lates.count;
    for (size_t i = 0; i < shown; i++) emit_late(&session->emit, comm.job.summary.names, &lates.late[i]);
    emit_sums(&session->emit, &comm, &lates);
    comm_say(&comm);
    if (comm.rows.count && !lates.collectives)
        complain(NULL, "no all_reduce, all_gather, reduce_scatter, all_to_all or barrier is matched on two ranks, so "
                       "lateness is unknown");
    session_end(session, comm.rows.count || !is_filtered(options));
    lates_free(&lates);
    comm_end(&comm);
}
