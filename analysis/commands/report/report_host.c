/* report_host.c - prints a report's part for a run without a device: operators, dispatches and memory.
 *
 * It also prints refused memory requests, for any run.
 */
#include <stdlib.h>

#include "ask/device/launch_sums.h"
#include "ask/ops/op_rows.h"
#include "ask/stages/order.h"
#include "commands/report/report.h"

enum { SHOWN_OPERATORS = 6, SHOWN_MEMORIES = 2 };

/* ---- operators ---- */

static int by_own_time(const void *a, const void *b, void *names)
{
    const struct op_row *x = a, *y = b;
    if (x->own.time != y->own.time) return x->own.time > y->own.time ? -1 : 1;
    return names_order(names, x->name, y->name);
}

/* Puts only operators first, sorted by descending self time; returns their number. */
static size_t find_operators(struct op_rows *rows, const struct report *report)
{
    size_t kept = 0;
    for (size_t i = 0; i < rows->count; i++)
        if (!rows->row[i].on_device && !rows->row[i].is_annotation && rows->row[i].calls && rows->row[i].all.time)
            rows->row[kept++] = rows->row[i];
    if (kept) qsort_r(rows->row, kept, sizeof *rows->row, by_own_time, &report->session->model.names);
    return kept;
}

static void put_operators(struct out *out, struct report *report)
{
    struct op_rows *rows = &report->operators;
    size_t count = find_operators(rows, report), shown = report_shown(report, SHOWN_OPERATORS);
    if (count) {
        out_puts(out, "\noperators, all ranks together (self: without the operators inside)\n");
        out_format(out, "%12s%14s%14s  operator\n", "calls", "self", "total");
    }
    for (size_t i = 0; i < MIN(count, shown); i++) {
        const struct name *name = names_get(&report->session->model.names, rows->row[i].name);
        out_format(out, "%12llu", (unsigned long long)rows->row[i].calls);
        report_put_time(out, rows->row[i].own.time, 14);
        report_put_time(out, rows->row[i].all.time, 14);
        out_puts(out, "  ");
        report_put_name(out, name->text, name->length, 42);
    }
    if (count > shown) out_format(out, "  and %zu more; `tfanalyze ops` shows all\n", count - shown);
}

/* ---- dispatches ---- */

struct dispatch {
    uint32_t name; /* the key */
    uint64_t calls;
};

/* Names the most frequent one; of equal ones the first by name. */
static void put_dispatches(struct out *out, const struct report *report)
{
    struct model *model = &report->session->model;
    struct launch_sums sums = {.model = model};
    struct {
        KEYED_ROWS(struct dispatch);
    } by_name = {0};
    struct dispatch most = {.name = NAME_NONE};
    uint64_t count = 0;
    int64_t time = 0;
    for (size_t i = 0; i < report->session->chosen.processes; i++)
        launch_sums_add(&sums, scope_begin(&report->session->chosen, i));
    for (size_t i = 0; i < sums.count; i++) {
        const struct launch_sum *row = &sums.row[i];
        if (row->kind != DISPATCH) continue;
        struct dispatch *of = keyed_row(&by_name.keyed, &row->head.name, sizeof of->name, sizeof *of);
        of->calls += row->calls;
        count += row->calls;
        time = add_ns(time, row->head.time);
    }
    for (size_t i = 0; i < by_name.count; i++) {
        const struct dispatch *of = &by_name.row[i];
        if (of->calls > most.calls || (of->calls == most.calls && names_order(&model->names, of->name, most.name) < 0))
            most = *of;
    }
    if (count) {
        const struct name *name = names_get(&model->names, most.name);
        out_format(out, "\ndispatches into other libraries: %llu, ", (unsigned long long)count);
        report_put_time(out, time, 0);
        out_puts(out, "; most frequent: ");
        report_put_name(out, name->text, name->length, 70);
    }
    keyed_free(&by_name.keyed);
    launch_sums_free(&sums);
}

/* ---- memory ---- */

struct most {
    int64_t device;
    uint64_t allocated, reserved;
};

static struct most *most_of(struct most *most, size_t *count, int64_t device)
{
    size_t i = 0;
    while (i < *count && most[i].device != device) i++;
    if (i == SHOWN_MEMORIES) return NULL;
    if (i == *count) most[(*count)++] = (struct most){.device = device};
    return &most[i];
}

