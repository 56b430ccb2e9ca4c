/* comm.c - matches collectives over ranks: bytes, who came when, who waited how long, and bandwidth.
 *
 * One row per collective, by its first start. ask/comm/comm_rows.h defines the values, ask/comm/parts.h the matching. A
 * filter chooses a collective if it chooses it on one rank. Ranks of a communicator that are not among the inputs leave
 * the skew of their collectives too small and the transfer time too long; a message says so.
 */
#include "commands/ranks/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_WAITS = 8 };

/* ---- printing ---- */

void emit_time(struct emit *e, const char *key, int64_t ns)
{
    if (ns == UNKNOWN_TIME) emit_null(e, key);
    else emit_us(e, key, ns);
}

static void emit_operation(const struct comm *comm, const struct comm_part *part)
{
    bool by_name = comm->words || part->op == COLLECTIVE_OTHER;
    if (comm->words && part->name == NAME_NONE) emit_text(&comm->session->emit, "name", comm->words->unnamed(part));
    else if (by_name) emit_name(&comm->session->emit, comm->job.summary.names, "name", part->name);
    else emit_text(&comm->session->emit, "name", collective_kinds[part->op].name);
}

/* A rank as the key of a value. */
struct rank_key {
    char text[32];
};

/* In text the value follows: "rank 3: 1.5 ms". */
static const char *rank_key(const struct emit *e, struct rank_key *key, int64_t rank)
{
    bool in_text = e->format == FORMAT_TEXT;
    if (rank < 0) strcpy(key->text, "unknown");
    else snprintf(key->text, sizeof key->text, in_text ? "rank %lld:" : "%lld", (long long)rank);
    return key->text;
}

struct rank_wait {
    int64_t rank, wait; /* UNKNOWN_TIME: unknown */
};

static int by_wait(const void *a, const void *b)
{
    const struct rank_wait *x = a, *y = b;
    int order = by_number(y->wait, x->wait);
    return order ? order : by_number(x->rank, y->rank);
}

/* Text has the longest waits of a collective of many ranks. */
static void emit_waits(const struct comm *comm, const struct comm_row *row)
{
    struct emit *e = &comm->session->emit;
    struct rank_key key;
    struct rank_wait *wait = mem_zero(row->parts, sizeof *wait);
    size_t shown = e->format == FORMAT_TEXT ? MIN(row->parts, (size_t)SHOWN_WAITS) : row->parts;
    bool known = false;
    for (size_t i = 0; i < row->parts; i++) {
        const struct comm_part *part = &row->part[i];
        wait[i].rank = part->rank;
        wait[i].wait = comm->words ? comm->words->rules->wait(row, part) : comm_wait(row, part);
        known |= wait[i].wait != UNKNOWN_TIME;
    }
    if (shown < row->parts) qsort(wait, row->parts, sizeof *wait, by_wait);
    if (known) {
        emit_open(e, "wait_us", false);
        for (size_t i = 0; i < shown; i++) emit_time(e, rank_key(e, &key, wait[i].rank), wait[i].wait);
        if (shown < row->parts) emit_count(e, "others:", row->parts - shown);
        emit_close(e);
    } else {
        emit_null(e, "wait_us");
    }
    free(wait);
}

static void emit_one(const struct comm *comm, const struct comm_row *row)
{
    struct emit *e = &comm->session->emit;
    const struct comm_part *part = row->part;
    emit_row(e);
    emit_operation(comm, part);
    if (part->group == NAME_NONE && comm->words) emit_text(e, "group", comm->words->ungrouped(comm));
    else emit_name(e, comm->job.summary.names, "group", part->group);
    emit_int(e, "seq", part->sequence);
    emit_known(e, "replay", part->replay ? part->replay : UNKNOWN_NUMBER);
    emit_count(e, "ranks", row->ranks);
    emit_known(e, "size", row->size);
    if (row->bytes == UNKNOWN_COUNT) emit_null(e, "bytes");
    else emit_bytes(e, "bytes", row->bytes);
    emit_time(e, "start_skew_us", row->skew);
    emit_waits(comm, row);
    emit_time(e, "transfer_us", row->transfer);
    emit_time(e, "duration_us", row->duration);
    emit_time(e, "end_skew_us", row->end_skew);
    emit_double(e, "algbw_gbs", row->algorithm_gb);
    emit_double(e, "busbw_gbs", row->bus_gb);
    emit_known(e, "slowest_rank", row->slowest);
    emit_known(e, "last_rank", row->last);
    emit_time(e, "clock_residual_us", row->parts > 1 && row->skew != UNKNOWN_TIME ? comm->rows.residual : UNKNOWN_TIME);
    emit_name(e, comm->job.summary.names, "algorithm", row->algorithm);
    emit_name(e, comm->job.summary.names, "protocol", row->protocol);
    emit_known(e, "channels", row->channels);
    emit_row_end(e);
}

