/* sums.c - finds the units of a report and what their stages count as, and adds these up (ask/stages/stage_table.h). */
#include "commands/report/report.h"

#include <stdlib.h>
#include <string.h>

#include "ask/stages/order.h"
#include "base/sets/rows_by_key.h"
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
    one[NAME_OUTSIDE] = NAME_OUTSIDE;
    for (size_t i = 0; i < count; i++)
        if (one[i] != NAME_NONE && !wants_stage(&session->options, model_name(&session->model, (uint32_t)i)) &&
            !wants_stage(&session->options, model_name(&session->model, one[i])))
            one[i] = NAME_NONE;
    report->one = one;
    report->names = count;
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
            choice->done = add_ns(choice->done, stage->sums->done);
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

static int by_device(const void *a, const void *b, void *names)
{
    const struct stage_kernel *x = a, *y = b;
    if (x->device != y->device) return x->device > y->device ? -1 : 1;
    return strcmp(names_get(names, x->name)->text, names_get(names, y->name)->text);
}

static void sort_kernels(struct stage_row *row, struct names *names)
{
    if (row->kernels.count) qsort_r(row->kernels.row, row->kernels.count, sizeof *row->kernels.row, by_device, names);
}

static int by_first(const void *a, const void *b, void *names)
{
    const struct report_stage *x = a, *y = b;
    return x->first != y->first ? by_number(x->first, y->first) : names_order(names, x->name, y->name);
}

static void collect(struct report *report, struct unit *unit)
{
    struct stage_table *sums = &unit->sums;
    struct names *names = &report->session->model.names;
    sums->one = report->one;
    sums->kernels = &report->shorts;
    for (size_t i = 0; i < unit->processes; i++) unit->has_device |= stages_have_device(unit->process[i]);
    sums->operators = unit->has_device ? NULL : &report->operators;
    for (size_t i = 0; i < unit->processes; i++) {
        scope_attribute(unit->scope[i]);
        sums->since = report_began(unit->process[i], INT64_MIN);
        stages_add(sums, unit->scope[i], unit->rank, !unit->has_stages);
    }
    sort_kernels(&sums->all, names);
    unit->stage = mem_zero(sums->count, sizeof *unit->stage);
    for (size_t i = 0; i < sums->count; i++) {
        struct stage_row *row = &sums->row[i];
        sort_kernels(row, names);
        if (row->name == NAME_OUTSIDE && !row->calls) {
            unit->outside = row;
            continue;
        }
        unit->stage[unit->stages++] =
            (struct report_stage){.name = row->name, .first = row->calls ? row->first : INT64_MAX, .sums = row};
    }
    if (unit->stages) qsort_r(unit->stage, unit->stages, sizeof *unit->stage, by_first, names);
    stages_tell_deep(sums);
}

void report_collect(struct report *report, struct session *session)
{
    *report = (struct report){.session = session, .operators.chosen = &session->chosen};
    find_units(report);
    find_names(report);
    find_short_names(report);
    if (report->units) qsort(report->unit, report->units, sizeof *report->unit, by_rank);
    for (size_t u = 0; u < report->units; u++) collect(report, &report->unit[u]);
    choose_stages(report);
}

void report_free(struct report *report)
{
    for (size_t u = 0; u < report->units; u++) {
        struct unit *unit = &report->unit[u];
        for (size_t i = 0; i < unit->stages; i++) {
            free(unit->stage[i].file);
            free(unit->stage[i].trace_file);
        }
        stages_free(&unit->sums);
        free(unit->scope);
        free(unit->process);
        free(unit->stage);
    }
    for (size_t i = 0; i < report->files; i++) free(report->file[i]);
    for (size_t i = 0; i < report->kepts; i++) free(report->kept[i]);
    free(report->kept);
    free(report->unit);
    free(report->one);
    free(report->chosen);
    report_free_asked(report);
    short_names_free(&report->shorts);
    op_rows_free(&report->operators);
    report_free_places(report);
    free(report->file);
    *report = (struct report){0};
}
