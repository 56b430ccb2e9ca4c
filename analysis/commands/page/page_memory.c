/* page_memory.c - the pictures of memory over time in a page: the drawn moments as columns, and the exact figures of all moments. */
#include "commands/page/page_memory.h"

#include <string.h>

#include "write/page/page_file.h"

enum { ALLOCATOR_MOST = 200 }; /* bytes of a name */

static int64_t start_of(const struct session *session, const struct picture *p)
{
    return p->process->memory_rows ? p->process->first : session->model.start;
}

static int bands_of(const struct picture *p)
{
    return p->by_category ? MEMORY_CATEGORIES : 1;
}

static void put_text(struct out *out, const char *key, const char *text, size_t most)
{
    out_format(out, ", \"%s\": ", key);
    out_json_string(out, text, strnlen(text, most));
}

static void put_number(struct out *out, const char *key, int64_t number, bool known)
{
    out_format(out, ", \"%s\": ", key);
    if (known) out_int(out, number);
    else out_puts(out, "null");
}

static void put_flag(struct out *out, const char *key, bool flag)
{
    out_format(out, ", \"%s\": %s", key, flag ? "true" : "false");
}

static void put_bytes(struct out *out, const char *key, const struct picture *p, const int64_t *bytes)
{
    out_format(out, ", \"%s\": [", key);
    for (int band = 0; band < bands_of(p); band++) out_format(out, band ? ",%lld" : "%lld", (long long)bytes[band]);
    out_puts(out, "]");
}

/* ---- a picture ---- */

static void put_place(struct out *out, const struct session *session, const struct picture *p)
{
    const struct process *process = p->process;
    const char *allocator = p->allocator == NAME_NONE ? "" : model_name(&session->model, p->allocator);
    bool simulated = false;
    for (size_t i = 0; i < process->devices; i++) simulated |= process->device[i].simulated;
    out_puts(out, "{\"allocator\": ");
    out_json_string(out, allocator, strnlen(allocator, ALLOCATOR_MOST));
    put_text(out, "path", process->path, strlen(process->path));
    put_flag(out, "complete", process->complete);
    put_flag(out, "simulated", simulated);
    put_number(out, "rank", process->rank, process->rank >= 0);
    put_number(out, "pid", process->pid, process->pid >= 0);
    put_number(out, "device", p->device, p->device != DEVICE_OTHER && p->device != DEVICE_HOST);
    put_flag(out, "host", p->device == DEVICE_HOST);
}

/* The figures of all moments, drawn or not. */
static void put_figures(struct out *out, const struct picture *p, int64_t start)
{
    put_number(out, "moments", (int64_t)p->counted, true);
    put_number(out, "peak_bytes", p->peak.total, true);
    put_number(out, "peak_reserved_bytes", (int64_t)MIN(p->reserved_peak, (uint64_t)INT64_MAX),
               p->reserved_peak != TOTAL_UNKNOWN);
    out_puts(out, ", \"peak_us\": ");
    out_us(out, p->peak.time - start);
    put_bytes(out, "at_peak", p, p->peak.bytes);
    put_bytes(out, "largest", p, p->largest);
    put_bytes(out, "last", p, p->last.bytes);
    out_puts(out, ", \"since_us\": [");
    for (int band = 0; band < bands_of(p); band++) {
        out_puts(out, band ? "," : "");
        out_us(out, p->since[band] - start);
    }
    out_puts(out, "]");
}

static void put_column(struct out *out, const struct picture *p, int band)
{
    out_puts(out, band ? ",[" : "[");
    for (size_t i = 0; i < p->points; i++) out_format(out, i ? ",%lld" : "%lld", (long long)p->point[i].bytes[band]);
    out_puts(out, "]");
}

static void put_moments(struct out *out, const struct picture *p, int64_t start)
{
    out_puts(out, ", \"time_us\": [");
    for (size_t i = 0; i < p->points; i++) {
        out_puts(out, i ? "," : "");
        out_us(out, p->point[i].time - start);
    }
    out_puts(out, "], \"bytes\": [");
    for (int band = 0; band < bands_of(p); band++) put_column(out, p, band);
    out_puts(out, "], \"reserved\": [");
    for (size_t i = 0; i < p->points && p->reserved_peak != TOTAL_UNKNOWN; i++) {
        out_puts(out, i ? "," : "");
        if (p->point[i].reserved == TOTAL_UNKNOWN) out_puts(out, "null");
        else out_number(out, p->point[i].reserved);
    }
    out_puts(out, "]}");
}

void page_memory_put(struct out *out, const struct session *session, const struct pictures *pictures)
{
    out_puts(out, "{\"pictures\": [");
    for (size_t i = 0; i < pictures->count; i++) {
        const struct picture *p = &pictures->picture[i];
        out_puts(out, i ? ",\n" : "\n");
        put_place(out, session, p);
        put_figures(out, p, start_of(session, p));
        put_moments(out, p, start_of(session, p));
    }
    out_puts(out, "], \"left_out\": ");
    out_number(out, pictures->left_out);
    out_puts(out, "}");
}

/* ---- the page ---- */

void page_of_memory(struct session *session, const struct pictures *pictures)
{
    struct out data;
    out_memory(&data);
    page_begin(&data, "memory");
    page_memory_put(&data, session, pictures);
    out_puts(&data, "]}");
    page_write(&session->out, data.buffer, data.used);
    out_discard(&data);
}