static void add_most(struct most *most, size_t *count, int64_t device, uint64_t allocated, uint64_t reserved)
{
    struct most *m = most_of(most, count, device);
    if (m) {
        m->allocated = MAX(m->allocated, allocated);
        m->reserved = MAX(m->reserved, reserved);
    }
}

/* With --stage the memory counts that was in use at an allocation or a free in such a stage. */
static void add_memory(const struct choice *choice, struct most *most, size_t *count)
{
    const struct process *p = choice->process;
    const struct blocks *b = &p->blocks;
    struct map ranges = {0};
    for (size_t k = 0; k < b->table.count; k++)
        if (choice_moment(choice, b->time[k], b->time[k]) &&
            (!choice->by_stage || choice_in_stage(choice, &choice->attribution->block[k])))
            add_most(most, count, b->device[k], b->allocated[k], b->reserved[k]);
    if (p->stage_memories) ranges_by_id(&ranges, p);
    for (size_t k = 0; k < p->stage_memories; k++) {
        const struct stage_memory *m = &p->stage_memory[k];
        uint32_t range = map_get(&ranges, m->range);
        struct belonging at = {range == MAP_NONE ? 0 : p->ranges.start[range], range == MAP_NONE ? NO_PLACE : range, 0};
        if ((range == MAP_NONE || choice_stage(choice, range)) && choice_in_stage(choice, &at))
            add_most(most, count, m->device, m->allocated_peak, m->reserved_peak);
    }
    map_free(&ranges);
}

/* Prints the largest memory use of any one process. */
static void put_memory(struct out *out, const struct report *report)
{
    struct most most[SHOWN_MEMORIES];
    size_t count = 0;
    for (size_t u = 0; u < report->units; u++)
        for (size_t i = 0; i < report->unit[u].processes; i++)
            add_memory(&report->unit[u].scope[i]->choice, most, &count);
    for (size_t i = 0; i < count; i++) {
        struct text text = {0};
        human_bytes(&text, most[i].allocated);
        if (most[i].device >= 0) {
            text_format(&text, " in use on device %lld, ", (long long)most[i].device);
            human_bytes(&text, most[i].reserved);
            text_puts(&text, " reserved");
        } else {
            text_puts(&text, " in use by tensors on the host");
        }
        out_puts(out, i ? "memory peak: " : "\nmemory peak: ");
        out_puts(out, text.data);
        out_puts(out, "\n");
        text_free(&text);
    }
}

/* ---- refused memory requests ---- */

/* Returns the number of refused requests; *process and *last identify the last one. */
static uint64_t find_refused(const struct report *report, const struct process **process, size_t *last)
{
    uint64_t count = 0;
    int64_t latest = INT64_MIN;
    for (size_t u = 0; u < report->units; u++) {
        for (size_t i = 0; i < report->unit[u].processes; i++) {
            const struct choice *choice = &report->unit[u].scope[i]->choice;
            const struct blocks *b = &choice->process->ooms;
            for (size_t k = 0; k < b->table.count; k++) {
                bool wanted =
                    choice_moment(choice, b->time[k], b->time[k]) && list_has(&choice->options->device, b->device[k]);
                count += wanted;
                if (wanted && b->time[k] >= latest) {
                    latest = b->time[k];
                    *process = choice->process;
                    *last = k;
                }
            }
        }
    }
    return count;
}

uint64_t report_refused(const struct report *report)
{
    const struct process *process;
    size_t last;
    return find_refused(report, &process, &last);
}

void report_print_refused(struct out *out, const struct report *report)
{
    const struct process *process = NULL;
    struct text text = {0};
    size_t last = 0;
    uint64_t count = find_refused(report, &process, &last);
    if (!count) return;
    const struct blocks *b = &process->ooms;
    text_format(&text, "\nout of memory: %llu request%s refused; the last one, of ", (unsigned long long)count,
                count == 1 ? " was" : "s were");
    human_bytes(&text, b->bytes[last] > 0 ? (uint64_t)b->bytes[last] : 0);
    text_format(&text, " on device %lld, with ", (long long)b->device[last]);
    human_bytes(&text, b->allocated[last]);
    text_puts(&text, " in use and ");
    human_bytes(&text, b->reserved[last]);
    text_puts(&text, " reserved\n");
    out_write(out, text.data, text.length);
    text_free(&text);
}

void report_print_host(struct out *out, struct report *report)
{
    put_operators(out, report);
    put_dispatches(out, report);
    put_memory(out, report);
}
