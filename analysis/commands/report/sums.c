/* sums.c - adds up stages and their kernels, unit by unit. */
#include "commands/report/report.h"

#include <stdlib.h>
#include <string.h>

#include "ask/stages/done.h"
#include "ask/stages/order.h"
#include "ask/stages/sets.h"
#include "base/sets/keyed.h"
#include "write/stage_files.h"

/* ---- units ---- */

static struct unit *unit_of(struct report *report, const struct process *process)
{
    for (size_t i = 0; i < report->units && !is_of_kineto(process); i++)
        if (report->unit[i].rank == process->rank && !is_of_kineto(report->unit[i].process[0])) return &report->unit[i];
    struct unit *unit = &report->unit[report->units++];
    *unit = (struct unit){.rank = process->rank, .first = INT64_MAX, .last = INT64_MIN};
    return unit;
}

/* Returns the scope of a process. Operators of a run of the host alone are many, and nothing asks for their stages. */
static struct scope *scope_of(const struct selection *chosen, size_t number)
{
    struct scope *scope = scope_begin(chosen, number);
    bool is_kineto = is_of_kineto(scope->process), has_work = scope->process->works.table.count != 0;
    scope->needs.operators_of_work = (has_work && !is_kineto) || is_filtered(chosen->options);
    scope->needs.stages_of_spans = scope->needs.operators_of_work || is_kineto;
    return scope;
}

static void find_units(struct report *report)
{
    const struct session *session = report->session;
    report->unit = mem_zero(session->chosen.processes, sizeof *report->unit);
    for (size_t i = 0; i < session->chosen.processes; i++) {
        const struct process *p = session->chosen.process[i];
        struct unit *unit = unit_of(report, p);
        unit->process = mem_resize(unit->process, unit->processes + 1, sizeof(void *));
        unit->scope = mem_resize(unit->scope, unit->processes + 1, sizeof(void *));
        unit->scope[unit->processes] = scope_of(&report->session->chosen, i);
        unit->process[unit->processes++] = p;
        unit->has_stages |= has_stages(p);
        if (p->has_time) {
            unit->first = MIN(unit->first, p->first);
            unit->last = MAX(unit->last, p->last);
        }
    }
}

static int by_rank(const void *a, const void *b)
{
    const struct unit *x = a, *y = b;
    return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank)
                              : strcmp(x->process[0]->path, y->process[0]->path);
}

struct window report_window(const struct unit *unit)
{
    const struct window *window = &unit->scope[0]->choice.window;
    return (struct window){MAX(unit->first, window->from), MIN(unit->last, window->to)};
}

/* ---- names ---- */

static uint32_t collapsed(struct names *names, uint32_t name)
{
    const struct name *text = names_get(names, name);
    size_t length = without_number(text->text, text->length);
    if (!length) return name;
    char *one = mem_text(text->text, length + 1); /* with the length, as a name may contain a zero byte */
    one[length] = '*';
    uint32_t number = names_add(names, one, length + 1);
    free(one);
    return number;
}

/* Sets report->one: the stage that each name counts as, for the names that --stage chooses. */
static void find_names(struct report *report)
{
    struct session *session = report->session;
    struct names *names = &session->model.names;
    size_t count = names->count;
    uint32_t *one = mem_zero(count, sizeof *one);
    for (size_t i = 0; i < session->chosen.processes; i++) {
        const struct ranges *r = &session->chosen.process[i]->ranges;
        for (size_t k = 0; k < r->table.count; k++)
            if (is_stage(r, k) && !one[r->name[k]]) one[r->name[k]] = collapsed(names, r->name[k]);
    }
    report_find_asked(report, one, count);
    one[NAME_RUN] = NAME_RUN;
    for (size_t i = 0; i < count; i++)
        if (one[i] != NAME_NONE && !wants_stage(&session->options, model_name(&session->model, (uint32_t)i)) &&
            !wants_stage(&session->options, model_name(&session->model, one[i])))
            one[i] = NAME_NONE;
    report->one = one;
    report->names = count;
}

struct report_stage *report_stage_of(struct unit *unit, uint32_t one)
{
    uint32_t place = map_get(&unit->by_name, one);
    if (place == MAP_NONE) {
        unit->stage = mem_grow(unit->stage, &unit->capacity, unit->stages + 1, sizeof *unit->stage);
        unit->stage[unit->stages] = (struct report_stage){.name = one, .first = INT64_MAX};
        place = (uint32_t)unit->stages++;
        map_put(&unit->by_name, one, place);
    }
    return &unit->stage[place];
}

