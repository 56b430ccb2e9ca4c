/* chrome_merge.c - writes the head and the end of a Chrome trace of several processes. */
#include "write/chrome/chrome_merge.h"

#include <stdlib.h>
#include <string.h>

#include "write/emit.h"
#include "write/chrome/chrome_file.h"
#include "write/export/export_tfr.h"

void merged_begin(struct merged *file, struct out *out, const char *artefact, const struct selection *chosen,
                  const struct one_clock *clock, const size_t *order)
{
    struct emit e = {.out = out, .format = FORMAT_JSON};
    *file = (struct merged){.out = out, .count = chosen->processes};
    file->base = export_base(clock->start);
    file->one = mem_zero(file->count, sizeof *file->one);
    for (size_t i = 0; i < file->count; i++) {
        file->one[i].process = chosen->process[order[i]];
        file->one[i].clock = clock->process[order[i]];
    }
    out_puts(out, "{");
    put_writer(out, artefact, NULL, -1);
    e.filled[0] = true;
    emit_int(&e, "schemaVersion", 1);
    emit_text(&e, "displayTimeUnit", "ms");
    emit_int(&e, "baseTimeNanoseconds", MAX(file->base, 0));
    out_puts(out, ",\n\"traceEvents\": [");
}

/* ---- the inputs ---- */

static void put_members(struct merged *file, struct merged_process *one)
{
    for (size_t i = 0; i < one->members; i++) {
        out_puts(file->out, i ? ", " : "");
        out_json_string(file->out, one->member[i].key, strlen(one->member[i].key));
        out_puts(file->out, ": ");
        out_write(file->out, one->member[i].value, one->member[i].length);
    }
}

static void put_clock(struct emit *e, const struct merged_process *one)
{
    emit_text(e, "clock", clock_source_names[one->clock.source]);
    emit_us(e, "clock_offset_us", one->clock.shift.offset);
    emit_double(e, "clock_drift_ppm", 1e6 * one->clock.shift.drift);
}

static void put_input(struct merged *file, struct merged_process *one, const struct selection *chosen)
{
    const struct process *p = one->process;
    struct emit e = {.out = file->out, .format = FORMAT_JSON};
    emit_known(&e, "rank", p->rank);
    emit_known(&e, "world", p->world);
    emit_text(&e, "host", p->host);
    emit_known(&e, "pid", p->pid);
    emit_text(&e, "path", p->path);
    emit_text(&e, "kind", p->kind);
    emit_bool(&e, "complete", p->complete);
    emit_count(&e, "events", one->events);
    put_clock(&e, one);
    out_puts(file->out, ", \"pids\": [");
    out_write(file->out, one->pids.data ? one->pids.data : "", one->pids.length);
    out_puts(file->out, "], \"metadata\": {");
    if (is_of_kineto(p)) put_members(file, one);
    else export_tfr_metadata(file->out, p, chosen);
    out_puts(file->out, "}");
}

void merged_end(struct merged *file, const struct selection *chosen, const struct one_clock *clock)
{
    struct emit e = {.out = file->out, .format = FORMAT_JSON};
    out_puts(file->out, "\n],\n");
    if (clock->residual == UNKNOWN_TIME) emit_null(&e, "clock_residual_us");
    else emit_us(&e, "clock_residual_us", clock->residual);
    out_puts(file->out, ",\n\"inputs\": [");
    for (size_t i = 0; i < file->count; i++) {
        out_puts(file->out, i ? ",\n{" : "\n{");
        put_input(file, &file->one[i], chosen);
        out_puts(file->out, "}");
    }
    out_puts(file->out, "\n]}\n");
}

void merged_free(struct merged *file)
{
    for (size_t i = 0; i < file->count; i++) {
        struct merged_process *one = &file->one[i];
        for (size_t k = 0; k < one->members; k++) {
            free(one->member[k].key);
            free(one->member[k].value);
        }
        free(one->member);
        text_free(&one->pids);
    }
    free(file->one);
    map_free(&file->pids);
    *file = (struct merged){0};
}
