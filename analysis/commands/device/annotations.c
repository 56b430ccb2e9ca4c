/* annotations.c - reports the kernels under each user annotation: one row per rank and stack of annotations. */
#include "ask/device/annotations.h"

#include <math.h>

#include "commands/device/hta.h"

enum { MOST_SHOWN = 64 }; /* annotations of a stack: some programs nest theirs thousands deep */

/* ---- --rules hta ---- */

static int64_t fitting(__int128 sum)
{
    return sum > INT64_MAX ? INT64_MAX : sum < INT64_MIN ? INT64_MIN : (int64_t)sum;
}

static void emit_calls(struct emit *e, const struct hta_annotation *a)
{
    static const char *const keys[] = {"sum_us", "mean_us", "min_us", "max_us", "std_us"};
    emit_count(e, "calls", a->calls);
    if (!a->calls) {
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++) emit_null(e, keys[i]);
        return;
    }
    emit_us(e, "sum_us", fitting(a->sum));
    emit_us(e, "mean_us", llround((double)a->sum / (double)a->calls));
    emit_us(e, "min_us", a->min);
    emit_us(e, "max_us", a->max);
    emit_us(e, "std_us", a->calls > 1 ? llround(sqrt(a->squares / (double)(a->calls - 1))) : 0); /* HTA's fillna */
}

static void emit_hta_frame(struct session *session, const struct hta_frame *frame, uint64_t *shown)
{
    struct emit *e = &session->emit;
    struct hta_annotations found;
    uint64_t top = session->options.top;
    hta_annotations(&found, frame, &session->model.names);
    if (!found.knows_kernels)
        complain(frame->path, "HTA's rules give no kernels: its rounding makes the duration of an event negative");
    for (size_t i = 0; i < found.count; i++) {
        const struct hta_annotation *a = &found.annotation[i];
        if (top && *shown >= top) break;
        (*shown)++;
        emit_row(e);
        emit_known(e, "rank", frame->rank);
        emit_text(e, "annotation", model_name(&session->model, a->name));
        if (found.knows_kernels) {
            emit_count(e, "kernels", a->kernels);
            emit_us(e, "total_us", fitting(a->kernel_time));
        } else {
            emit_null(e, "kernels");
            emit_null(e, "total_us");
        }
        emit_calls(e, a);
        emit_row_end(e);
    }
    hta_annotations_free(&found);
}

static void answer_hta(struct session *session)
{
    uint64_t shown = 0;
    if (!hta_load(session) || !session_begin(session, STYLE_TABLE)) return;
    emit_keys(&session->emit, "rank,annotation,kernels,total_us,calls,sum_us,mean_us,min_us,max_us,std_us");
    const struct hta_frames *frames = hta_frames(&session->chosen);
    bool has_any = hta_has_annotations(frames);
    for (size_t i = 0; i < frames->count && has_any; i++) emit_hta_frame(session, &frames->frame[i], &shown);
    if (!has_any)
        complain(NULL, "HTA's rules need annotations on a device (gpu_user_annotation), and the trace has none; "
                       "--rules exact goes by the launches");
    emit_totals(&session->emit);
    emit_count(&session->emit, "ranks", frames->count);
    emit_end(&session->emit);
    session_end(session, shown || !is_filtered(&session->options));
}

/* ---- our own rules ---- */

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

static void add(struct annotation_row *sum, const struct annotation_row *row)
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
    emit_values(e, row);
    emit_stack(session, &rows->paths, row->path);
    emit_row_end(e);
}

void cmd_annotations(struct session *session)
{
    struct annotation_rows rows;
    struct annotation_row sum = {0};
    uint64_t top = session->options.top;
    if (session->options.rules == RULES_HTA) {
        answer_hta(session);
        return;
    }
    if (!session_load(session, ANNOTATIONS_WANT, false) || !session_begin(session, STYLE_TABLE)) return;
    annotations_of(&rows, &session->chosen);
    for (size_t i = 0; i < rows.count; i++) {
        add(&sum, &rows.row[i]);
        if (!top || i < top) emit_annotation(session, &rows, &rows.row[i]);
    }
    emit_totals(&session->emit);
    emit_values(&session->emit, &sum);
    emit_end(&session->emit);
    if (!rows.works && !is_filtered(&session->options))
        complain(NULL, "no kernels were recorded; `tfanalyze info` shows the recorded events");
    session_end(session, rows.works || !is_filtered(&session->options));
    annotations_free(&rows);
}