static struct report_stage *stage_of(struct report *report, struct unit *unit, uint32_t name)
{
    uint32_t one = name < report->names ? report->one[name] : NAME_NONE;
    return one == NAME_NONE ? NULL : report_stage_of(unit, one);
}

/* ---- host times ---- */

/* One stay of a call on its thread; a call that never left its thread has one. */
struct visit {
    int64_t start, end, done;
    bool continued; /* not the first one of its call */
    bool one_of;    /* the call has several; `done` then counts once, from its entry */
};

static void count_stage(struct report *report, struct report_stage *stage, const struct visit *visit)
{
    int64_t start = visit->start;
    if (stage->epoch != report->epoch) {
        stage->epoch = report->epoch;
        stage->covered = stage->done_covered = INT64_MIN;
    }
    stage->calls += !visit->continued;
    stage->first = MIN(stage->first, start);
    stage->host = add_ns(stage->host, MAX(visit->end - MAX(start, stage->covered), 0));
    stage->covered = MAX(stage->covered, visit->end);
    if (visit->continued) return;
    stage->done = add_ns(stage->done, MAX(visit->done - (visit->one_of ? start : MAX(start, stage->done_covered)), 0));
    stage->done_covered = MAX(stage->done_covered, visit->done);
}

/* `done`: see stages_done. */
static void collect_stages(struct report *report, struct unit *unit, const struct choice *choice, const int64_t *done)
{
    const struct process *process = choice->process;
    const struct ranges *r = &process->ranges;
    const struct window *window = &choice->window;
    size_t count, *order = stages_sorted(process, &count);
    struct map wholes = {0};
    wholes_by_id(&wholes, process);
    for (size_t i = 0; i < count; i++) {
        size_t at = order[i];
        if (i == 0 || r->thread[at] != r->thread[order[i - 1]]) {
            report->epoch++;
        }
        struct report_stage *stage = choice_stage(choice, at) ? stage_of(report, unit, r->name[at]) : NULL;
        if (stage) {
            int64_t start = MAX(r->start[at], window->from), end = MIN(r->end[at], window->to);
            uint32_t whole = map_get(&wholes, r->id[at]);
            int64_t last = whole == MAP_NONE ? r->end[at] : process->wholes.end[whole];
            struct visit visit = {start, end, MIN(done_or(done, at, last), window->to), r->flags[at] & RANGE_CONTINUED,
                                  whole != MAP_NONE};
            count_stage(report, stage, &visit);
        }
    }
    int64_t first = MAX(process->first, window->from), last = MIN(process->last, window->to);
    bool is_run = !count && is_one_stage(process, !unit->has_stages) && process->has_time && first <= last &&
                  choice_has_steps(choice);
    if (is_run && report->one[NAME_RUN]) {
        report->epoch++;
        count_stage(report, stage_of(report, unit, NAME_RUN), &(struct visit){first, last, last, false, false});
    }
    free(order);
    map_free(&wholes);
}

/* ---- device times ---- */

struct work {
    uint64_t number;
    uint32_t name; /* displayed name */
    enum event_class event_class;
    int64_t time;
    double host; /* negative: unknown */
};

static void count_work(struct report_stage *stage, const struct work *work)
{
    if (!stage || stage->seen == work->number) return;
    stage->seen = work->number;
    stage->device = add_ns(stage->device, work->time);
    if (work->event_class != CLASS_KERNEL) return;
    stage->kernels = add_ns(stage->kernels, work->time);
    stage->launches++;
    uint32_t place = map_get(&stage->by_kernel, work->name);
    if (place == MAP_NONE) {
        stage->kernel =
            mem_grow(stage->kernel, &stage->kernel_capacity, stage->kernel_count + 1, sizeof *stage->kernel);
        stage->kernel[stage->kernel_count] = (struct report_kernel){.name = work->name};
        place = (uint32_t)stage->kernel_count++;
        map_put(&stage->by_kernel, work->name, place);
    }
    struct report_kernel *kernel = &stage->kernel[place];
    kernel->calls++;
    kernel->device = add_ns(kernel->device, work->time);
    kernel->launched += work->host >= 0;
    kernel->host += MAX(work->host, 0);
}

