/* ncu_launches.c - chooses the launches of a process that Nsight Compute is to measure, as ncu counts them. */
#include "ask/ncu/ncu_launches.h"

#include <stdlib.h>
#include <string.h>

#include "ask/ncu/ncu_names.h"
#include "ask/work_kinds.h"

/* A kernel in the order of launches. */
struct launched {
    int64_t time; /* of the launching call; without one, the kernel's own start */
    size_t work;
    uint32_t filter; /* in `filters` */
    uint64_t before; /* launches with the same filter before it */
    size_t next;     /* the next one with the same filter; SIZE_MAX: none */
    size_t row;      /* SIZE_MAX: not chosen */
};

static int launched_order(const void *a, const void *b, void *context)
{
    const struct launched *x = a, *y = b;
    const struct works *w = context;
    int order = by_number(x->time, y->time);
    order = order ? order : by_number(w->start[x->work], w->start[y->work]);
    return order ? order : (x->work > y->work) - (x->work < y->work);
}

bool ncu_by_mangled(const char *kernel)
{
    return strncmp(kernel, "_Z", 2) == 0;
}

void ncu_filter_name(const char *kernel, struct text *name)
{
    if (ncu_by_mangled(kernel)) text_puts(name, kernel);
    else ncu_plain_name(kernel, name, NULL);
}

static uint32_t filter_of(struct names *filters, struct map *known, const struct names *names, uint32_t name)
{
    uint32_t filter = map_get(known, name);
    if (filter != MAP_NONE) return filter;
    struct text text = {0};
    ncu_filter_name(names_get(names, name)->text, &text);
    filter = names_add(filters, text.data ? text.data : "", text.length);
    map_put(known, name, filter);
    text_free(&text);
    return filter;
}

/* Returns the kernels of the process as they were launched. */
static struct launched *launches_of(struct scope *scope, const struct names *names, size_t *count)
{
    const struct process *p = scope->process;
    const struct works *w = &p->works;
    const struct attribution *a = scope_attribute(scope);
    struct launched *l = mem_zero(w->table.count, sizeof *l);
    struct map known = {0}, seen = {0}, last = {0};
    struct names filters; /* the names by which ncu knows the kernels */
    size_t n = 0, run = 0;
    names_init(&filters);
    for (size_t i = 0; i < w->table.count; i++) {
        bool is_graph = run < p->graphs.runs && p->graphs.run[run].work == i; /* a graph as a whole is no kernel */
        run += is_graph;
        if (w->event_class[i] != CLASS_KERNEL || is_graph) continue;
        int64_t time = a->launch[i] == NO_PLACE ? w->start[i] : p->spans.start[a->launch[i]];
        l[n++] = (struct launched){time, i, filter_of(&filters, &known, names, w->name[i]), 0, SIZE_MAX, SIZE_MAX};
    }
    if (n) qsort_r(l, n, sizeof *l, launched_order, (void *)w);
    for (size_t i = 0; i < n; i++) {
        uint32_t place = map_get(&last, l[i].filter), number = map_get(&seen, l[i].filter);
        l[i].before = number == MAP_NONE ? 0 : number;
        if (place != MAP_NONE) l[place].next = i;
        map_put(&last, l[i].filter, (uint32_t)i);
        map_put(&seen, l[i].filter, (uint32_t)l[i].before + 1);
    }
    map_free(&known);
    map_free(&seen);
    map_free(&last);
    names_free(&filters);
    *count = n;
    return l;
}

static void add_chosen(struct ncu_plan *plan, struct scope *scope, const struct names *names, struct launched *l,
                       size_t count)
{
    struct work_kinds kinds;
    work_kinds_init(&kinds, &exact_kinds, names);
    const struct works *w = &scope->process->works;
    const struct choice *choice = &scope->choice;
    struct interval when;
    uint32_t key[2];
    for (size_t i = 0; i < count; i++) {
        size_t work = l[i].work;
        if (!choice_work(choice, work, &when) || !choice_stage_name(choice, &scope->attribution.work[work], &key[0]))
            continue;
        key[1] = w->name[work];
        struct ncu_planned *row = keyed_row(&plan->keyed, key, sizeof key, sizeof *row);
        row->total = add_ns(row->total, when.end - when.start);
        row->communicates |= work_kind_of(&kinds, scope->process, work) == WORK_COMMUNICATION;
        row->launch = mem_grow(row->launch, &row->capacity, row->calls + 1, sizeof *row->launch);
        row->launch[row->calls++] = i;
        l[i].row = (size_t)(row - plan->row);
    }
    work_kinds_free(&kinds);
}

