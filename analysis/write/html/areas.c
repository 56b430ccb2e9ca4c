/* areas.c - draws bytes stacked over time as SVG. */
#include <math.h>

#include "write/emit.h"
#include "write/html/html.h"

enum { WIDTH = 1000, HEIGHT = 360, LEFT = 80, RIGHT = 990, TOP = 22, BOTTOM = 330, TICKS = 6 };

/* The scale of a picture. */
struct scale {
    const struct html_areas *areas;
    double most; /* bytes at the top */
};

static double x_of(const struct scale *s, int64_t time)
{
    double from = (double)s->areas->from, span = (double)s->areas->to - from;
    double at = span > 0 ? ((double)time - from) / span : 0;
    return LEFT + (RIGHT - LEFT) * fmin(fmax(at, 0), 1);
}

static double y_of(const struct scale *s, double bytes)
{
    return BOTTOM - (BOTTOM - TOP) * fmin(bytes / s->most, 1);
}

/* Returns what the bands up to one hold together. */
static double height(const struct html_areas *a, size_t point, size_t band)
{
    double sum = 0;
    for (size_t i = 0; i <= band; i++) sum += (double)MAX(a->bytes[point * a->bands + i], 0);
    return sum;
}

static double most(const struct html_areas *a)
{
    double top = 1;
    for (size_t i = 0; i < a->points; i++) {
        top = fmax(top, height(a, i, a->bands - 1));
        if (a->line && a->line[i] != UINT64_MAX) top = fmax(top, (double)a->line[i]);
    }
    return top;
}

/* ---- axes ---- */

/* Powers of two, so that the labels are short. */
static void bytes_axis(struct out *out, const struct scale *s)
{
    double step = 1;
    while (s->most / step > TICKS) step *= 2;
    for (double at = 0; at <= s->most; at += step) {
        struct text label = {0};
        double y = y_of(s, at);
        human_bytes(&label, (uint64_t)at);
        out_format(out,
                   "<path class=\"rule\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                   LEFT, y, RIGHT, LEFT - 6, y + 4, label.data);
        text_free(&label);
    }
}

static void time_axis(struct out *out, const struct scale *s)
{
    const struct html_areas *a = s->areas;
    double span = (double)a->to - (double)a->from;
    for (int i = 0; i <= 4; i++) {
        struct text label = {0};
        human_time(&label, (int64_t)((double)a->from - (double)a->start + span * i / 4));
        out_format(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", LEFT + (RIGHT - LEFT) * i / 4,
                   BOTTOM + 18,
                   i == 0   ? "start"
                   : i == 4 ? "end"
                            : "middle",
                   label.data);
        text_free(&label);
    }
}

/* ---- areas ---- */

/* Draws one band with all below it, which are drawn over it later. Points that move nothing visible are left out. */
static void area(struct out *out, const struct scale *s, size_t band)
{
    const struct html_areas *a = s->areas;
    double x = x_of(s, a->time[0]), y = BOTTOM;
    out_format(out, "<path class=\"b%zu\" d=\"M%.1f %d", band, x, BOTTOM);
    for (size_t i = 0; i < a->points; i++) {
        double next = y_of(s, height(a, i, band)), at = x_of(s, a->time[i]);
        if (fabs(next - y) < 0.05) continue;
        if (at - x >= 0.05) out_format(out, "H%.1f", at);
        out_format(out, "V%.1f", next);
        x = fmax(x, at);
        y = next;
    }
    out_format(out, "H%d", RIGHT);
    out_format(out, "V%dz\"><title>", BOTTOM);
    html_string(out, a->name[band]);
    out_puts(out, "</title></path>\n");
}

static void line(struct out *out, const struct scale *s)
{
    const struct html_areas *a = s->areas;
    bool is_drawing = false;
    out_puts(out, "<path class=\"line\" d=\"");
    for (size_t i = 0; i < a->points; i++) {
        if (a->line[i] == UINT64_MAX) {
            is_drawing = false;
            continue;
        }
        double x = x_of(s, a->time[i]), y = y_of(s, (double)a->line[i]);
        if (!is_drawing) out_format(out, "M%.1f %.1f", x, y);
        else if (a->line[i] != a->line[i - 1]) out_format(out, "H%.1fV%.1f", x, y);
        is_drawing = true;
    }
    if (is_drawing) out_format(out, "H%d", RIGHT);
    out_puts(out, "\"><title>");
    html_string(out, a->legend);
    out_puts(out, "</title></path>\n");
}

static void mark(struct out *out, const struct scale *s)
{
    double x = x_of(s, s->areas->marked);
    out_format(out, "<path class=\"mark\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">", x, TOP - 6,
               BOTTOM, x, TOP - 9,
               x < WIDTH / 4       ? "start"
               : x > WIDTH * 3 / 4 ? "end"
                                   : "middle");
    html_string(out, s->areas->mark);
    out_puts(out, "</text>\n");
}

void html_areas(struct out *out, const struct html_areas *areas)
{
    const struct scale scale = {areas, areas->points && areas->bands ? most(areas) * 1.03 : 1};
    out_format(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\">\n", WIDTH, HEIGHT);
    bytes_axis(out, &scale);
    time_axis(out, &scale);
    for (size_t band = areas->points ? areas->bands : 0; band-- > 0;) area(out, &scale, band);
    if (areas->line) line(out, &scale);
    if (areas->points) mark(out, &scale);
    out_puts(out, "</svg>\n");
}
