/* html.h - parts of pages in HTML: texts that are safe in it, the head of a page, and areas stacked over time.
 *
 * A page is one file that loads nothing and runs nothing: its policy forbids scripts, and its pictures are SVG. Texts of
 * a trace pass html_text, which escapes what HTML or a terminal would act on.
 */
#ifndef TFA_HTML_H
#define TFA_HTML_H

#include "write/out.h"

enum { HTML_COLORS = 8 };

void html_text(struct out *out, const char *bytes, size_t length);
void html_string(struct out *out, const char *string);
void html_begin(struct out *out, const char *title);
void html_end(struct out *out);

/* Values over time. A value holds from its point to the next one. */
struct html_areas {
    size_t points, bands;      /* at most HTML_COLORS bands */
    const char *const *name;   /* of each band, the lowest first */
    const int64_t *time;       /* ns, ascending */
    const int64_t *bytes;      /* of each point each band; one below 0 is drawn as 0 */
    const uint64_t *line;      /* drawn above the areas, UINT64_MAX: unknown; NULL: none */
    int64_t start, from, to;   /* start: the moment called 0; from, to: ends of the axis */
    int64_t marked;            /* a moment to mark */
    const char *mark, *legend; /* what is marked; what the line is */
};
void html_areas(struct out *out, const struct html_areas *areas);

#endif
