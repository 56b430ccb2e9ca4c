/* counters.c - reports CUPTI's counters of each kernel with the operators around its launch: one row per range. */
#include <math.h>
#include <stdlib.h>

#include "ask/choice.h"
#include "base/sets/rows_by_key.h"
#include "commands/device/answers.h"

enum { MOST_SHOWN = 64 }; /* operators of a stack */

struct sums {
    KEYED_ROWS(struct counted); /* by name of a counter */
    uint64_t ranges, shown, all;
    int64_t time;
    double flops;
    bool has_flops;
    struct short_names shorts; /* of the kernels, with --names short */
    const struct counter_rules *rules;
};

static void emit_counter(struct session *session, uint32_t name, double value)
{
    static const double EXACT = 9007199254740992.0; /* 2^53 */
    const char *key = model_name(&session->model, name);
    if (fabs(value) < EXACT && floor(value) == value) emit_int(&session->emit, key, (int64_t)value);
    else emit_double(&session->emit, key, value);
}

/* Text leaves out counters that are 0: most are, and their names are long. */
static void emit_counters(struct session *session, const struct counted *counted, size_t count)
{
    bool all = session->options.format != FORMAT_TEXT;
    emit_open(&session->emit, "counters", false);
    for (size_t i = 0; i < count; i++)
        if (all || counted[i].value != 0) emit_counter(session, counted[i].counter, counted[i].value);
    emit_close(&session->emit);
}

static void emit_operator(struct session *session, const struct process *process, const char *key, uint32_t span)
{
    if (span == NO_PLACE) emit_null(&session->emit, key);
    else emit_text(&session->emit, key, model_name(&session->model, process->spans.name[span]));
}

static void emit_stack(struct session *session, const struct counter_rows *rows, uint32_t at)
{
    uint32_t stack[MOST_SHOWN];
    size_t count = 0;
    emit_open(&session->emit, "op_stack", true);
    for (; at != NO_PLACE && count < MOST_SHOWN; at = rows->outer[at]) stack[count++] = at;
    if (at != NO_PLACE) emit_text(&session->emit, NULL, "...");
    while (count) emit_operator(session, rows->process, NULL, stack[--count]);
    emit_close(&session->emit);
}

static void emit_range(struct session *session, const struct counter_rows *rows, const struct counter_row *row,
                       const struct sums *sums)
{
    struct emit *e = &session->emit;
    const struct counter_ranges *c = &rows->process->counters;
    const struct counter_range *range = &c->range[row->range];
    const struct name *name = names_get(&session->model.names, short_names_get(&sums->shorts, range->name));
    struct interval when = sums->rules ? sums->rules->times(rows->process, range->start, range->end)
                                       : (struct interval){range->start, range->end};
    emit_row(e);
    emit_known(e, "rank", rows->process->rank);
    emit_count(e, "range", row->number);
    emit_bytes_text(e, "kernel", name->text, name->length);
    emit_us(e, "duration_us", when.end - when.start);
    emit_counters(session, c->counted + range->first, range->count);
    emit_double(e, "flops", row->has_flops ? row->flops : NAN);
    emit_operator(session, rows->process, "top_op", row->top);
    emit_operator(session, rows->process, "bottom_op", row->bottom);
    emit_stack(session, rows, row->bottom);
    emit_row_end(e);
}

static void add_counter_row(struct sums *sums, const struct process *process, const struct counter_row *row)
{
    const struct counter_range *range = &process->counters.range[row->range];
    sums->ranges++;
    sums->time = add_ns(sums->time, range->end - range->start);
    sums->flops += row->flops;
    sums->has_flops |= row->has_flops;
    for (size_t i = range->first; i < range->first + range->count; i++) {
        const struct counted *counted = &process->counters.counted[i];
        struct counted *sum = keyed_row(&sums->keyed, &counted->counter, sizeof counted->counter, sizeof *sum);
        sum->value += counted->value;
    }
}

/* A range belongs to the stages, the steps and the time of its launch. */
static bool is_chosen(struct scope *scope, const struct counter_row *row)
{
    const struct process *p = scope->process;
    if (row->launch == NO_PLACE) return !is_filtered(scope->choice.options);
    return choice_call(&scope->choice, p->spans.start[row->launch], row->launch) &&
           choice_in_stage(&scope->choice, &scope_attribute(scope)->span[row->launch]);
}

static void answer_process(struct session *session, const struct counter_part *part, struct sums *sums)
{
    struct scope *scope = part->scope;
    const struct process *process = scope->process;
    struct counter_rows rows;
    uint64_t top = session->options.top;
    counters_of(&rows, process, sums->rules, part->context, &session->model.names);
    sums->all += rows.count;
    if (rows.count && rows.launches != rows.count) {
        complain(process->path, "%zu ranges with counters, but %zu launches of kernels: %s", rows.count, rows.launches,
                 sums->rules ? sums->rules->without : "it is unknown which operator launched which");
    }
    for (size_t i = 0; i < rows.count && (!sums->rules || rows.launches == rows.count); i++) {
        if (!is_chosen(scope, &rows.row[i])) continue;
        add_counter_row(sums, process, &rows.row[i]);
        if (!top || sums->shown++ < top) emit_range(session, &rows, &rows.row[i], sums);
    }
    counters_free(&rows);
    scope_end(scope);
}

/* Short names are distinct in the whole answer. */
static void shorten(struct session *session, struct sums *sums)
{
    uint32_t *name = NULL;
    size_t count = 0, capacity = 0;
    for (size_t i = 0; i < session->chosen.processes; i++) {
        const struct counter_ranges *c = &session->chosen.process[i]->counters;
        name = mem_grow(name, &capacity, count + c->count, sizeof *name);
        for (size_t k = 0; k < c->count; k++) name[count++] = c->range[k].name;
    }
    short_names_init(&sums->shorts, &session->model.names, name, count);
    free(name);
}

void counters_answer(struct session *session, const struct counter_rules *rules, const struct counter_part *part,
                     size_t parts)
{
    struct sums sums = {.rules = rules};
    struct emit *e = &session->emit;
    if (session->options.names == NAMES_SHORT) shorten(session, &sums);
    for (size_t i = 0; i < parts; i++) answer_process(session, &part[i], &sums);
    emit_totals(e);
    emit_count(e, "ranges", sums.ranges);
    emit_us(e, "duration_us", sums.time);
    emit_counters(session, sums.row, sums.count);
    emit_double(e, "flops", sums.has_flops ? sums.flops : NAN);
    emit_end(e);
    if (!sums.all) {
        complain(NULL, "no ranges with CUPTI counters: record with torch.profiler's "
                       "_ExperimentalConfig(profiler_metrics=[...], profiler_measure_per_kernel=True)");
    }
    if (sums.all) session_end(session, sums.ranges != 0);
    else session_end_said(session, false);
    keyed_free(&sums.keyed);
    short_names_free(&sums.shorts);
}

struct needs counters_needs(const struct options *options)
{
    (void)options;
    return (struct needs){
        .counters = true, .ranges = true, .launches = true, .launchers = true, .stages_of_spans = true};
}

void cmd_counters(struct session *session)
{
    if (!session_ask(session, STYLE_TABLE)) return;
    const struct selection *chosen = &session->chosen;
    struct counter_part *part = mem_zero(chosen->processes, sizeof *part);
    for (size_t i = 0; i < chosen->processes; i++) part[i].scope = scope_begin(chosen, i);
    counters_answer(session, NULL, part, chosen->processes);
    free(part);
}
