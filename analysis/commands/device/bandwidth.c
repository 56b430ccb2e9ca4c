/* bandwidth.c - reports how fast copies and sets are: one row per rank and kind. */
#include "ask/device/copy_bandwidth.h"

#include <math.h>

#include "ask/attribute.h"
#include "commands/session.h"

static void emit_values(struct emit *e, const struct copy_row *row)
{
    emit_count(e, "count", row->count);
    if (row->has_bytes) emit_bytes(e, "bytes", row->bytes);
    else emit_null(e, "bytes");
    emit_us(e, "total_us", row->time);
    emit_double(e, "mean_gbs", row->sized_time ? (double)row->bytes / (double)row->sized_time : NAN);
    emit_double(e, "max_gbs", row->has_max ? row->max : NAN);
}

static void add_copy_row(struct copy_row *sum, const struct copy_row *row)
{
    sum->count += row->count;
    sum->bytes += row->bytes;
    sum->has_bytes |= row->has_bytes;
    sum->time = add_ns(sum->time, row->time);
    sum->sized_time = add_ns(sum->sized_time, row->sized_time);
    if (row->has_max) sum->max = sum->has_max ? MAX(sum->max, row->max) : row->max;
    sum->has_max |= row->has_max;
}

struct needs bandwidth_needs(const struct options *options)
{
    return needs_union(work_needs(options), (struct needs){.copied = true});
}

void cmd_bandwidth(struct session *session)
{
    struct copy_rows rows;
    struct copy_row sum = {0};
    struct emit *e = &session->emit;
    uint64_t top = session->options.top;
    if (!session_ask(session, STYLE_TABLE)) return;
    bandwidth_of(&rows, &session->chosen, &session->model.names);
    for (size_t i = 0; i < rows.count; i++) {
        add_copy_row(&sum, &rows.row[i]);
        if (top && i >= top) continue;
        emit_row(e);
        emit_known(e, "rank", rows.row[i].rank);
        emit_text(e, "kind", model_name(&session->model, rows.row[i].kind));
        emit_hide(e, left_rows_rank(&rows.left, rows.row[i].rank));
        emit_values(e, &rows.row[i]);
        emit_row_end(e);
    }
    emit_totals(e);
    emit_hide(e, rows.left.any);
    emit_values(e, &sum);
    emit_end(e);
    if (!rows.copies && !is_filtered(&session->options))
        complain(NULL, "no copies or sets were recorded; `tfanalyze info` shows the recorded events");
    session_end(session, rows.copies || !is_filtered(&session->options));
    bandwidth_free(&rows);
}