static void find_stage_totals(struct ncu_plan *plan)
{
    struct map place = {0};
    int64_t *total = mem_zero(plan->count, sizeof *total);
    for (size_t i = 0; i < plan->count; i++) {
        int64_t *sum = &total[map_number(&place, plan->row[i].stage)];
        *sum = add_ns(*sum, plan->row[i].total);
    }
    for (size_t i = 0; i < plan->count; i++) plan->row[i].of_stage = total[map_number(&place, plan->row[i].stage)];
    free(total);
    map_free(&place);
}

struct by_duration {
    const struct launched *launched;
    const struct works *works;
};

static int durations_order(const void *a, const void *b, void *context)
{
    const struct by_duration *by = context;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    size_t work_x = by->launched[x].work, work_y = by->launched[y].work;
    int order = by_number(less_ns(by->works->end[work_x], by->works->start[work_x]),
                          less_ns(by->works->end[work_y], by->works->start[work_y]));
    return order ? order : (x > y) - (x < y);
}

/* Chooses the launch of median duration: neither a cold one nor one that something held up. */
static void choose_launch(struct ncu_planned *row, size_t number, const struct launched *l, const struct works *works)
{
    struct by_duration by = {l, works};
    size_t *sorted = mem_zero(row->calls, sizeof *sorted);
    memcpy(sorted, row->launch, row->calls * sizeof *sorted);
    qsort_r(sorted, row->calls, sizeof *sorted, durations_order, &by);
    size_t chosen = sorted[(row->calls - 1) / 2];
    while (row->launch[row->at] != chosen) row->at++;
    row->skip = l[chosen].before;
    for (size_t i = chosen; i != SIZE_MAX && l[i].row == number && row->count < MOST_MEASURED; i = l[i].next)
        row->count++;
    free(sorted);
}

static int rows_order(const void *a, const void *b)
{
    const struct ncu_planned *x = a, *y = b;
    if (x->total != y->total) return x->total > y->total ? -1 : 1;
    return (x->launch[0] > y->launch[0]) - (x->launch[0] < y->launch[0]);
}

void ncu_plan_of(struct ncu_plan *plan, struct scope *scope, const struct names *names)
{
    size_t count;
    *plan = (struct ncu_plan){0};
    struct launched *l = launches_of(scope, names, &count);
    add_chosen(plan, scope, names, l, count);
    find_stage_totals(plan);
    for (size_t i = 0; i < plan->count; i++) choose_launch(&plan->row[i], i, l, &scope->process->works);
    if (plan->count) qsort(plan->row, plan->count, sizeof *plan->row, rows_order);
    free(l);
}

void ncu_plan_free(struct ncu_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) free(plan->row[i].launch);
    keyed_free(&plan->keyed);
}

const char *ncu_plan_doubt(const struct process *p)
{
    bool paused = false;
    for (size_t i = 0; i < p->switchings; i++) paused |= p->switching[i].state != RECORDING_ON;
    if (is_of_kineto(p)) return "the trace begins where its profiler was started: launches before that are not in it";
    if (p->names_asked) return "ENABLE_PROFILER_NAMES was set: launches of other stages are not in the trace";
    if (paused) return "recording was off or in warm-up for a time: its launches are not in the trace";
    if (p->elsewheres) return "another profiler had the device for a time: its launches are not in the trace";
    if (p->graphs.runs) return "graphs were recorded as wholes: their kernels are not in the trace (TFI_GRAPHS=node)";
    if (p->lost) return "the trace lost records: launches may be missing";
    if (!p->complete) return "the trace is not complete: launches may be missing";
    return NULL;
}
