/* memory_page.c - writes memory over time as a page: a picture of each allocator, its peaks, and the drawn numbers. */
#include "commands/memory/memory_page.h"

#include <stdlib.h>
#include <string.h>

#include "ask/memory/categories.h"
#include "write/html/html.h"

/* The names that torch's picture uses. */
static const char *const category_titles[HTML_COLORS] = {
    "PARAMETER", "OPTIMIZER_STATE", "INPUT", "TEMPORARY", "ACTIVATION", "GRADIENT", "AUTOGRAD_DETAIL", "Unknown"};
_Static_assert((int)HTML_COLORS == (int)MEMORY_CATEGORIES, "each category has a colour");
static const char *const in_use[] = {"in use"};

static int64_t start_of_picture(const struct session *session, const struct picture *picture)
{
    return picture->process->memory_rows ? picture->process->first : session->model.start;
}

/* ---- values ---- */

static void put_size(struct out *out, int64_t bytes)
{
    struct text text = {0};
    human_bytes(&text, bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes);
    out_format(out, "%s%s", bytes < 0 ? "-" : "", text.data);
    text_free(&text);
}

static void put_time(struct out *out, int64_t ns)
{
    struct text text = {0};
    human_time(&text, ns);
    out_puts(out, text.data);
    text_free(&text);
}

static void put_cell(struct out *out, int64_t bytes)
{
    out_format(out, "<td title=\"%lld bytes\">", (long long)bytes);
    put_size(out, bytes);
    out_puts(out, "</td>");
}

/* ---- the parts of a picture ---- */

static void put_heading(struct session *session, const struct picture *picture)
{
    const struct process *p = picture->process;
    struct out *out = &session->out;
    out_puts(out, "<h2>");
    if (p->rank >= 0) out_format(out, "rank %lld ", (long long)p->rank);
    if (p->pid >= 0) out_format(out, "pid %lld ", (long long)p->pid);
    if (picture->allocator != NAME_NONE) {
        const struct name *name = names_get(&session->model.names, picture->allocator);
        out_puts(out, "allocator ");
        html_text(out, name->text, name->length);
    }
    if (picture->device == DEVICE_HOST) out_puts(out, " of the host");
    else if (picture->device != DEVICE_OTHER) out_format(out, " of device %lld", (long long)picture->device);
    else if (picture->by_category) out_puts(out, "memory by category");
    out_puts(out, "</h2>\n<p class=\"soft\">");
    html_string(out, p->path);
    if (!p->complete) out_puts(out, " (incomplete: a part of the trace is missing)");
    for (size_t i = 0; i < p->devices; i++)
        if (p->device[i].simulated) out_puts(out, i ? "" : " (with simulated devices)");
    out_format(out, "; %llu moments, %zu of them drawn</p>\n", (unsigned long long)picture->counted, picture->points);
}

static void put_areas(struct session *session, const struct picture *picture)
{
    size_t bands = picture->by_category ? MEMORY_CATEGORIES : 1;
    int64_t *time = mem_zero(picture->points, sizeof *time);
    int64_t *bytes = mem_zero(picture->points * bands, sizeof *bytes);
    uint64_t *reserved = mem_zero(picture->points, sizeof *reserved);
    for (size_t i = 0; i < picture->points; i++) {
        time[i] = picture->point[i].time;
        memcpy(&bytes[i * bands], picture->point[i].bytes, bands * sizeof *bytes);
        reserved[i] = picture->point[i].reserved;
    }
    html_areas(&session->out, &(struct html_areas){.points = picture->points,
                                                   .bands = bands,
                                                   .name = picture->by_category ? category_titles : in_use,
                                                   .time = time,
                                                   .bytes = bytes,
                                                   .line = picture->reserved_peak == TOTAL_UNKNOWN ? NULL : reserved,
                                                   .start = start_of_picture(session, picture),
                                                   .from = picture->from,
                                                   .to = picture->to,
                                                   .marked = picture->peak.time,
                                                   .mark = "peak",
                                                   .legend = "reserved"});
    free(time);
    free(bytes);
    free(reserved);
}

/* The legend is the first column. The category on top of the picture is the first row. */
static void put_table(struct session *session, const struct picture *p)
{
    struct out *out = &session->out;
    int64_t start = start_of_picture(session, p);
    out_puts(
        out,
        "<table>\n<tr><th>category</th><th>at the peak</th><th>largest</th><th>since</th><th>at the end</th></tr>\n");
    for (size_t i = p->by_category ? MEMORY_CATEGORIES : 1; i-- > 0;) {
        out_format(out, "<tr><td><span class=\"key b%zu\"></span>%s</td>", i,
                   p->by_category ? category_titles[i] : in_use[i]);
        put_cell(out, p->peak.bytes[i]);
        put_cell(out, p->largest[i]);
        out_puts(out, "<td>");
        put_time(out, p->since[i] - start);
        out_puts(out, "</td>");
        put_cell(out, p->last.bytes[i]);
        out_puts(out, "</tr>\n");
    }
    if (p->by_category) {
        out_puts(out, "<tr><th>total</th>");
        put_cell(out, p->peak.total);
        put_cell(out, p->peak.total);
        out_puts(out, "<td>");
        put_time(out, p->peak.time - start);
        out_puts(out, "</td>");
        put_cell(out, p->last.total);
        out_puts(out, "</tr>\n");
    }
    out_puts(out, "</table>\n<p>Peak allocated: ");
    put_size(out, p->peak.total);
    out_puts(out, " at ");
    put_time(out, p->peak.time - start);
    out_puts(out, "; peak reserved: ");
    if (p->reserved_peak == TOTAL_UNKNOWN) out_puts(out, "unknown");
    else put_size(out, (int64_t)MIN(p->reserved_peak, (uint64_t)INT64_MAX));
    out_puts(out, p->reserved_peak == TOTAL_UNKNOWN ? "</p>\n" : " (the line in the picture)</p>\n");
}

/* The drawn numbers for a program: times, and the sizes of each, as torch's .json layout has them, without its column of
 * zeros. A data block is not run. */
static void put_numbers(struct session *session, const struct picture *p)
{
    struct out *out = &session->out;
    int64_t start = start_of_picture(session, p);
    out_puts(out, "<script type=\"application/json\">{\"time_us\":[");
    for (size_t i = 0; i < p->points; i++) {
        out_puts(out, i ? "," : "");
        out_us(out, p->point[i].time - start);
    }
    out_puts(out, "],\"bytes\":[");
    for (size_t i = 0; i < p->points; i++) {
        out_puts(out, i ? ",[" : "[");
        for (int k = 0; k < (p->by_category ? MEMORY_CATEGORIES : 1); k++)
            out_format(out, k ? ",%lld" : "%lld", (long long)p->point[i].bytes[k]);
        out_puts(out, "]");
    }
    out_puts(out, "]}</script>\n");
}

void memory_page_write(struct session *session, const struct pictures *pictures)
{
    struct out *out = &session->out;
    html_begin(out, "Memory over time");
    if (!pictures->count) out_puts(out, "<p>No memory was recorded.</p>\n");
    for (size_t i = 0; i < pictures->count; i++) {
        const struct picture *picture = &pictures->picture[i];
        put_heading(session, picture);
        put_areas(session, picture);
        put_table(session, picture);
        put_numbers(session, picture);
    }
    if (pictures->left_out)
        out_format(out, "<p>%llu more are left out; --rank, --pid and --device choose.</p>\n",
                   (unsigned long long)pictures->left_out);
    out_format(out, "<p class=\"soft\">tfanalyze %s</p>\n", TFI_VERSION);
    html_end(out);
}