static void find_short_names(struct report *report)
{
    struct session *session = report->session;
    struct map seen = {0};
    uint32_t *name = NULL;
    size_t count = 0, capacity = 0;
    for (size_t i = 0; i < session->chosen.processes && session->options.names == NAMES_SHORT; i++) {
        const struct works *w = &session->chosen.process[i]->works;
        for (size_t k = 0; k < w->table.count; k++) {
            if (w->event_class[k] == CLASS_KERNEL && map_get(&seen, w->name[k]) == MAP_NONE) {
                map_put(&seen, w->name[k], 1);
                name = mem_grow(name, &capacity, count + 1, sizeof *name);
                name[count++] = w->name[k];
            }
        }
    }
    short_names_init(&report->shorts, &session->model.names, name, count);
    map_free(&seen);
    free(name);
}

/* Returns the number of works that each call launched. */
static uint32_t *works_by_call(const struct attribution *a)
{
    const struct process *p = a->process;
    uint32_t *works = mem_zero(p->spans.table.count, sizeof *works);
    for (size_t i = 0; i < p->works.table.count; i++)
        if (IS_WORK(p->works.event_class[i]) && a->launch[i] != NO_PLACE) works[a->launch[i]]++;
    return works;
}

static void collect_works(struct report *report, struct unit *unit, const struct choice *choice)
{
    const struct attribution *a = choice->attribution;
    const struct process *p = a->process;
    const struct works *w = &p->works;
    bool marked = has_stages(p), *chosen = mem_zero(w->table.count, sizeof *chosen);
    struct interval *when = mem_zero(w->table.count, sizeof *when);
    uint32_t *works = works_by_call(a);
    for (size_t i = 0; i < w->table.count; i++) {
        unit->has_device |= IS_WORK(w->event_class[i]);
        chosen[i] = choice_work(choice, i, &when[i]);
    }
    bool deep = unit->processes == 1 && stages_are_deep(a, chosen);
    for (size_t i = 0; i < w->table.count; i++) {
        if (!chosen[i]) continue;
        uint32_t call = a->launch[i];
        struct work work = {++report->epoch, short_names_get(&report->shorts, w->name[i]), w->event_class[i],
                            when[i].end - when[i].start, -1};
        if (call != NO_PLACE) work.host = (double)(p->spans.end[call] - p->spans.start[call]) / works[call];
        count_work(choice_in_stage(choice, &a->work[i]) ? &unit->all : NULL, &work);
        count_work(marked ? NULL : stage_of(report, unit, NAME_RUN), &work);
        for (uint32_t s = deep ? NO_PLACE : a->work[i].stage; s != NO_PLACE;
             s = stages_around(&a->paths, s, a->work[i].time))
            count_work(stage_of(report, unit, p->ranges.name[s]), &work);
    }
    if (deep) report_add_deep(report, unit, a, chosen, when, works);
    free(chosen);
    free(when);
    free(works);
}

/* Adds the sums of work whose records were left out to their stages and all stages around them. */
static void collect_sums(struct report *report, struct unit *unit, const struct choice *choice)
{
    const struct process *p = choice->process;
    const struct stage_times *t = &p->stage_times;
    struct map ranges = {0};
    if (t->table.count) ranges_by_id(&ranges, p);
    for (size_t i = 0; i < t->table.count; i++) {
        uint32_t s = t->busy[i] < 0 || !choice->lane[t->lane[i]] ? MAP_NONE : map_get(&ranges, t->range[i]);
        report->epoch++;
        unit->has_device |= t->busy[i] >= 0;
        for (s = s == MAP_NONE ? NO_PLACE : s; s != NO_PLACE;
             s = stages_around(&choice->attribution->paths, s, p->ranges.start[s])) {
            struct report_stage *stage = stage_of(report, unit, p->ranges.name[s]);
            if (!stage || stage->seen == report->epoch) continue;
            stage->seen = report->epoch;
            stage->device = add_ns(stage->device, t->busy[i]);
        }
    }
    map_free(&ranges);
}

/* ---- choice of the stages that get a trace ---- */

struct choice_of {
    uint32_t name;
    int64_t done;
};

static int by_done(const void *a, const void *b, void *names)
{
    const struct choice_of *x = a, *y = b;
    return x->done != y->done ? by_number(y->done, x->done) : names_order(names, x->name, y->name);
}