/* ---- messages ---- */

/* Names the first incomplete collective and its communicator. */
static void say_missing(const struct comm *comm)
{
    const struct comm_row *row = comm->rows.row;
    while (!(row->size > 0 && row->ranks < (size_t)row->size)) row++;
    const struct comm_part *part = row->part;
    const char *group = names_get(comm->job.summary.names, part->group)->text;
    const char *members = names_get(comm->job.summary.names, part->members)->text;
    complain(
        NULL,
        "%llu of %zu collectives lack ranks, such as number %lld of group %s%s%s with %zu of %lld ranks: their skew "
        "may be larger and their transfer shorter than shown; give the traces of all ranks",
        (unsigned long long)comm->rows.incomplete, comm->rows.count, (long long)part->sequence, group,
        *members ? " of ranks " : "", members, row->ranks, (long long)row->size);
}

static void say_faults(const struct comm *comm)
{
    const struct comm_rows *rows = &comm->rows;
    bool chosen = comm->session->options.rank.count || comm->session->options.pid.count;
    if (rows->incomplete && !chosen) {
        say_missing(comm);
        session_spoil(comm->session);
    }
    if (rows->mismatched) {
        complain(
            NULL,
            "%llu of %zu collectives differ on their ranks in operation%s: the traces are of several jobs, or begin "
            "in different places",
            (unsigned long long)rows->mismatched, rows->count, comm->words ? comm->words->mismatch : "");
        session_spoil(comm->session);
    }
    if (comm->job.restarts) {
        complain(
            NULL,
            "sequence numbers restart %llu times, as after an abort: collectives are matched by restart and number",
            (unsigned long long)comm->job.restarts);
    }
    if (rows->untold) complain(NULL, "%llu collectives are in no table of TraceLens", (unsigned long long)rows->untold);
}

/* Reports what is unknown of collectives in CUDA graphs. */
static void say_replays(const struct comm *comm)
{
    const struct comm_replays *r = &comm->job.replays;
    if (r->sum.untimed) {
        complain(NULL,
                 "%llu runs of captured collectives have no times and no rows: their graphs were recorded as a whole; "
                 "TFI_GRAPHS=node records their kernels",
                 (unsigned long long)r->sum.untimed);
    }
    if (r->unknown) {
        complain(NULL,
                 "%llu kernels of communication ran in CUDA graphs whose captured calls are not in the trace: they are "
                 "in no row",
                 (unsigned long long)r->unknown);
    }
    if (r->sum.left_out) {
        complain(NULL, "%llu runs of captured collectives are left out: the trace has too many for its size",
                 (unsigned long long)r->sum.left_out);
        session_spoil(comm->session);
    }
    if (comm->rows.apart) {
        complain(NULL,
                 "%llu replays do not overlap on their ranks: some rank's trace lacks earlier replays, and the numbers "
                 "match the wrong ones",
                 (unsigned long long)comm->rows.apart);
    }
}

