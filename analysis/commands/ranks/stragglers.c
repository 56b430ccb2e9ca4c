/* stragglers.c - names the ranks that hold the others up, from collectives alone.
 *
 * One row for each rank that came last to collectives, by step and stage of its calls; the longest lateness first.
 * ask/comm/late_ranks.h defines lateness. The score is late_us as a share of the skew of all collectives of the step: 1 means
 * that nobody else was late, and ranks that take turns have small ones. The totals name the rank of the whole run.
 * Beside each row stand the clocks of the rank's devices in that step (ask/comm/health.h), if the traces have samples.
 * Text without any sample leaves these columns out.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/comm/late_ranks.h"
#include "ask/comm/comm_reduction.h"
#include "commands/ranks/comm.h"
#include "commands/ranks/stragglers_causes.h"
#include "write/values.h"

#define FIRST_OF_HEALTH ",samples"

static double mean(uint64_t sum, uint64_t count, double unit)
{
    return count ? (double)sum / (double)count / unit : NAN;
}

static void emit_health(struct emit *e, const struct health_sum *found)
{
    static const struct health_sum none;
    const struct health_sum *sum = found ? found : &none;
    emit_count(e, "samples", sum->samples);
    emit_double(e, "sm_clock_mhz", mean(sum->clock_sum, sum->clocks, 1));
    if (sum->clocks) emit_count(e, "sm_clock_min_mhz", sum->clock_least);
    else emit_null(e, "sm_clock_min_mhz");
    emit_double(e, "power_w", mean(sum->power_sum, sum->powers, 1e3));
    if (sum->temperatures) emit_int(e, "temperature_c", sum->temperature_most);
    else emit_null(e, "temperature_c");
    if (!sum->reasons_known) emit_null(e, "throttle");
    else if (!sum->reasons && e->format == FORMAT_TEXT) emit_text(e, "throttle", "none");
    else emit_reasons(e, "throttle", sum->reasons);
}

static void emit_late(struct emit *e, const struct names *names, const struct late *late, const struct healths *healths)
{
    emit_row(e);
    emit_known(e, "rank", late->rank);
    emit_known(e, "step", late->step);
    emit_stage(e, names_get(names, late->stage));
    emit_double(e, "score", late_score(late));
    emit_count(e, "collectives", late->collectives);
    emit_us(e, "late_us", late->time);
    if (healths) emit_health(e, health_find(healths, late->rank, late->step));
    emit_row_end(e);
}

static void emit_sums(struct emit *e, const struct comm *comm, const struct lates *lates, const struct causes *causes,
                      const struct places *places)
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
    emit_causes(e, causes, places);
    emit_end(e);
    if (e->format == FORMAT_TEXT) print_causes(e->out, causes, places);
}

/* Unites the sums of all chosen processes, which comm_match has left in their summaries. */
static struct healths all_healths(const struct session *session)
{
    struct healths all = {0};
    for (size_t i = 0; i < session->chosen.processes; i++) {
        const struct comm_taken *taken = session->summary[i];
        health_add(&all, &taken->healths);
    }
    health_join(&all);
    return all;
}

static void emit_rows(struct session *session, const struct comm *comm, const struct lates *lates,
                      const struct places *places)
{
    const struct options *options = &session->options;
    struct healths healths = all_healths(session);
    bool shown = healths.count || options->format != FORMAT_TEXT;
    const char *keys = session->emit.keys;
    char *without = mem_text(keys, (size_t)(strstr(keys, FIRST_OF_HEALTH) - keys));
    size_t rows = options->top ? MIN(options->top, lates->count) : lates->count;
    if (!shown) emit_keys(&session->emit, without);
    for (size_t i = 0; i < rows; i++)
        emit_late(&session->emit, comm->job.summary.names, &lates->late[i], shown ? &healths : NULL);
    const struct fleet fleet = {&session->chosen, session->summary, &comm->rows, places, comm->job.runs};
    struct causes causes;
    causes_find(&causes, &fleet);
    emit_sums(&session->emit, comm, lates, &causes, places);
    causes_free(&causes);
    free(without);
    health_free(&healths);
}

void cmd_stragglers(struct session *session)
{
    const struct options *options = &session->options;
    struct comm comm;
    struct lates lates;
    struct places places;
    if (!places_read(&places, options->topology)) {
        places_free(&places);
        session->status = STATUS_USAGE;
        return;
    }
    if (!session_ask(session, STYLE_TABLE)) {
        places_free(&places);
        return;
    }
    places_complete(&places, &session->chosen);
    comm_match(&comm, session, NULL);
    lates_make(&lates, &comm.rows, comm.job.summary.names);
    emit_rows(session, &comm, &lates, &places);
    comm_say(&comm);
    if (comm.rows.count && !lates.collectives)
        complain(NULL, "no all_reduce, all_gather, reduce_scatter, all_to_all or barrier is matched on two ranks, so "
                       "lateness is unknown");
    session_end(session, comm.rows.count || !is_filtered(options));
    lates_free(&lates);
    places_free(&places);
    comm_end(&comm);
}