static void choose_stages(struct report *report)
{
    struct keyed choices = {0};
    for (size_t u = 0; u < report->units; u++) {
        for (size_t i = 0; i < report->unit[u].stages; i++) {
            const struct report_stage *stage = &report->unit[u].stage[i];
            struct choice_of *choice = keyed_row(&choices, &stage->name, sizeof stage->name, sizeof *choice);
            choice->done = add_ns(choice->done, stage->done);
        }
    }
    const struct choice_of *choice = choices.row;
    size_t count = choices.count;
    if (count) qsort_r(choices.row, count, sizeof *choice, by_done, &report->session->model.names);
    report->traces = MIN(count, MOST_TRACES);
    report->left_out = count - report->traces;
    struct map numbers = {0};
    for (size_t i = 0; i < report->traces; i++) map_put(&numbers, choice[i].name, (uint32_t)i);
    report->chosen = mem_zero(report->names, sizeof *report->chosen);
    for (size_t i = 0; i < report->names; i++)
        report->chosen[i] = report->one[i] == NAME_NONE ? NO_PLACE : map_get(&numbers, report->one[i]);
    for (size_t u = 0; u < report->units; u++)
        for (size_t i = 0; i < report->unit[u].stages; i++)
            report->unit[u].stage[i].trace = map_get(&numbers, report->unit[u].stage[i].name);
    map_free(&numbers);
    keyed_free(&choices);
}

/* ---- all sums ---- */

struct kernel_order {
    const struct names *names;
};

static int by_device(const void *a, const void *b, void *context)
{
    const struct report_kernel *x = a, *y = b;
    const struct kernel_order *order = context;
    if (x->device != y->device) return x->device > y->device ? -1 : 1;
    return strcmp(names_get(order->names, x->name)->text, names_get(order->names, y->name)->text);
}

/* Sorts the kernels of a stage, or of unit->all, by descending device time. */
static void sort_kernels(const struct report *report, struct report_stage *stage)
{
    struct kernel_order order = {&report->session->model.names};
    if (stage->kernel_count) qsort_r(stage->kernel, stage->kernel_count, sizeof *stage->kernel, by_device, &order);
    stage->kernels_found = MAX(stage->kernels_found, stage->kernel_count);
    map_free(&stage->by_kernel); /* the sort moved the kernels */
}

static int by_first(const void *a, const void *b, void *names)
{
    const struct report_stage *x = a, *y = b;
    return x->first != y->first ? by_number(x->first, y->first) : names_order(names, x->name, y->name);
}

void report_collect(struct report *report, struct session *session)
{
    *report = (struct report){.session = session};
    find_units(report);
    find_names(report);
    find_short_names(report);
    if (report->units) qsort(report->unit, report->units, sizeof *report->unit, by_rank);
    for (size_t u = 0; u < report->units; u++) {
        struct unit *unit = &report->unit[u];
        unit->done = mem_zero(unit->processes, sizeof *unit->done);
        for (size_t i = 0; i < unit->processes; i++) {
            const struct choice *choice = &unit->scope[i]->choice;
            scope_attribute(unit->scope[i]);
            unit->done[i] = stages_done(choice, &session->model.names);
            collect_stages(report, unit, choice, unit->done[i]);
            collect_works(report, unit, choice);
            collect_sums(report, unit, choice);
        }
        for (size_t i = 0; i < unit->stages; i++) sort_kernels(report, &unit->stage[i]);
        sort_kernels(report, &unit->all);
        if (unit->stages) qsort_r(unit->stage, unit->stages, sizeof *unit->stage, by_first, &session->model.names);
        map_free(&unit->by_name);
    }
    choose_stages(report);
}

static void free_stage(struct report_stage *stage)
{
    free(stage->kernel);
    map_free(&stage->by_kernel);
    free(stage->file);
    free(stage->trace_file);
}

void report_free(struct report *report)
{
    for (size_t u = 0; u < report->units; u++) {
        struct unit *unit = &report->unit[u];
        for (size_t i = 0; i < unit->stages; i++) free_stage(&unit->stage[i]);
        free_stage(&unit->all);
        for (size_t i = 0; i < unit->processes && unit->done; i++) free(unit->done[i]);
        free(unit->done);
        free(unit->scope);
        free(unit->process);
        free(unit->stage);
        map_free(&unit->by_name);
    }
    for (size_t i = 0; i < report->files; i++) free(report->file[i]);
    free(report->unit);
    free(report->one);
    free(report->chosen);
    report_free_asked(report);
    short_names_free(&report->shorts);
    report_free_places(report);
    free(report->file);
    *report = (struct report){0};
}
