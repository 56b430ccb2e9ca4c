/* roofs.c - adds up the device work of operators and compares it with the peaks of the device.
 *
 * The operator of a piece of work is the innermost one around its launch. Communication is none of it, and copies are left
 * to `bandwidth`. */
#include "advise/roofline/roofs.h"

#include <stdio.h>
#include <stdlib.h>

#include "ask/work_kinds.h"

struct needs roofline_needs(const struct options *options)
{
    (void)options;
    return (struct needs){.device = true,
                          .ranges = true,
                          .launches = true,
                          .operators = true,
                          .operator_details = true,
                          .operators_of_work = true,
                          .captures = true};
}

static const struct device_peaks *peaks_of(const struct roofline *roofline, const struct scope *scope)
{
    const struct process *p = scope->process;
    const char *name =
        p->devices ? model_name(scope->chosen->model, p->device[0].name) : pairs_get(p->metadata, "device.0");
    const struct device_peaks *peaks = name ? device_peaks(name) : NULL;
    return !peaks && roofline->gpu ? device_peaks(roofline->gpu) : peaks;
}

/* Returns the row of a work, whose operator is `op`. */
static struct roof_row *row_of(struct roofline *roofline, const struct scope *scope, size_t work, uint32_t stage)
{
    const struct process *p = scope->process;
    const struct attribution *a = &scope->attribution;
    struct roof_row key = {0};
    uint32_t op = a->op[work];
    const struct op_detail *detail = NULL;
    key.key.rank = p->rank;
    key.key.stage = stage;
    key.key.name = NAME_OUTSIDE;
    if (captured_operator(a, work, &key.key.name)) {
        if (key.key.name == NAME_NONE) key.key.name = NAME_OUTSIDE;
        else detail = captured_detail(a, work);
    } else if (op != NO_PLACE) {
        detail = op_details_of(&p->spans.details, op);
        key.key.name = p->spans.name[op];
    }
    if (detail) {
        key.key.shapes = detail->shapes;
        key.key.types = detail->types;
    }
    size_t before = roofline->count;
    struct roof_row *row = keyed_row(&roofline->keyed, &key.key, sizeof key.key, sizeof key);
    if (roofline->count > before && detail) {
        struct op_inputs inputs;
        const struct model *model = scope->chosen->model;
        op_inputs_parse(&inputs, model_name(model, detail->shapes), model_name(model, detail->types),
                        model_name(model, detail->concrete));
        row->cost = op_cost(model_name(model, key.key.name), &inputs);
        roofline->lacks_shapes |= detail->shapes == NAME_NONE;
    }
    return row;
}

/* Returns a number for the call of a work's operator; NO_ID: it has none. */
static uint64_t call_of(const struct attribution *a, size_t work)
{
    uint32_t name;
    if (captured_operator(a, work, &name)) return captured_call(a, work);
    return a->op[work] == NO_PLACE ? NO_ID : a->op[work];
}

static void add_process(struct roofline *roofline, struct scope *scope)
{
    const struct process *p = scope->process;
    const struct attribution *a = scope_attribute(scope);
    const struct choice *choice = &scope->choice;
    const struct device_peaks *peaks = peaks_of(roofline, scope);
    struct work_kinds kinds;
    struct map counted = {0}; /* calls of operators */
    struct interval when;
    uint32_t stage;
    uint64_t works = roofline->works;
    work_kinds_init(&kinds, &exact_kinds, &scope->chosen->model->names);
    for (size_t i = 0; i < p->works.table.count; i++) {
        if (!choice_work(choice, i, &when) || !choice_stage_name(choice, &a->work[i], &stage)) continue;
        if (work_kind_of(&kinds, p, i) != WORK_COMPUTATION) continue;
        struct roof_row *row = row_of(roofline, scope, i, stage);
        row->device_ns = add_ns(row->device_ns, when.end - when.start);
        row->peaks = peaks;
        roofline->works++;
        roofline->device_ns = add_ns(roofline->device_ns, when.end - when.start);
        uint64_t call = call_of(a, i);
        if (call == NO_ID || map_get(&counted, call) == MAP_NONE) row->calls++;
        if (call != NO_ID) map_put(&counted, call, 1);
    }
    roofline->lacks_device |= roofline->works > works && !peaks;
    scope_left_rows(scope, &roofline->left);
    map_free(&counted);
    work_kinds_free(&kinds);
}

int64_t roof_headroom(const struct roof_row *row)
{
    double left = (double)row->device_ns - row->bound_ns;
    return row->bound_ns > 0 && left > 0 ? (int64_t)left : 0;
}

static int by_headroom(const void *a, const void *b, void *names)
{
    const struct roof_row *x = a, *y = b;
    if (roof_headroom(x) != roof_headroom(y)) return roof_headroom(x) > roof_headroom(y) ? -1 : 1;
    if (x->device_ns != y->device_ns) return x->device_ns > y->device_ns ? -1 : 1;
    if (x->key.rank != y->key.rank) return by_number(x->key.rank, y->key.rank);
    int order = names_order(names, x->key.name, y->key.name);
    order = order ? order : names_order(names, x->key.stage, y->key.stage);
    return order ? order : names_order(names, x->key.shapes, y->key.shapes);
}

/* Finds the bounds of the rows, and sorts them. */
static void find_bounds(struct roofline *roofline, const struct names *names)
{
    for (size_t i = 0; i < roofline->count; i++) {
        struct roof_row *row = &roofline->row[i];
        if (!row->cost.known) continue;
        roofline->modelled_ns = add_ns(roofline->modelled_ns, row->device_ns);
        double calls = (double)row->calls, each = (double)row->device_ns / calls;
        if (row->peaks) row->bound_ns = calls * bound_ns(&row->cost, row->peaks, each, &row->bound);
        roofline->impossible += row->bound_ns > 1.1 * (double)row->device_ns;
    }
    if (roofline->count) qsort_r(roofline->row, roofline->count, sizeof *roofline->row, by_headroom, (void *)names);
}

void roofline_of_model(struct roofline *roofline, const struct selection *chosen)
{
    for (size_t i = 0; i < chosen->processes; i++) {
        struct scope *scope = scope_begin(chosen, i);
        add_process(roofline, scope);
        scope_end(scope);
    }
    find_bounds(roofline, &chosen->model->names);
}

void roofline_free(struct roofline *roofline)
{
    keyed_free(&roofline->keyed);
    left_rows_free(&roofline->left);
}
