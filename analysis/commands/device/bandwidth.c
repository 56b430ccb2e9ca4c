/* bandwidth.c - reports how fast copies and sets are: one row per rank and kind. */
#include "ask/device/bandwidth.h"

#include <math.h>

#include "commands/device/hta.h"

/* ---- --rules hta ---- */

static void emit_speed(struct session *session, int64_t rank, const struct hta_speed *s)
{
    struct emit *e = &session->emit;
    emit_row(e);
    emit_known(e, "rank", rank);
    emit_text(e, "kind", model_name(&session->model, s->kind));
    emit_count(e, "count", s->count);
    emit_double(e, "mean_gbs", s->mean);
    emit_double(e, "std_gbs", s->std);
    emit_double(e, "min_gbs", s->min);
    emit_double(e, "q1_gbs", s->q1);
    emit_double(e, "median_gbs", s->median);
    emit_double(e, "q3_gbs", s->q3);
    emit_double(e, "max_gbs", s->max);
    emit_row_end(e);
}

static void answer_hta(struct session *session)
{
    uint64_t points = 0, top = session->options.top, shown = 0;
    if (!hta_load(session) || !session_begin(session, STYLE_TABLE)) return;
    emit_keys(&session->emit, "rank,kind,count,mean_gbs,std_gbs,min_gbs,q1_gbs,median_gbs,q3_gbs,max_gbs");
    const struct hta_frames *frames = hta_frames(&session->chosen);
    for (size_t i = 0; i < frames->count; i++) {
        struct hta_speeds speeds;
        hta_speeds(&speeds, &frames->frame[i], &session->model.names);
        for (size_t k = 0; k < speeds.count; k++) {
            points += speeds.speed[k].count;
            if (!top || shown++ < top) emit_speed(session, frames->frame[i].rank, &speeds.speed[k]);
        }
        hta_speeds_free(&speeds);
    }
    emit_totals(&session->emit);
    emit_count(&session->emit, "count", points);
    emit_end(&session->emit);
    if (!points && !is_filtered(&session->options))
        complain(NULL, "HTA's rules need copies with the argument `memory bandwidth (GB/s)`, and the trace has none; "
                       "--rules exact goes by bytes and times");
    session_end(session, points || !is_filtered(&session->options));
}

/* ---- our own rules ---- */

static void emit_values(struct emit *e, const struct copy_row *row)
{
    emit_count(e, "count", row->count);
    if (row->has_bytes) emit_bytes(e, "bytes", row->bytes);
    else emit_null(e, "bytes");
    emit_us(e, "total_us", row->time);
    emit_double(e, "mean_gbs", row->sized_time ? (double)row->bytes / (double)row->sized_time : NAN);
    emit_double(e, "max_gbs", row->has_max ? row->max : NAN);
}

static void add(struct copy_row *sum, const struct copy_row *row)
{
    sum->count += row->count;
    sum->bytes += row->bytes;
    sum->has_bytes |= row->has_bytes;
    sum->time = add_ns(sum->time, row->time);
    sum->sized_time = add_ns(sum->sized_time, row->sized_time);
    if (row->has_max) sum->max = sum->has_max ? MAX(sum->max, row->max) : row->max;
    sum->has_max |= row->has_max;
}

void cmd_bandwidth(struct session *session)
{
    struct copy_rows rows;
    struct copy_row sum = {0};
    struct emit *e = &session->emit;
    uint64_t top = session->options.top;
    if (session->options.rules == RULES_HTA) {
        answer_hta(session);
        return;
    }
    if (!session_load(session, BANDWIDTH_WANT, false) || !session_begin(session, STYLE_TABLE)) return;
    bandwidth_of(&rows, &session->chosen, &session->model.names);
    for (size_t i = 0; i < rows.count; i++) {
        add(&sum, &rows.row[i]);
        if (top && i >= top) continue;
        emit_row(e);
        emit_known(e, "rank", rows.row[i].rank);
        emit_text(e, "kind", model_name(&session->model, rows.row[i].kind));
        emit_values(e, &rows.row[i]);
        emit_row_end(e);
    }
    emit_totals(e);
    emit_values(e, &sum);
    emit_end(e);
    if (!rows.copies && !is_filtered(&session->options))
        complain(NULL, "no copies or sets were recorded; `tfanalyze info` shows the recorded events");
    session_end(session, rows.copies || !is_filtered(&session->options));
    bandwidth_free(&rows);
}
