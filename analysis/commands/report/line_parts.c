/* line_parts.c - writes names and times into the lines of a report. */
#include "commands/report/report.h"

enum { WIDTH = 100, LEAST_WIDTH = 60 };

/* Returns the width of a line. It is at least LEAST_WIDTH, so that a narrow terminal shows a part of each name. */
static size_t line_width(const struct out *out)
{
    size_t width = terminal_width(out);
    return width ? MAX(width, LEAST_WIDTH) : WIDTH;
}

void report_put_name(struct out *out, const char *text, size_t length, size_t taken)
{
    size_t width = line_width(out) - taken, columns = 0, at = 0, cut = 0; /* cut: end of the last column but three */
    const char *end = text + length;
    struct text shown = {0};
    while (at < length && columns <= width) {
        size_t step;
        uint32_t code;
        bool plain = !is_unsafe(text + at, end, &step, &code);
        cut = columns + 3 <= width ? shown.length : cut;
        text_add(&shown, plain ? text + at : "?", plain ? step : 1);
        at += MAX(step, 1);
        columns++;
    }
    if (columns > width) {
        shown.length = cut;
        text_puts(&shown, "...");
    }
    out_write(out, shown.data ? shown.data : "", shown.length);
    out_puts(out, "\n");
    text_free(&shown);
}

void report_put_time(struct out *out, int64_t ns, int width)
{
    struct text text = {0};
    human_time(&text, ns);
    out_format(out, "%*s", width, text.data);
    text_free(&text);
}

size_t report_shown(const struct report *report, size_t usual)
{
    uint64_t top = report->session->options.top;
    return top ? top : usual;
}