static void say_limits(const struct comm *comm)
{
    const struct comm_job *job = &comm->job;
    size_t alone = comm->fits.count ? comm->fits.count - comm->fits.aligned - 1 : 0; /* without the reference */
    if (comm->fits.aligned) {
        struct text residual = {0};
        human_time(&residual, MAX(comm->rows.residual, 0));
        complain(NULL,
                 "%zu clocks are aligned to that of another rank by the ends of collectives, which lie %s apart in the "
                 "median",
                 comm->fits.aligned, residual.data);
        text_free(&residual);
    }
    if (job->without_axis && alone) {
        complain(NULL,
                 "%zu of %zu clocks cannot be compared: traces have no time of day (baseTimeNanoseconds) and too few "
                 "collectives; their start skew is unknown, and waiting follows from durations",
                 alone, comm->fits.count);
    }
    if (job->runs > 1)
        complain(NULL, "the traces are of %zu separate times or worlds: each is matched by itself", job->runs);
    if (comm->rows.ungrouped && !comm->words) {
        complain(
            NULL,
            "%llu of %zu collectives have no communicator in the trace: they are matched by operation and order of "
            "time",
            (unsigned long long)comm->rows.ungrouped, comm->rows.count);
    }
}

void comm_say(const struct comm *comm)
{
    bool filtered = is_filtered(&comm->session->options);
    if (!comm->rows.count && filtered) return; /* session_end reports the filters */
    if (!comm->rows.count) complain(NULL, "no collectives; `tfanalyze info` shows the contents of the inputs");
    say_faults(comm);
    say_replays(comm);
    say_limits(comm);
}

/* ---- the answer ---- */

void comm_match(struct comm *comm, struct session *session, const struct comm_words *words)
{
    *comm = (struct comm){.session = session, .words = words};
    comm_collect(&comm->job, &session->chosen, session_summaries(session));
    if (!words) comm_align(&comm->fits, &comm->job.summary, comm->job.clocks);
    comm_rows_make(&comm->rows, &comm->job.summary, words ? words->rules : NULL);
}

void comm_end(struct comm *comm)
{
    comm_rows_free(&comm->rows);
    clock_fits_free(&comm->fits);
    comm_job_free(&comm->job);
}

void emit_clocks(struct emit *e, const struct comm *comm)
{
    struct rank_key key;
    emit_time(e, "clock_residual_us", comm->rows.residual);
    if (!comm->fits.aligned) return;
    emit_open(e, "clock_offset_us", false);
    for (size_t i = 0; i < comm->fits.count; i++) {
        const struct clock_fit *fit = &comm->fits.clock[i];
        if (fit->collectives) emit_us(e, rank_key(e, &key, fit->rank), fit->shift.offset);
    }
    emit_close(e);
    emit_open(e, "clock_drift_ppm", false);
    for (size_t i = 0; i < comm->fits.count; i++) {
        const struct clock_fit *fit = &comm->fits.clock[i];
        if (fit->collectives) emit_double(e, rank_key(e, &key, fit->rank), 1e6 * fit->shift.drift);
    }
    emit_close(e);
}

static void emit_sums(const struct comm *comm)
{
    struct emit *e = &comm->session->emit;
    emit_totals(e);
    emit_count(e, "collectives", comm->rows.count);
    emit_count(e, "ranks", comm->job.ranks);
    emit_count(e, "incomplete", comm->rows.incomplete);
    emit_count(e, "mismatched", comm->rows.mismatched);
    emit_count(e, "captured", comm->job.replays.sum.captured);
    emit_count(e, "never_replayed", comm->job.replays.sum.idle);
    emit_count(e, "untimed_replays", comm->job.replays.sum.untimed);
    emit_clocks(e, comm);
    emit_end(e);
}

void comm_answer(struct session *session, const struct comm_words *words)
{
    const struct options *options = &session->options;
    struct comm comm;
    if (!session_ask(session, STYLE_TABLE)) return;
    comm_match(&comm, session, words);
    size_t shown = options->top ? MIN(options->top, comm.rows.count) : comm.rows.count;
    for (size_t i = 0; i < shown; i++) emit_one(&comm, &comm.rows.row[i]);
    emit_sums(&comm);
    comm_say(&comm);
    session_end(session, comm.rows.count || !is_filtered(options));
    comm_end(&comm);
}

void cmd_comm(struct session *session)
{
    comm_answer(session, NULL);
}
