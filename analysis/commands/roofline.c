/* roofline.c - tells what bounds the device work of operators: one row per stage, rank, operator and input shapes. */
#include <math.h>
#include <string.h>

#include "advise/roofline/roofs.h"
#include "commands/session.h"

/* Writes shapes or types of inputs as one line, however the trace breaks it. */
static void emit_one_line(struct session *session, const char *key, uint32_t inputs)
{
    const char *text = model_name(&session->model, inputs);
    struct text line = {0};
    for (bool quoted = false; *text; text++) {
        quoted ^= *text == '"'; /* "long int" keeps its blank */
        if (quoted) text_add(&line, text, 1);
        else if (!strchr(" \t\r\n", *text)) text_format(&line, *text == ',' ? ", " : "%c", *text);
    }
    emit_text(&session->emit, key, line.data);
    text_free(&line);
}

static void emit_roof(struct session *session, const struct roofline *roofline, const struct roof_row *row)
{
    struct emit *e = &session->emit;
    const struct model *model = &session->model;
    double calls = (double)row->calls, ns = (double)row->device_ns;
    bool known = row->cost.known && ns > 0;
    emit_row(e);
    emit_stage(e, names_get(&model->names, row->key.stage));
    emit_known(e, "rank", row->key.rank);
    emit_text(e, "name", model_name(model, row->key.name));
    emit_one_line(session, "shapes", row->key.shapes);
    emit_one_line(session, "types", row->key.types);
    emit_hide(e, left_rows_stage(&roofline->left, row->key.rank, row->key.stage));
    emit_count(e, "calls", row->calls);
    emit_double(e, "flops", row->cost.known ? row->cost.flops * calls : NAN);
    emit_double(e, "bytes", row->cost.known ? row->cost.bytes * calls : NAN);
    emit_us(e, "device_us", row->device_ns);
    emit_double(e, "achieved_tflops", known ? row->cost.flops * calls / ns / 1e3 : NAN);
    emit_double(e, "achieved_gbs", known ? row->cost.bytes * calls / ns : NAN);
    emit_text(e, "bound", row->bound);
    if (row->bound) emit_us(e, "headroom_us", roof_headroom(row));
    else emit_null(e, "headroom_us");
    emit_hide(e, roofline->left.any);
    emit_pct(e, "pct", roofline->device_ns ? 100.0 * ns / (double)roofline->device_ns : NAN);
    emit_row_end(e);
}

/* Writes the peaks of each device that rows are compared with, the roofs of a picture; 0: it has no such units. */
static void emit_peaks(struct emit *e, const struct roofline *roofline)
{
    const struct device_peaks *last = NULL;
    emit_open(e, "peaks", true);
    for (size_t i = 0; i < roofline->count; i++) {
        const struct device_peaks *p = roofline->row[i].peaks;
        size_t before = 0;
        if (!p || p == last) continue;
        while (before < i && roofline->row[before].peaks != p) before++;
        last = p;
        if (before < i) continue;
        emit_open(e, NULL, false);
        emit_text(e, "device", p->name);
        emit_double(e, "gbs", p->bytes / 1e9);
        emit_double(e, "fp64_tflops", p->fp64 / 1e12);
        emit_double(e, "fp32_tflops", p->fp32 / 1e12);
        emit_double(e, "tf32_tflops", p->tf32 / 1e12);
        emit_double(e, "fp16_tflops", p->fp16 / 1e12);
        emit_double(e, "fp8_tflops", p->fp8 / 1e12);
        emit_close(e);
    }
    emit_close(e);
}

static void say_not_judged(const struct roofline *roofline)
{
    struct text known = {0};
    if (roofline->lacks_device) {
        devices_known(&known);
        complain(NULL, "bounds are unknown: no trace names a device whose peaks are known; --gpu NAME names one of: %s",
                 known.data);
        text_free(&known);
    }
    if (roofline->impossible)
        complain(NULL,
                 "%zu rows would be faster than the device can be: other work than their shapes say ran, or the "
                 "trace is of another device",
                 roofline->impossible);
    if (roofline->lacks_shapes)
        complain(NULL, "some operators have no input shapes, so that they have no model; record them with "
                       "TFI_RECORD_SHAPES=1, or record_shapes=True of torch.profiler");
}

void cmd_roofline(struct session *session)
{
    struct emit *e = &session->emit;
    const struct options *options = &session->options;
    struct roofline roofline = {.gpu = options->gpu};
    if (options->gpu && !device_peaks(options->gpu)) {
        struct text known = {0};
        devices_known(&known);
        complain(NULL, "--gpu %s is no device whose peaks are known; they are: %s", options->gpu, known.data);
        text_free(&known);
        session->status = STATUS_USAGE;
        return;
    }
    if (!session_ask(session, STYLE_TABLE)) return;
    roofline_of_model(&roofline, &session->chosen);
    size_t rows = options->top ? MIN(options->top, roofline.count) : roofline.count;
    for (size_t i = 0; i < rows; i++) emit_roof(session, &roofline, &roofline.row[i]);
    emit_totals(e);
    emit_hide(e, roofline.left.any);
    emit_us(e, "device_us", roofline.device_ns);
    emit_us(e, "modelled_us", roofline.modelled_ns);
    if (e->format == FORMAT_JSON) emit_peaks(e, &roofline);
    emit_end(e);
    say_not_judged(&roofline);
    session_end(session, roofline.works || !is_filtered(options));
    roofline_free(&roofline);
}
