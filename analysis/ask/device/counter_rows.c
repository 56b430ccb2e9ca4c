/* counter_rows.c - joins CUPTI's counter ranges with launches and operators. */
#include "ask/device/counter_rows.h"

#include <stdlib.h>
#include <string.h>

/* A launch of a kernel, or an operator. */
struct host_row {
    int64_t start, end;
    uint32_t thread, span;
    bool is_launch;
    uint32_t top, bottom; /* of a launch */
};

struct host_rows {
    struct host_row *row;
    size_t count, capacity, launches;
};

static const char *const launch_names[] = {"cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cuLaunchKernel",
                                           "cuLaunchCooperativeKernel"};

/* Versions and variants of a call append to its name. */
static bool is_launch(const char *name, const struct counter_rules *rules)
{
    if (rules) return strncmp(name, rules->launch, strlen(rules->launch)) == 0;
    for (size_t i = 0; i < ARRAY_SIZE(launch_names); i++)
        if (strncmp(name, launch_names[i], strlen(launch_names[i])) == 0) return true;
    return false;
}

/* The rules, and what they know of the process. */
struct view {
    const struct process *process;
    const struct counter_rules *rules;
    const void *context;
    const struct names *names;
};

static struct interval times(const struct view *view, int64_t start, int64_t end)
{
    return view->rules ? view->rules->times(view->process, start, end) : (struct interval){start, end};
}

static bool is_left_out(const struct view *view, int64_t start)
{
    return view->rules && !view->rules->keeps(view->context, start);
}

/* ---- operators around launches ---- */

static void collect(struct host_rows *rows, const struct view *view)
{
    const struct spans *s = &view->process->spans;
    for (size_t i = 0; i < s->table.count; i++) {
        struct interval when = times(view, s->start[i], s->end[i]);
        bool launch =
            s->event_class[i] == CLASS_API && is_launch(names_get(view->names, s->name[i])->text, view->rules);
        if ((!launch && s->event_class[i] != CLASS_OPERATOR) || is_left_out(view, when.start)) continue;
        rows->row = mem_grow(rows->row, &rows->capacity, rows->count + 1, sizeof *rows->row);
        rows->row[rows->count++] =
            (struct host_row){when.start, when.end, s->thread[i], (uint32_t)i, launch, NO_PLACE, NO_PLACE};
        rows->launches += launch;
    }
}

static int by_thread(const void *a, const void *b)
{
    const struct host_row *x = a, *y = b;
    int outer = outer_first(x->start, x->end, y->start, y->end);
    return x->thread != y->thread         ? by_number(x->thread, y->thread)
           : outer                        ? outer
           : x->is_launch != y->is_launch ? x->is_launch - y->is_launch
                                          : by_number(x->span, y->span);
}

/* Launches first, by time. */
static int by_launch(const void *a, const void *b)
{
    const struct host_row *x = a, *y = b;
    return x->is_launch != y->is_launch ? y->is_launch - x->is_launch
           : x->start != y->start       ? by_number(x->start, y->start)
                                        : by_number(x->span, y->span);
}

static void find_operators(struct host_rows *rows, uint32_t *outer)
{
    struct host_row **open = mem_zero(rows->count, sizeof *open);
    size_t depth = 0;
    if (rows->count) qsort(rows->row, rows->count, sizeof *rows->row, by_thread);
    for (size_t i = 0; i < rows->count; i++) {
        struct host_row *row = &rows->row[i];
        if (i && row->thread != row[-1].thread) depth = 0;
        while (depth && open[depth - 1]->end <= row->start) depth--;
        if (row->is_launch && depth) {
            row->top = open[0]->span;
            row->bottom = open[depth - 1]->span;
        }
        if (row->is_launch) continue;
        outer[row->span] = depth ? open[depth - 1]->span : NO_PLACE;
        open[depth++] = row;
    }
    free(open);
    if (rows->count) qsort(rows->row, rows->count, sizeof *rows->row, by_launch);
}

/* ---- ranges ---- */

/* Adds what a counter says of floating-point operations: "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum". */
static void add_flops(struct counter_row *row, const char *counter, double value)
{
    static const char before[] = "smsp__sass_thread_inst_executed_op_", after[] = "_pred_on.sum";
    static const char *const kinds[] = {"ffma", "fmul", "fadd", "hfma", "hmul", "hadd", "dfma", "dmul", "dadd"};
    size_t length = strlen(kinds[0]), skip = sizeof before - 1;
    if (strncmp(counter, before, skip) != 0 || strlen(counter) < skip + length) return;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (strncmp(counter + skip, kinds[i], length) != 0 || strcmp(counter + skip + length, after) != 0) continue;
        row->has_flops = true;
        row->flops += strcmp(kinds[i] + 1, "fma") == 0 ? 2 * value : value;
    }
}

static int works_by_start(const void *a, const void *b, void *context)
{
    const struct counter_range *range = context;
    const struct counter_row *x = a, *y = b;
    return range[x->range].start != range[y->range].start ? by_number(range[x->range].start, range[y->range].start)
                                                          : by_number(x->range, y->range);
}

static void take_ranges(struct counter_rows *rows, const struct view *view)
{
    const struct counter_ranges *c = &rows->process->counters;
    rows->row = mem_zero(c->count, sizeof *rows->row);
    for (size_t i = 0; i < c->count; i++) {
        const struct counter_range *range = &c->range[i];
        if (is_left_out(view, times(view, range->start, range->end).start)) continue;
        struct counter_row *row = &rows->row[rows->count++];
        *row = (struct counter_row){.range = (uint32_t)i, .launch = NO_PLACE, .top = NO_PLACE, .bottom = NO_PLACE};
        for (size_t k = range->first; k < range->first + range->count; k++)
            add_flops(row, names_get(view->names, c->counted[k].counter)->text, c->counted[k].value);
    }
    if (rows->count) qsort_r(rows->row, rows->count, sizeof *rows->row, works_by_start, c->range);
}

void counters_of(struct counter_rows *rows, const struct process *process, const struct counter_rules *rules,
                 const void *context, const struct names *names)
{
    const struct view view = {process, rules, context, names};
    struct host_rows host = {0};
    *rows = (struct counter_rows){.process = process};
    if (!process->counters.count) return;
    rows->outer = no_places(process->spans.table.count);
    collect(&host, &view);
    find_operators(&host, rows->outer);
    take_ranges(rows, &view);
    rows->launches = host.launches;
    for (size_t i = 0; i < rows->count; i++) {
        rows->row[i].number = i;
        if (host.launches != rows->count) continue;
        rows->row[i].launch = host.row[i].span;
        rows->row[i].top = host.row[i].top;
        rows->row[i].bottom = host.row[i].bottom;
    }
    free(host.row);
}

void counters_free(struct counter_rows *rows)
{
    free(rows->row);
    free(rows->outer);
    *rows = (struct counter_rows){0};
}
