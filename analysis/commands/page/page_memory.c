/* page_memory.c - the pictures of memory over time in a page: those of `memory --layout html`, as columns. */
#include "commands/page/page_memory.h"

#include <string.h>

#include "commands/memory/memory_page.h"

enum { PAGE_PICTURES = 8 };

static void put_column(struct out *out, const struct picture *p, int band)
{
    out_puts(out, band ? ",[" : "[");
    for (size_t i = 0; i < p->points; i++) out_format(out, i ? ",%lld" : "%lld", (long long)p->point[i].bytes[band]);
    out_puts(out, "]");
}

static void put_number(struct out *out, const char *key, int64_t number, bool known)
{
    out_format(out, ", \"%s\": ", key);
    if (known) out_int(out, number);
    else out_puts(out, "null");
}

static void put_picture(struct out *out, const struct session *session, const struct picture *p)
{
    int64_t start = p->process->memory_rows ? p->process->first : session->model.start;
    const char *allocator = p->allocator == NAME_NONE ? "" : model_name(&session->model, p->allocator);
    out_puts(out, "{\"allocator\": ");
    out_json_string(out, allocator, strnlen(allocator, 80));
    put_number(out, "rank", p->process->rank, p->process->rank >= 0);
    put_number(out, "pid", p->process->pid, p->process->pid >= 0);
    put_number(out, "device", p->device, p->device != DEVICE_OTHER && p->device != DEVICE_HOST);
    put_number(out, "host", p->device == DEVICE_HOST, true);
    put_number(out, "moments", (int64_t)p->counted, true);
    put_number(out, "peak_bytes", p->peak.total, true);
    out_puts(out, ", \"peak_us\": ");
    out_us(out, p->peak.time - start);
    out_puts(out, ", \"time_us\": [");
    for (size_t i = 0; i < p->points; i++) {
        out_puts(out, i ? "," : "");
        out_us(out, p->point[i].time - start);
    }
    out_puts(out, "], \"bytes\": [");
    for (int band = 0; band < (p->by_category ? MEMORY_CATEGORIES : 1); band++) put_column(out, p, band);
    out_puts(out, "], \"reserved\": [");
    for (size_t i = 0; i < p->points && p->reserved_peak != TOTAL_UNKNOWN; i++) {
        out_puts(out, i ? "," : "");
        if (p->point[i].reserved == TOTAL_UNKNOWN) out_puts(out, "null");
        else out_number(out, p->point[i].reserved);
    }
    out_puts(out, "]}");
}

void page_memory_write(struct out *out, struct session *session)
{
    struct pictures pictures;
    memory_pictures(session, &pictures, PAGE_PICTURES);
    out_puts(out, "{\"pictures\": [");
    for (size_t i = 0; i < pictures.count; i++) {
        out_puts(out, i ? ",\n" : "\n");
        put_picture(out, session, &pictures.picture[i]);
    }
    out_puts(out, "], \"left_out\": ");
    out_number(out, pictures.left_out);
    out_puts(out, "}");
    pictures_free(&pictures);
}
