/* annotations.c - reports the kernels under each user annotation: one row per rank and stack of annotations. */
#include "ask/device/annotation_rows.h"

#include <math.h>

#include "commands/session.h"

enum { MOST_SHOWN = 64 }; /* annotations of a stack: some programs nest theirs thousands deep */

static void emit_stack(struct session *session, const struct annotation_paths *paths, uint32_t at)
{
    const char *stack[MOST_SHOWN];
    size_t count = 0;
    emit_open(&session->emit, "stack", true);
    for (; at != NO_PLACE && !paths->row[at].is_outside && count < MOST_SHOWN; at = paths->row[at].parent)
        stack[count++] = model_name(&session->model, paths->row[at].name);
    if (at != NO_PLACE && count) emit_text(&session->emit, NULL, "...");
    while (count) emit_text(&session->emit, NULL, stack[--count]);
    emit_close(&session->emit);
}

static void emit_values(struct emit *e, const struct annotation_row *row)
{
    emit_count(e, "kernels", row->kernels);
    emit_us(e, "total_us", row->kernel_time);
    emit_count(e, "copies", row->copies);
    emit_us(e, "copies_us", row->copy_time);
}

static void add_annotation_row(struct annotation_row *sum, const struct annotation_row *row)
{
    sum->kernels += row->kernels;
    sum->copies += row->copies;
    sum->kernel_time = add_ns(sum->kernel_time, row->kernel_time);
    sum->copy_time = add_ns(sum->copy_time, row->copy_time);
}

static void emit_annotation(struct session *session, const struct annotation_rows *rows,
                            const struct annotation_row *row)
{
    struct emit *e = &session->emit;
    emit_row(e);
    emit_known(e, "rank", row->rank);
    emit_text(e, "annotation", model_name(&session->model, rows->paths.row[row->path].name));
    emit_hide(e, left_rows_stage(&rows->left, row->rank, rows->paths.row[row->path].name));
    emit_values(e, row);
    emit_stack(session, &rows->paths, row->path);
    emit_row_end(e);
}

void cmd_annotations(struct session *session)
{
    struct annotation_rows rows;
    struct annotation_row sum = {0};
    uint64_t top = session->options.top;
    if (!session_ask(session, STYLE_TABLE)) return;
    annotations_of(&rows, &session->chosen);
    for (size_t i = 0; i < rows.count; i++) {
        add_annotation_row(&sum, &rows.row[i]);
        if (!top || i < top) emit_annotation(session, &rows, &rows.row[i]);
    }
    emit_totals(&session->emit);
    emit_hide(&session->emit, rows.left.any);
    emit_values(&session->emit, &sum);
    emit_end(&session->emit);
    if (!rows.works && !is_filtered(&session->options))
        complain(NULL, "no kernels were recorded; `tfanalyze info` shows the recorded events");
    session_end(session, rows.works || !is_filtered(&session->options));
    annotations_free(&rows);
}
